"""Rounding, ledgers, hold-outs, advice, and labels that keep their distance."""

from __future__ import annotations

import math
import random
import re
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import pytest
from scipy.special import bdtr

from bounds_reports import charts, holdout
from bounds_reports.advice import advise, relative_entropy
from bounds_reports.numbers import apportion, fixed, percent, places, points, probability
from bounds_reports.sentences import _rough
from bounds_reports.svg import Label, spread, text_width
from bounds_reports.text import clip, markdown, specimen, title, visible


@pytest.mark.parametrize(
    ("value", "down", "up", "near"),
    [
        ("0.88199999", "88.1 %", "88.2 %", "88.2 %"),
        ("0.881", "88.1 %", "88.1 %", "88.1 %"),
        ("0.29", "29.0 %", "29.0 %", "29.0 %"),  # 0.29 * 100 is 28.999… in binary
        ("0.9999999", "99.9 %", "100.0 %", "100.0 %"),
        ("0.0000001", "0.0 %", "0.1 %", "0.0 %"),
        ("0", "0.0 %", "0.0 %", "0.0 %"),
    ],
)
def test_percent_rounds_as_told(value: str, down: str, up: str, near: str) -> None:
    number = Decimal(value)
    assert (percent(number, "down"), percent(number, "up"), percent(number, "near")) == (down, up, near)


def test_differences_round_against_us() -> None:
    assert points(Decimal("-0.01234"), "down") == "−1.3"
    assert points(Decimal("-0.01234"), "up") == "−1.2"
    assert points(Decimal("0.05401"), "up") == "5.5"
    assert fixed(Decimal("12345.5"), 1, "up") == "12,345.5"


def test_probability() -> None:
    assert probability(Decimal("0.05")) == "95 %"
    assert probability(Decimal("0.0125")) == "98.75 %"
    assert probability(Fraction(1, 3)) == "66.6666 %"


def test_ledgers_add_up_in_print() -> None:
    rng = random.Random(1)
    for _ in range(200):
        lines = [Decimal(repr(rng.random() * 10)) for _ in range(rng.randrange(1, 8))]
        printed = apportion(lines, sum(lines, Decimal(0)), 3)
        assert printed is not None
        values, total = printed
        assert sum(map(Decimal, values), Decimal(0)) == Decimal(total)
        assert Decimal(total) >= sum(lines, Decimal(0))
    assert apportion([Decimal(1), Decimal(2)], Decimal(4), 3) is None
    assert apportion([Decimal("0.1"), Decimal("0.2")], Decimal("0.3"), places([Decimal("0.1")], 1, 4)) == (
        ["0.1", "0.2"],
        "0.3",
    )


def test_clopper_pearson_is_the_binomial_tail() -> None:
    for correct, n, delta in ((95, 100, 0.05), (1, 10, 0.01), (1900, 2000, 0.05), (10, 10, 0.05)):
        bound = holdout.lower(correct, n, delta)
        tail = 1 - bdtr(correct - 1, n, bound)  # P[Bin(n, bound) >= correct]
        assert tail <= delta
        assert tail == pytest.approx(delta, rel=1e-4)
    assert holdout.lower(0, 10, 0.05) == 0.0
    low, high = holdout.interval(50, 100)
    assert low < 0.5 < high
    assert low == pytest.approx(1 - high, abs=1e-6)


def test_labels_for_is_the_turning_point() -> None:
    labels = holdout.labels_for(0.88, 0.95, 0.05)
    assert labels is not None
    assert holdout.lower(int(0.95 * labels), labels, 0.05) >= 0.88
    assert holdout.labels_for(0.95, 0.95, 0.05) is None
    assert holdout.labels_for(0.0, 0.95, 0.05) is None


def test_about_is_two_digits() -> None:
    assert [_rough(n) for n in (7, 42, 203, 2_850, 699_041)] == ["7", "42", "200", "2,900", "700,000"]


