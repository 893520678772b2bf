"""The roundings that stage `quantize` compares: every grid, and the largest coordinates alone where bits are short."""

from __future__ import annotations

from fractions import Fraction

import torch

from pacbayes.codes import Menu, MenuEntry
from pacbayes.codes.priors import parse_code
from progressive_rlvr.config import Student
from progressive_rlvr.stages.quantize import roundings

V = torch.tensor([0.9, -0.5, 0.31, 0.05, -0.2, 0.0])


def menu(*steps: str) -> Menu:
    structure = {"adapter": "tinylora", **Student().model_dump(mode="json")}
    code = parse_code({"kind": "sparse", "values": {"kind": "laplace", "ratio": "1/2", "bound": 7}})
    return Menu(
        entries=tuple(
            MenuEntry(
                name=step,
                probability=str(Fraction(1, len(steps))),
                dimension=len(V),
                step=step,
                code=code,
                structure=structure,
                prior_artifact="0" * 64,
            )
            for step in steps
        )
    )


def test_the_smallest_coordinates_are_left_out_first() -> None:
    """By hand: on a grid of 0.2 the numbers round to 4, -2, 2, 0, -1, 0; of these four, three, two and one are kept."""
    found = [c.q for c in roundings(menu("0.2"), V, None)]
    assert found == [(4, -2, 2, 0, -1, 0), (4, -2, 2, 0, 0, 0), (4, -2, 0, 0, 0, 0), (4, 0, 0, 0, 0, 0)]


def test_a_vector_too_long_for_the_limit_is_shortened_until_it_fits() -> None:
    whole = roundings(menu("0.2", "0.5"), V, None)
    limit = max(c.bits for c in whole) - 1
    within = roundings(menu("0.2", "0.5"), V, limit)
    assert within == [c for c in whole if c.bits <= limit]
    assert {c.entry for c in within} == {"0.2", "0.5"}
    assert roundings(menu("0.2"), V, 1.0) == []


def test_what_is_said_is_what_was_rounded() -> None:
    codes = menu("0.2", "0.5")
    for candidate in roundings(codes, V, None):
        assert codes.decode(candidate.message) == (candidate.index, candidate.q)
        assert candidate.bits == codes.bits(candidate.index, candidate.q)


def test_a_grid_too_fine_for_its_code_is_passed_over() -> None:
    assert {c.entry for c in roundings(menu("0.1", "0.5"), V, None)} == {"0.5"}  # 9 is beyond the code's 7
