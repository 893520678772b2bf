"""The charts of the report. Labels that would collide are moved apart, so values may coincide."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from bounds_reports.svg import NARROW, WIDE, Canvas, Label, number, spread, text_width


@dataclass(frozen=True)
class Mark:
    """A policy's accuracy on the sample, and on held-out prompts with the interval of a test that size."""

    key: str
    name: str
    value: float
    text: str
    heldout: float | None = None
    heldout_text: str = ""
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Floor:
    """The certified accuracy; `certified` is False for a development run, which is drawn as a draft."""

    value: float
    text: str
    gain_text: str = ""
    certified: bool = True


@dataclass(frozen=True)
class Domain:
    """One row of the overview."""

    name: str
    floor: Floor
    marks: tuple[Mark, ...]


def _axis(canvas: Canvas, x0: float, x1: float, y: float, bottom: float, narrow: bool) -> None:
    for tick in (0, 50, 100) if narrow else (0, 25, 50, 75, 100):
        x = x0 + (x1 - x0) * tick / 100
        canvas.line(x, y + 6, x, bottom, "grid")
        anchor = "start" if tick == 0 else "end" if tick == 100 and narrow else "middle"
        canvas.text(x, y, f"{tick} %" if tick in (0, 100) else str(tick), "tick", anchor)


def _hatch(canvas: Canvas, x: float, top: float, bottom: float, x0: float, cls: str) -> None:
    """Strokes on the guaranteed side of the floor, as a draughtsman marks solid ground."""
    strokes = []
    y = top + 7.0
    while y <= bottom:
        length = min(6.0, x - x0)
        strokes.append(f"M{number(x)} {number(y - 6)}l{number(-length)} {number(length)}")
        y += 7
    canvas.add("path", cls=f"hatch {cls}", d="".join(strokes))


def accuracy_chart(marks: Sequence[Mark], floor: Floor, label: str, *, narrow: bool) -> Markup:
    """Policies from the base to the coded one, and the certified floor through all of them."""
    width = NARROW if narrow else WIDE
    x0, x1 = (2.0, width - 6.0) if narrow else (96.0, width - 196.0)
    columns = (width - 84.0, width - 4.0)
    row, top = (44.0, 40.0) if narrow else (36.0, 36.0)
    bottom = top + row * len(marks)
    height = bottom + (56 if narrow else 40)
    canvas = Canvas(width, height, label, "narrow" if narrow else "wide")
    kind = "sure" if floor.certified else "draft"
    heldout = any(mark.heldout is not None for mark in marks)

    def at(value: float) -> float:
        return x0 + (x1 - x0) * value

    head = 12.0
    if heldout:
        for x, name, cls in ((columns[0], "trained on", "dot"), (columns[1], "held out", "dot hollow")):
            canvas.text(x, head, name, "tick", "end")
            canvas.dot(x - text_width(name, 11) - 6, head - 4, 4, cls)
    _axis(canvas, x0, x1, 32.0 if narrow else head, bottom + (12 if narrow else 0), narrow)
    edge = at(floor.value)
    # On a telephone names and values stand above their tracks, so the floor is drawn track by track.
    bands = [(top + row * i + 18, top + row * i + 42) for i in range(len(marks))] if narrow else [(top - 4, bottom)]
    for band_top, band_bottom in bands:
        tall = band_bottom - band_top
        canvas.add("rect", cls=f"ground {kind}", x=x0, y=band_top, width=max(0.0, edge - x0), height=tall)
    bar_top = bottom + (24 if narrow else 10)
    bar = 20.0
    for band_top, band_bottom in bands:
        canvas.line(edge, band_top, edge, band_bottom, f"floor {kind}")
        _hatch(canvas, edge, band_top, band_bottom, x0, kind)
    canvas.line(edge, bar_top if narrow else bottom, edge, bar_top + bar, f"floor {kind}")
    base = next((mark for mark in marks if mark.key == "base"), None)
    if base is not None and not narrow:
        start = top + row * (marks.index(base) + 0.5)
        canvas.line(at(base.value), start, at(base.value), bar_top + bar, "plumb")
    for i, mark in enumerate(marks):
        middle = top + row * i + (30 if narrow else row / 2)
        x = at(mark.value)
        name_y = middle - 13 if narrow else middle + 4
        canvas.text(0, name_y, mark.name, f"name {mark.key}")
        canvas.text(columns[0], name_y, mark.text, f"value {mark.key}", "end")
        shift = 0.0 if mark.heldout is None else 4.0
        canvas.line(x0, middle - shift, x, middle - shift, f"stem {mark.key}")
        canvas.dot(x, middle - shift, 5.5, f"dot {mark.key}")
        if mark.heldout is not None:
            canvas.text(columns[1], name_y, mark.heldout_text, "value soft", "end")
            if mark.interval:
                low, high = (at(v) for v in mark.interval)
                canvas.line(low, middle + 7, high, middle + 7, f"whisker {mark.key}")
            canvas.dot(at(mark.heldout), middle + 7, 3.5, f"dot hollow {mark.key}")
    canvas.add("rect", cls=f"bar {kind}", x=x0, y=bar_top, width=max(0.0, edge - x0), height=bar)
    if base is not None and floor.value > base.value:
        left = at(base.value)
        canvas.add("rect", cls=f"bar gain {kind}", x=left, y=bar_top, width=edge - left, height=bar)
        if floor.gain_text and text_width(floor.gain_text, 11.5) + 12 < edge - left:
            canvas.text(edge - 8, bar_top + 14, floor.gain_text, "inside", "end")
    name = "Certified" if floor.certified else "Not certified"
    name_y = bar_top - 8 if narrow else bar_top + 15
    canvas.text(0, name_y, name, f"name {kind}")
    canvas.text(columns[0], name_y, floor.text, f"value {kind} strong", "end")
    return canvas.markup()


