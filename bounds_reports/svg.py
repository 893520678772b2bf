"""SVG by hand: elements, text widths, and labels that move apart.

Every chart is drawn twice, wide and narrow, so that its letters stay legible on a telephone; the style sheet shows one.
Nothing here needs a script or a font file, and colours come from the page's custom properties by class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from bounds_reports.text import visible

WIDE, NARROW = 760, 344
_WIDE_GLYPHS = set("mwMW%@—≥+−")


@dataclass(frozen=True)
class Label:
    """A label that wants to be centred at `x` and is `width` wide."""

    x: float
    width: float


def spread(labels: Sequence[Label], low: float, high: float, gap: float = 8) -> list[float]:
    """Centres near the wanted ones such that no two labels overlap and all lie within [low, high].

    The order of the wanted places is kept. When there is not room enough, the gap shrinks rather than the labels.
    """
    order = sorted(range(len(labels)), key=lambda i: labels[i].x)
    room = high - low - sum(label.width for label in labels)
    gap = max(0.0, min(gap, room / (len(labels) - 1))) if len(labels) > 1 else gap
    centres = [0.0] * len(labels)
    edge = low
    for i in order:  # push to the right
        half = labels[i].width / 2
        centres[i] = max(labels[i].x, edge + half)
        edge = centres[i] + half + gap
    edge = high
    for i in reversed(order):  # and back from the right edge
        half = labels[i].width / 2
        centres[i] = min(centres[i], edge - half)
        edge = centres[i] - half - gap
    return centres


def text_width(text: str, size: float) -> float:
    """A safe estimate of a label's width in a sans-serif face, in pixels."""
    return sum(0.86 if char in _WIDE_GLYPHS else 0.3 if char in " .,il|'" else 0.6 for char in text) * size


def number(value: float) -> str:
    """A coordinate, short and always written the same way."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


class Canvas:
    """An SVG picture that is built element by element."""

    def __init__(self, width: float, height: float, label: str, kind: str) -> None:
        self.width, self.height, self.label, self.kind = width, height, visible(label), kind
        self.parts: list[Markup] = []

    def add(self, tag: str, text: str | None = None, **attributes: str | float) -> None:
        """Append an element; `cls` stands for class, and underscores for hyphens."""
        written = Markup("").join(
            Markup(' {}="{}"').format(
                "class" if key == "cls" else key.replace("_", "-"),
                value if isinstance(value, str) else number(value),
            )
            for key, value in attributes.items()
        )
        body = Markup("/>") if text is None else Markup(">{}</{}>").format(visible(text), Markup(tag))
        self.parts.append(Markup("<{}{}").format(Markup(tag), written) + body)

    def line(self, x1: float, y1: float, x2: float, y2: float, cls: str) -> None:
        """A straight line."""
        self.add("line", cls=cls, x1=x1, y1=y1, x2=x2, y2=y2)

    def text(self, x: float, y: float, text: str, cls: str, anchor: str = "start") -> None:
        """A label on the baseline y."""
        self.add("text", text, cls=cls, x=x, y=y, text_anchor=anchor)

    def dot(self, x: float, y: float, r: float, cls: str) -> None:
        """A filled or hollow circle, as its class says."""
        self.add("circle", cls=cls, cx=x, cy=y, r=r)

    def markup(self) -> Markup:
        """The finished element."""
        head = Markup(
            '<svg class="chart {0}" viewBox="0 0 {1} {2}" width="{1}" height="{2}" role="img" aria-label="{3}">'
            "<title>{3}</title>"
        ).format(self.kind, number(self.width), number(self.height), self.label)
        return head + Markup("").join(self.parts) + Markup("</svg>")

    def file(self, style: str, margin: float = 16) -> Markup:
        """The element as an SVG file of its own, with a margin and a style sheet, which is ours and never a user's."""
        head = Markup('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}">').format(
            number(self.width + 2 * margin), number(self.height + 2 * margin)
        )
        shift = Markup('<g transform="translate({0} {0})">').format(number(margin))
        return (
            head
            + Markup("<style>")
            + Markup(style)
            + Markup("</style>")
            + shift
            + self.markup()
            + Markup("</g></svg>\n")
        )


def both(draw: Callable[..., Markup], *arguments: object) -> Markup:
    """A chart in its wide and its narrow form."""
    return Markup("").join(draw(*arguments, narrow=narrow) for narrow in (False, True))
