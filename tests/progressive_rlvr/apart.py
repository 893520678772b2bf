"""Run under a launcher: what two processes that trained apart, and two that trained together, are told."""

import torch

from progressive_rlvr import distributed

distributed.join()
rank = torch.distributed.get_rank()
distributed.check_trained_together([torch.ones(3), torch.zeros(2)], 2)
for numbers, processes in (([torch.ones(3) + rank * 1e-6], 2), ([torch.ones(3)], 1)):
    noticed = False
    try:
        distributed.check_trained_together(numbers, processes)
    except RuntimeError as error:
        noticed = "did not train together" in str(error)
    assert noticed
distributed.end()
print("noticed")
