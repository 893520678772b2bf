"""The menu: a prior over messages, one bit string for each, and refusal of everything else."""

import itertools
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from pacbayes.codes import CodeError, Menu, MenuEntry, MessageError, SupportError, parse_code

DIGEST = "ab" * 32


def entry(name: str, probability: str, dimension: int, code: dict[str, Any], **changes: Any) -> MenuEntry:
    fields: dict[str, Any] = {"step": "0.4", "structure": {"rank": 2}, "prior_artifact": DIGEST} | changes
    return MenuEntry(name=name, probability=probability, dimension=dimension, code=code, **fields)


LAPLACE = {"kind": "laplace", "ratio": "1/2", "bound": 31}
SMALL = Menu(
    entries=(
        entry("a", "1/2", 2, {"kind": "laplace", "ratio": "1/3", "bound": 2}),
        entry("b", "1/8", 2, {"kind": "fixed", "low": -1, "high": 1}, step="0.8"),
        entry("c", "1/7", 3, {"kind": "adaptive", "bound": 1}),
    )
)
LARGE = Menu(
    entries=(
        entry("fine", "1/2", 28, LAPLACE, step="0.2"),
        entry("coarse", "3/8", 13, {"kind": "sparse", "values": LAPLACE}),
    )
)


def messages(menu: Menu) -> list[tuple[int, tuple[int, ...]]]:
    found = []
    for i, choice in enumerate(menu.entries):
        for q in itertools.product(range(-2, 3), repeat=choice.dimension):
            try:
                menu.bits(i, q)
            except SupportError:
                continue
            found.append((i, q))
    return found


def test_probabilities_sum_to_what_the_entries_declare() -> None:
    total = sum(2 ** -SMALL.bits(i, q) for i, q in messages(SMALL))
    assert total == pytest.approx(1 / 2 + 1 / 8 + 1 / 7, abs=1e-8)
    assert len(messages(SMALL)) == 25 + 9 + 27


def test_kraft_prefix_freedom_and_length_by_enumeration() -> None:
    strings = []
    for i, q in messages(SMALL):
        string = str(SMALL.bit_string(i, q))
        assert SMALL.bits(i, q) - 1e-9 <= len(string) < SMALL.bits(i, q) + 2
        strings.append(string)
    strings.sort()
    assert not any(longer.startswith(shorter) for shorter, longer in itertools.pairwise(strings))
    assert sum(Fraction(1, 2 ** len(string)) for string in strings) <= 1


def test_all_short_byte_strings_decode_to_their_own_message_or_are_refused() -> None:
    """Every byte string of up to two bytes: exactly the messages are accepted."""
    expected = {SMALL.encode(i, q): (i, q) for i, q in messages(SMALL)}
    accepted = {}
    for size in (0, 1, 2):
        for data in map(bytes, itertools.product(range(256), repeat=size)):
            try:
                accepted[data] = SMALL.decode(data)
            except MessageError:
                continue
    assert accepted == expected


@settings(deadline=None)
@given(st.data())
def test_round_trip(data: st.DataObject) -> None:
    i = data.draw(st.integers(0, 1))
    q = tuple(data.draw(st.lists(st.integers(-31, 31), min_size=(28, 13)[i], max_size=(28, 13)[i])))
    message = LARGE.encode(i, q)
    assert LARGE.decode(message) == (i, q)
    assert len(message) <= (LARGE.bits(i, q) + 2) / 8 + 1


@settings(deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=28, max_size=28), st.binary(min_size=1, max_size=3))
def test_truncated_and_extended_messages_are_refused(q: list[int], tail: bytes) -> None:
    message = LARGE.encode(0, q)
    for size in range(len(message)):
        with pytest.raises(MessageError, match=r"truncated|canonical|does not name"):
            LARGE.decode(message[:size])
    with pytest.raises(MessageError, match=f"extended: {len(tail)} bytes follow its {len(message)}"):
        LARGE.decode(message + tail)


def test_errors_name_what_differs() -> None:
    message = LARGE.encode(0, [1] * 28)
    with pytest.raises(MessageError, match=f"truncated: {len(message) - 1} bytes, where what they begin takes"):
        LARGE.decode(message[:-1])
    with pytest.raises(MessageError, match="does not name an entry"):
        LARGE.decode(b"\xff" * 10)  # the eighth that the entries leave
    padded = len(LARGE.bit_string(0, [1] * 28)) % 8
    assert padded, "the example must have padding"
    with pytest.raises(MessageError, match=rf"byte {len(message) - 1} is .* what it decodes to has"):
        LARGE.decode(message[:-1] + bytes([message[-1] | 1]))


def test_bits_are_the_sum_of_entry_and_vector() -> None:
    assert SMALL.entry_bits(0) == 1.0
    assert SMALL.bits(1, (0, 1)) == pytest.approx(3 + 2 * math.log2(3), abs=1e-8)
    assert SMALL.bits(1, (0, 1)) >= 3 + 2 * math.log2(3)
    q = [0, 1, -2] * 4 + [0]
    code = LARGE.entries[1].code
    assert LARGE.bits(1, q) == pytest.approx(LARGE.entry_bits(1) - code.log2_probability(q), abs=1e-8)