def _fitting(text: str, size: float, width: float) -> str:
    """The text, or as much of its beginning as fits before an ellipsis."""
    if text_width(text, size) <= width + 0.1:  # a width that was computed from this very text is off by rounding
        return text
    while text and text_width(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text}…"


def overview_chart(domains: Sequence[Domain], label: str, *, narrow: bool) -> Markup:
    """One row per domain: the floor as a bar, base, coded and LoRA as dots with their labels above."""
    width = NARROW if narrow else WIDE
    names = max((text_width(domain.name, 13) for domain in domains), default=0.0)
    x0, x1 = (2.0, width - 6.0) if narrow else (min(max(132.0, names + 12), 260.0), width - 130.0)
    row, top = (86.0, 18.0) if narrow else (58.0, 26.0)
    bottom = top + row * len(domains)
    canvas = Canvas(width, bottom + 4, label, "narrow" if narrow else "wide")
    _axis(canvas, x0, x1, 12.0, bottom, narrow)

    def at(value: float) -> float:
        return x0 + (x1 - x0) * value

    for i, domain in enumerate(domains):
        middle = top + row * i + (66 if narrow else 40)
        kind = "sure" if domain.floor.certified else "draft"
        edge = at(domain.floor.value)
        if narrow:
            canvas.text(0, middle - 43, _fitting(domain.name, 13, width - 76), "name big")
            canvas.text(width - 4, middle - 43, domain.floor.text, f"value {kind} strong", "end")
        else:
            canvas.text(0, middle + 5, _fitting(domain.name, 13, x0 - 12), "name big")
            canvas.text(width - 4, middle + 6, domain.floor.text, f"value {kind} huge", "end")
        canvas.add("rect", cls=f"bar {kind}", x=x0, y=middle - 7, width=max(0.0, edge - x0), height=14)
        base = next((mark for mark in domain.marks if mark.key == "base"), None)
        if base is not None and base.value < domain.floor.value:
            left = at(base.value)
            canvas.add("rect", cls=f"bar gain {kind}", x=left, y=middle - 7, width=edge - left, height=14)
        canvas.line(edge, middle - 12, edge, middle + 12, f"floor {kind}")
        texts = [f"{mark.name} {mark.text}" for mark in domain.marks]
        labels = [Label(at(m.value), text_width(t, 13)) for m, t in zip(domain.marks, texts, strict=True)]
        places = spread(labels, 0, width - 4) if narrow else spread(labels, x0, width - 84)
        for mark, text, place in zip(domain.marks, texts, places, strict=True):
            leader = f"M{number(place)} {number(middle - 20)}L{number(at(mark.value))} {number(middle - 8)}"
            canvas.add("path", cls=f"leader {mark.key}", d=leader)
            canvas.text(place, middle - 24, text, f"direct {mark.key}", "middle")
        for mark in sorted(domain.marks, key=lambda mark: mark.key != "lora"):  # LoRA as a ring, the others on it
            ring = mark.key == "lora"
            canvas.dot(at(mark.value), middle, 7 if ring else 5, f"dot {mark.key}" + (" hollow" if ring else ""))
    return canvas.markup()


