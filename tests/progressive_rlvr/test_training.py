"""The optimizer of the student: AdamW, with a soft threshold where bits are paid by the distance from zero."""

from __future__ import annotations

import pytest
import torch

from progressive_rlvr.stages.training import Shrinking


def test_without_shrinkage_it_is_adamw() -> None:
    ours, theirs = (torch.nn.Parameter(torch.tensor([1.0, -2.0, 0.5])) for _ in range(2))
    optimizers = Shrinking([ours], 0.1, 0.2, 0.0), torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.2)
    for _ in range(5):
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = parameter.detach() ** 3
            optimizer.step()
    assert torch.equal(ours, theirs)


def test_it_shrinks_by_the_learning_rate_of_the_step_and_stops_at_zero() -> None:
    """With no gradient Adam does not move: 3 steps at rates .1, .2, .3 take 0.5 * (.1 + .2 + .3) = .3 off."""
    parameter = torch.nn.Parameter(torch.tensor([1.0, -1.0, 0.25]))
    optimizer = Shrinking([parameter], 0.1, 0.0, 0.5)
    for rate in (0.1, 0.2, 0.3):
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = torch.zeros(3)
        optimizer.step()
    assert parameter.tolist() == pytest.approx([0.7, -0.7, 0.0])


def test_what_does_not_pay_for_itself_ends_at_zero_exactly() -> None:
    """Minimise (v - c)²/2: a pull that changes sign from step to step, as noise does, loses against the threshold."""
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer = Shrinking([parameter], 0.05, 0.0, 0.3)
    for step in range(200):
        noise = 1.0 if step % 2 else -1.0
        parameter.grad = torch.stack([parameter.detach()[0] - 2.0, torch.tensor(noise)])
        optimizer.step()
    assert parameter[0] > 1
    assert parameter[1] == 0
