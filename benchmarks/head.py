"""A trap of torch on a CPU: a frozen head over the last position of every prompt, which is a strided slice.

    python benchmarks/head.py

One product of 64 states with a vocabulary of 49,152 (SmolLM2's head), one thread, CPU seconds. Where the weight is
frozen, as it is while an adapter trains, torch does not fold the batch of a strided slice into one product.
`progressive_rlvr.models` hands the head contiguous states for that reason.
"""

from __future__ import annotations

import time

import torch


def seconds(weight: torch.Tensor, states: torch.Tensor) -> float:
    """CPU seconds of one product, after one to warm up."""
    with torch.no_grad():
        torch.nn.functional.linear(states[:1], weight)
        start = time.process_time()
        torch.nn.functional.linear(states, weight)
    return time.process_time() - start


def main() -> None:
    """Print a Markdown table."""
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}\n\n| dtype | weight | strided | contiguous |\n|---|---|---:|---:|")
    for dtype in (torch.float32, torch.bfloat16):
        weight, prompts = torch.randn(49_152, 576, dtype=dtype), torch.randn(64, 66, 576, dtype=dtype)
        last = prompts[:, -1:]
        for frozen in (False, True):
            weight.requires_grad_(not frozen)
            cells = (seconds(weight, states) for states in (last, last.contiguous()))
            kind = "frozen" if frozen else "trained"
            print(f"| {str(dtype)[6:]} | {kind} | {' | '.join(f'{cell:.2f} s' for cell in cells)} |", flush=True)


if __name__ == "__main__":
    main()