def thin(points: Sequence[tuple[float, float]], most: int) -> list[tuple[float, float]]:
    """At most `most` points: means over runs of neighbours."""
    size = max(1, math.ceil(len(points) / most))
    runs = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in run) / len(run), sum(y for _, y in run) / len(run)) for run in runs]


def smooth(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A centred running mean over a tenth of the curve."""
    half = max(1, len(points) // 20)
    windows = [points[max(0, i - half) : i + half + 1] for i in range(len(points))]
    return [(x, sum(y for _, y in run) / len(run)) for (x, _), run in zip(points, windows, strict=True)]


def curve(points: Sequence[tuple[float, float]], quantity: str, label: str) -> Markup:
    """One training curve: the raw values faint, their running mean over them, its ends labelled."""
    width, height, left, right, top, bottom = 240.0, 150.0, 8.0, 196.0, 14.0, 124.0
    canvas = Canvas(width, height, label, "panel")
    points = thin(points, 160)
    mean = smooth(points)
    values = [y for _, y in points]
    low, high = (0.0, 1.0) if quantity == "reward" else (min(0.0, *values), max(values))
    low, high = min(low, *values), max(high, *values)
    first, last = points[0][0], points[-1][0]
    wide, tall = (last - first) or 1.0, (high - low) or 1.0

    def path(line: Sequence[tuple[float, float]]) -> str:
        places = (
            (left + (right - left) * (x - first) / wide, bottom - (bottom - top) * (y - low) / tall) for x, y in line
        )
        return "M" + "L".join(f"{number(x)} {number(y)}" for x, y in places)

    for value in (low, high):
        y = bottom - (bottom - top) * (value - low) / tall
        canvas.line(left, y, right, y, "grid")
        canvas.text(width, y + 4, f"{value:.3g}".replace("-", "−"), "tick", "end")
    canvas.add("path", cls="raw", d=path(points))
    canvas.add("path", cls="mean", d=path(mean))
    y = bottom - (bottom - top) * (mean[-1][1] - low) / tall
    canvas.dot(right, y, 3.5, "dot end")
    canvas.text(left, height - 8, f"step {first:g}", "tick")
    canvas.text(right, height - 8, f"{last:g}", "tick", "end")
    return canvas.markup()


def integer_chart(integers: Sequence[int], label: str, *, narrow: bool) -> Markup:
    """The coded vector: one bar for each integer, up or down from zero."""
    width = NARROW if narrow else 560
    step = min(26.0, (width - 30) / max(1, len(integers)))
    bar = max(0.8, step * 0.72)
    most = max((abs(q) for q in integers), default=0) or 1
    unit = 44 / most
    canvas = Canvas(width, 124, label, "narrow" if narrow else "wide")
    zero = 62.0
    canvas.line(0, zero, step * len(integers), zero, "axis")
    canvas.text(step * len(integers) + 6, zero + 4, "0", "tick")
    for i, q in enumerate(integers):
        if q:
            y = zero - q * unit if q > 0 else zero
            canvas.add("rect", cls="q", x=i * step + (step - bar) / 2, y=y, width=bar, height=abs(q) * unit)
    for sign in (1, -1):
        extreme = max((sign * q for q in integers), default=0)
        if extreme > 0:
            i = next(i for i, q in enumerate(integers) if sign * q == extreme)
            text = f"+{extreme}" if sign > 0 else f"−{extreme}"
            half = text_width(text, 11) / 2
            x = min(max(i * step + step / 2, half), width - half)
            canvas.text(
                x, zero - extreme * unit - 3 if sign > 0 else zero + extreme * unit + 10, text, "tick", "middle"
            )
    return canvas.markup()


def bit_chart(message: str, label: str, *, narrow: bool, most: int = 512) -> Markup:
    """The message itself, a square for each bit, in groups of eight."""
    bits = "".join(f"{int(digit, 16):04b}" for digit in message)[:most]
    size, gap, group = (8.0, 1.6, 4.0) if narrow else (9.0, 1.8, 5.0)
    per_row = 32 if narrow else 48
    stride = size + gap
    rows = math.ceil(len(bits) / per_row) or 1
    width = per_row * stride + (per_row // 8 - 1) * group
    canvas = Canvas(width, rows * (stride + 3), label, "narrow" if narrow else "wide")
    for value in "10":
        squares = []
        for i, bit in enumerate(bits):
            if bit == value:
                row, column = divmod(i, per_row)
                inset = 0 if value == "1" else 0.6
                side = size - 2 * inset
                x, y = column * stride + column // 8 * group + inset, row * (stride + 3) + inset
                squares.append(f"M{number(x)} {number(y)}h{number(side)}v{number(side)}h{number(-side)}z")
        if squares:
            canvas.add("path", cls=f"bit{value}", d="".join(squares))
    return canvas.markup()


@dataclass(frozen=True)
class Candidate:
    """A message that was considered: its bits, and the accuracy that it could expect to have certified."""

    bits: float
    expected: float


def frontier_chart(candidates: Sequence[Candidate], chosen: Candidate, label: str) -> Markup:
    """Every candidate, the frontier of those that no other beats in both respects, and one of them marked."""
    width, height, left, right, top, bottom = 240.0, 150.0, 8.0, 196.0, 14.0, 124.0
    canvas = Canvas(width, height, label, "panel")
    most = max(c.bits for c in candidates) * 1.05 or 1.0
    low, high = min(c.expected for c in candidates), max(c.expected for c in candidates)
    low, high = max(0.0, low - 0.02), min(1.0, high + 0.02)

    def place(bits: float, expected: float) -> tuple[float, float]:
        return left + (right - left) * bits / most, bottom - (bottom - top) * (expected - low) / (high - low)

    for value in (low, high):
        y = place(0, value)[1]
        canvas.line(left, y, right, y, "grid")
        canvas.text(width, y + 4, f"{value * 100:.0f} %", "tick", "end")
    steps: list[str] = []
    reached = -1.0
    for candidate in sorted(candidates, key=lambda c: (c.bits, -c.expected)):
        if candidate.expected > reached:
            x, y = place(candidate.bits, candidate.expected)
            steps.append(f"H{number(x)}V{number(y)}" if steps else f"M{number(x)} {number(y)}")
            reached = candidate.expected
    canvas.add("path", cls="frontier", d="".join(steps) + f"H{number(right)}")
    for candidate in candidates:
        canvas.dot(*place(candidate.bits, candidate.expected), 3, "dot")
    canvas.dot(*place(chosen.bits, chosen.expected), 5, "dot chosen")
    canvas.text(left, height - 8, "0 bits", "tick")
    canvas.text(right, height - 8, f"{most:.0f}", "tick", "end")
    return canvas.markup()