def test_advice_is_enough() -> None:
    target, accuracy, n, bits, delta = 0.6, 0.9, 400, 600.0, 0.05
    advice = advise(target=target, accuracy=accuracy, n=n, bits=bits, delta=delta)
    assert advice is not None
    assert advice.prompts is not None
    assert advice.bits is not None

    def certifies(accuracy: float, n: int, bits: float) -> bool:
        price = bits * math.log(2) + math.log(1 / delta)
        return n * relative_entropy(1 - accuracy, 1 - target) >= price * (1 - 1e-9)

    assert not certifies(accuracy, n, bits)
    assert certifies(accuracy, advice.prompts, bits)
    assert not certifies(accuracy, advice.prompts - 1, bits)
    assert certifies(accuracy, n, advice.bits)
    assert not certifies(accuracy, n, advice.bits + 1)
    assert advice.accuracy is None  # 600 bits at n = 400: even a perfect policy is not certified at .6
    modest = advise(target=0.6, accuracy=0.7, n=400, bits=40.0, delta=delta)
    assert modest is not None
    assert modest.accuracy is not None
    assert certifies(modest.accuracy, 400, 40.0)
    worse = advise(target=0.6, accuracy=0.5, n=400, bits=40.0, delta=delta)
    assert worse is not None
    assert worse.prompts is None


def test_labels_never_overlap() -> None:
    rng = random.Random(3)
    for _ in range(300):
        count = rng.randrange(1, 6)
        labels = [Label(rng.choice([100.0, 100.2, rng.random() * 500]), rng.random() * 80 + 10) for _ in range(count)]
        centres = spread(labels, 0, 500)
        spans = sorted((c - label.width / 2, c + label.width / 2) for label, c in zip(labels, centres, strict=True))
        assert spans[0][0] >= -1e-6
        assert spans[-1][1] <= 500 + 1e-6
        assert all(right <= left + 1e-6 for (_, right), (left, _) in pairwise(spans))
    assert spread([Label(50, 10)], 0, 100) == [50]


@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_charts_stay_inside_their_frame(narrow: bool, value: float) -> None:
    marks = [charts.Mark(k, k, value, "50.0 %", value, "50.0 %", (value, value)) for k in ("base", "lora", "coded")]
    for floor in (charts.Floor(0.0, "0.0 %"), charts.Floor(value, "x", "+1 points", certified=False)):
        for svg in (
            charts.accuracy_chart(marks, floor, "label", narrow=narrow),
            charts.overview_chart([charts.Domain("d", floor, tuple(marks))], "label", narrow=narrow),
        ):
            assert "nan" not in svg
            assert 'width="-' not in svg


def test_the_names_of_the_overview_end_before_its_bars() -> None:
    floor = charts.Floor(0.5, "50.0 %")
    for name in ("Mathematics", "General knowledge", "Mathematics · seed0", "Programming · " + "m" * 64):
        svg = charts.overview_chart([charts.Domain(name, floor, ())], "label", narrow=False)
        shown = re.findall(r'class="name big"[^>]*>([^<]*)<', svg)[0]
        assert text_width(shown, 13) < float(re.findall(r'<rect class="bar sure" x="([0-9.]+)"', svg)[0])
        assert (shown == name) == (len(name) < 64)
        assert shown == name or name.startswith(shown.removesuffix("…"))


def test_charts_of_nothing() -> None:
    for narrow in (False, True):
        assert "</svg>" in charts.bit_chart("", "empty", narrow=narrow)
        assert "</svg>" in charts.integer_chart([], "empty", narrow=narrow)
        assert "</svg>" in charts.integer_chart([0, 0], "zeros", narrow=narrow)
    same = charts.Candidate(0.0, 1.0)
    assert "nan" not in charts.frontier_chart([same, same], same, "same")
    assert "</svg>" in charts.curve([(0, 1.0), (1, 1.0)], "loss", "flat")


def test_text_is_made_visible() -> None:
    assert visible("a\x1b\u202eb\nc") == "a⟨ESC⟩⟨U+202E⟩b\nc"
    assert visible("plain – ünïcode 漢") == "plain – ünïcode 漢"
    assert clip("abc", 2) == ("ab", 1)
    assert markdown("a|b\n`c`") == r"a\|b \`c\`"
    assert markdown("# a - b") == r"\# a - b"
    assert title("text_to_sql") == "Text-to-SQL"
    assert title("") == "Unnamed"
    assert "empty" in specimen("")
