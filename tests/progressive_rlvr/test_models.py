"""Base models as they are loaded."""

from __future__ import annotations

import torch

from progressive_rlvr.models import find_base


def test_the_head_is_handed_contiguous_states_and_says_the_same() -> None:
    """The last position of every prompt is a strided slice, for which torch has a slow path if weights are frozen."""
    model = find_base("pocket").load().requires_grad_(False)
    seen = []
    model.get_output_embeddings().register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    prompts = torch.arange(12).reshape(3, 4)
    last = model(input_ids=prompts, logits_to_keep=1).logits
    everywhere = model(input_ids=prompts).logits
    assert [tuple(states.shape[:2]) for states in seen] == [(3, 1), (3, 4)]
    assert all(states.is_contiguous() for states in seen)
    assert torch.allclose(last, everywhere[:, -1:], atol=1e-5)
