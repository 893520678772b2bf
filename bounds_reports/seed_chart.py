"""The chart of the comparison: for each claim base, certified, coded and LoRA, every training seed a point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from bounds_reports.svg import NARROW, WIDE, Canvas

_TRACK, _HEAD, _FOOT = 18.0, 26.0, 14.0


@dataclass(frozen=True)
class Track:
    """One policy, or the certified accuracy, over the seeds; `key` is the style's class."""

    key: str
    name: str
    values: tuple[float, ...]
    median: float
    text: str


@dataclass(frozen=True)
class Band:
    """One claim."""

    name: str
    tracks: tuple[Track, ...]


def seed_chart(bands: Sequence[Band], label: str, *, narrow: bool) -> Markup:
    """Tracks on a common axis from 0 to 100 %: a stem to the median, a ring for each seed."""
    width = NARROW if narrow else WIDE
    x0, x1 = (76.0, width - 62.0) if narrow else (96.0, width - 76.0)
    height = 18 + sum(_HEAD + _TRACK * len(band.tracks) + _FOOT for band in bands)
    canvas = Canvas(width, height, label, "narrow" if narrow else "wide")

    def at(value: float) -> float:
        return x0 + (x1 - x0) * value

    for tick in (0, 50, 100) if narrow else (0, 25, 50, 75, 100):
        canvas.line(at(tick / 100), 18, at(tick / 100), height - _FOOT, "grid")
        canvas.text(at(tick / 100), 12, f"{tick} %" if tick in (0, 100) else str(tick), "tick", "middle")
    top = 18.0
    for band in bands:
        canvas.text(0, top + 18, band.name, "name big")
        for i, track in enumerate(band.tracks):
            y = top + _HEAD + _TRACK * (i + 0.5)
            floor = track.key in ("sure", "draft")
            canvas.text(0, y + 4, track.name, f"direct {track.key}")
            canvas.text(width - 4, y + 4, track.text, f"value {track.key}" + (" strong" if floor else ""), "end")
            x = at(track.median)
            if floor:
                canvas.add("rect", cls=f"bar {track.key}", x=x0, y=y - 5, width=max(0.0, x - x0), height=10)
                canvas.line(x, y - 8, x, y + 8, f"floor {track.key}")
            else:
                canvas.line(x0, y, x, y, f"stem {track.key}")
                canvas.line(x, y - 6, x, y + 6, f"stem {track.key}")
            for value in track.values:
                canvas.dot(at(value), y, 3.6, f"dot hollow {track.key}")
        top += _HEAD + _TRACK * len(band.tracks) + _FOOT
    return canvas.markup()