def test_messages_of_the_same_policy_add_up() -> None:
    # 0.8 * (1, 0) and 0.4 * (2, 0) are the same parameters.
    together = 2 ** -SMALL.bits(0, (2, 0)) + 2 ** -SMALL.bits(1, (1, 0))
    assert (
        SMALL.mixture_bits(0, (2, 0)) == SMALL.mixture_bits(1, (1, 0)) == pytest.approx(-math.log2(together), abs=1e-8)
    )
    # 0.4 * (1, 0) is not on the grid of 0.8, and 0.8 * … exceeds the other's support.
    assert SMALL.mixture_bits(0, (1, 0)) == SMALL.bits(0, (1, 0))


def test_policies_that_differ_in_the_last_bit_do_not_add_up() -> None:
    """3 * 0.1 is not 1 * 0.3 in float64, where decoders multiply: two policies, each with its own price."""
    entry = MenuEntry(
        name="tenths",
        probability="1/2",
        dimension=1,
        step="0.1",
        code=parse_code({"kind": "fixed", "low": -8, "high": 8}),
        structure={},
        prior_artifact="0" * 64,
    )
    menu = Menu(entries=(entry, entry.model_copy(update={"name": "three tenths", "step": "0.3"})))
    assert 0.1 * 3 != 0.3 * 1
    assert menu.mixture_bits(0, [3]) == menu.bits(0, [3])
    assert menu.mixture_bits(1, [1]) == menu.bits(1, [1])
    assert 0.1 * 6 != 0.3 * 2
    assert menu.mixture_bits(0, [0]) == pytest.approx(menu.bits(0, [0]) - 1, abs=1e-9)  # zero is zero on both


def test_other_policies_do_not_add_up() -> None:
    fixed = {"kind": "fixed", "low": -1, "high": 1}
    for changes in ({"structure": {"rank": 4}}, {"prior_artifact": "cd" * 32}, {"step": "0.3"}):
        menu = Menu(entries=(entry("a", "1/2", 2, fixed), entry("b", "1/2", 2, fixed, **changes)))
        assert menu.mixture_bits(0, (1, 1)) == menu.bits(0, (1, 1))
    menu = Menu(entries=(entry("a", "1/2", 2, fixed), entry("b", "1/2", 2, fixed)))
    assert menu.mixture_bits(0, (1, 1)) == menu.bits(0, (1, 1)) - 1


def test_mixture_of_everything_is_still_a_prior() -> None:
    """Summed over policies, not messages, the mixture's probabilities stay at most one."""
    policies = {}
    for i, q in messages(SMALL):
        choice = SMALL.entries[i]
        policies[choice.dimension, tuple(Fraction(choice.step) * v for v in q)] = 2 ** -SMALL.mixture_bits(i, q)
    assert sum(policies.values()) == pytest.approx(1 / 2 + 1 / 8 + 1 / 7, abs=1e-8)


def test_golden_message() -> None:
    assert LARGE.encode(0, [0, 1, -1, 2] * 7).hex() == "49572daa4c5821664ac0"
    assert LARGE.encode(1, [0, 0, 5, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0]).hex() == "c1d8b0"


def test_wrong_uses_are_named() -> None:
    with pytest.raises(CodeError, match="entry 'fine' takes 28 integers, got 3"):
        LARGE.bits(0, [1, 2, 3])
    with pytest.raises(CodeError, match="an entry from 0 to 1, got 2"):
        LARGE.encode(2, [0] * 28)
    with pytest.raises(CodeError, match="an entry from 0 to 1, got -1"):
        LARGE.encode(-1, [0] * 13)
    with pytest.raises(SupportError, match="-31 to 31"):
        LARGE.encode(0, [32] * 28)


def test_json_round_trip() -> None:
    assert Menu.model_validate_json(LARGE.model_dump_json()) == LARGE
    assert Menu.model_validate(LARGE.model_dump(mode="json")) == LARGE


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"probability": "9/8"}, r"in \(0, 1\]"),
        ({"probability": "0"}, r"in \(0, 1\]"),
        ({"probability": "4/8"}, "lowest terms"),
        ({"dimension": 0}, "dimension"),
        ({"step": "-0.4"}, "positive decimal"),
        ({"step": "two"}, "a decimal number"),
        ({"step": "NaN"}, "positive decimal"),
        ({"code": {"kind": "laplace"}}, "ratio"),
        ({"prior_artifact": "xyz"}, "prior_artifact"),
        ({"seed": 42}, "seed"),
    ],
)
def test_bad_entries_are_refused(changes: dict[str, Any], named: str) -> None:
    fields = {"name": "a", "probability": "1/2", "dimension": 2, "code": LAPLACE} | changes
    with pytest.raises(ValidationError, match=named):
        entry(**fields)


def test_a_menu_is_a_prior() -> None:
    with pytest.raises(ValidationError, match="sum to at most 1, got 7/6"):
        Menu(entries=(entry("a", "1/2", 2, LAPLACE), entry("b", "2/3", 2, LAPLACE)))
    with pytest.raises(ValidationError, match="names that differ"):
        Menu(entries=(entry("a", "1/2", 2, LAPLACE), entry("a", "1/3", 2, LAPLACE)))
    with pytest.raises(ValidationError, match="entries"):
        Menu(entries=())


def test_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        LARGE.entries[0].step = "1"
