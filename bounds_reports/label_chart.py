"""The chart of a plan for labels: certified accuracy to be expected, by how many labels are kept out of training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from bounds_reports.svg import WIDE, Canvas, Label, number, spread, text_width


@dataclass(frozen=True)
class HoldOutCurve:
    """Hold-outs of one policy: (labels held out, expected certified accuracy, assumed), and the one that is planned.

    `key` is a policy's class in the style sheet. What is assumed, because no pilot knows it, is drawn dashed.
    """

    key: str
    name: str
    points: tuple[tuple[int, float, bool], ...]
    chosen: tuple[int, float]


@dataclass(frozen=True)
class PriorRange:
    """A data-dependent prior, counted on so many labels: what it may certify, and will if its bits are known."""

    counted: int
    low: float
    high: float
    planned: float | None


def label_chart(
    n: int, everything: float, curves: Sequence[HoldOutCurve], prior: PriorRange, title: str, label: str
) -> Markup:
    """A whole SVG file: certify on all as a level, hold-outs as curves, the prior as a range. Accuracies are fractions.

    Curves are cut where they fall far below everything that is planned.
    """
    width, height, left, right, top, bottom = float(WIDE), 400.0, 56.0, WIDE - 226.0, 58.0, 332.0
    planned = [everything, prior.low, prior.high, *(curve.chosen[1] for curve in curves)]
    low = max(0.0, math.floor(20 * (min(planned) - 0.02)) / 20)
    tops = [*planned, *(value for curve in curves for _, value, _ in curve.points)]
    high = min(1.0, max(math.ceil(20 * (max(tops) + 0.01)) / 20, low + 0.05))
    canvas = Canvas(width, height, label, "wide")

    def place(labels: float, value: float) -> tuple[float, float]:
        return left + (right - left) * labels / n, bottom - (bottom - top) * (value - low) / (high - low)

    canvas.text(0, 18, title, "big")
    canvas.text(0, 38, "Certified accuracy to be expected, per cent", "tick")
    ticks = round(20 * (high - low))
    for i in range(0, ticks + 1, 1 if ticks <= 8 else 2 if ticks <= 12 else 4):
        y = place(0, low + i / 20)[1]
        canvas.line(left, y, right, y, "grid")
        canvas.text(left - 10, y + 4, f"{100 * (low + i / 20):.0f}", "tick", "end")
    for i in range(5):
        x = place(n * i / 4, low)[0]
        canvas.line(x, bottom, x, bottom + 5, "axis")
        canvas.text(x, bottom + 20, f"{round(n * i / 4):,}", "tick", "middle")
    canvas.text(
        (left + right) / 2,
        bottom + 42,
        "labels that are not trained on (hold-out), or only counted (prior)",
        "tick",
        "middle",
    )

    ends: list[tuple[float, str, str]] = []
    x, y = place(0, everything)
    canvas.line(x, y, right, y, "level")
    canvas.dot(x, y, 5.5, "dot all")
    ends.append((y, f"certify on all {n:,}", "all"))
    x, floor = place(prior.counted, prior.low)
    ceiling = place(prior.counted, prior.high)[1]
    canvas.line(x, floor, x, ceiling, "range")
    for y in (floor, ceiling):
        canvas.line(x - 6, y, x + 6, y, "range")
    if prior.planned is not None:
        canvas.dot(x, place(0, prior.planned)[1], 5.5, "dot prior")
    for curve in curves:
        shown = [point for point in curve.points if point[1] >= low]
        for before, after in pairwise(shown):
            (x1, y1), (x2, y2) = place(*before[:2]), place(*after[:2])
            canvas.line(x1, y1, x2, y2, f"curve {curve.key}" + (" assumed" if before[2] or after[2] else ""))
        canvas.dot(*place(*curve.chosen), 5.5, f"dot {curve.key}")
        if shown:
            ends.append((place(*shown[-1][:2])[1], f"hold-out, {curve.name}", curve.key))
    # Labels stand beside the ends of their lines, moved apart where these are close.
    places = spread([Label(y, 17) for y, _, _ in ends], top, bottom, gap=0)
    for (y, text, key), middle in zip(ends, places, strict=True):
        canvas.add("path", cls="leader", d=f"M{number(right + 2)} {number(y)}L{number(right + 12)} {number(middle)}")
        canvas.text(right + 16, middle + 4, text, f"end {key}")
    text = "prior on the others" if prior.planned is not None else "prior: from useless to ideal"
    above = ceiling - 9 if ceiling - 20 > top else floor + 17
    half = text_width(text, 12) / 2
    canvas.text(min(max(x, left + half), right - half), above, text, "end prior", "middle")
    if any(assumed for curve in curves for _, _, assumed in curve.points):
        canvas.text(
            0,
            height - 2,
            "Dashed: no pilot was trained on so few labels; the accuracy of the nearest is assumed.",
            "tick",
        )
    return canvas.file(_STYLE)


# Colours as in the report's style sheet, for light and dark.
_STYLE = """
svg { --paper: #fbfaf6; --ink: #16191c; --soft: #5d6268; --grid: #e6e2d8; --sure: #0b6b53; --lora: #5a4fcf;
  --base: #766a5c; background: var(--paper);
  font-family: Inter, system-ui, "Noto Sans", "Helvetica Neue", Arial, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --paper: #121416; --ink: #ece9e1; --soft: #a2a49f; --grid: #2a2e31;
  --sure: #57cba8; --lora: #a59dff; --base: #a89c8d; } }
text { fill: var(--ink); font-size: 12px; paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
.tick { fill: var(--soft); font-size: 11px; } .big { font-size: 14px; font-weight: 600; }
.grid { stroke: var(--grid); } .axis { stroke: var(--soft); } .leader { fill: none; stroke: var(--soft); opacity: .7; }
.all { --c: var(--sure); } .coded { --c: var(--ink); } .lora { --c: var(--lora); } .prior { --c: var(--base); }
.dot { fill: var(--c); stroke: var(--paper); stroke-width: 1.5; } .end { fill: var(--c); }
.level { stroke: var(--sure); stroke-width: 2; } .range { stroke: var(--base); stroke-width: 2; }
.curve { stroke: var(--c); stroke-width: 2; stroke-linecap: round; }
.curve.assumed { stroke-dasharray: 2 5; opacity: .75; }
"""
