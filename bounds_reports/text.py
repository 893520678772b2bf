"""Text that others wrote, made safe to look at: nothing hidden, nothing reordered, nothing cut without saying so."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from markupsafe import Markup

_ODD = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|~&]|^[#+=-]|(?<=^\d)[.)])")
_C0 = (
    "NUL SOH STX ETX EOT ENQ ACK BEL BS TAB LF VT FF CR SO SI "
    "DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"
)
_CONTROLS = _C0.split()
_NAMES = {
    "mathematics": "Mathematics",
    "programming": "Programming",
    "knowledge": "General knowledge",
    "text_to_sql": "Text-to-SQL",
    "rlvr": "RLVR with LoRA",
    "distill": "On-policy distillation",
    "tinylora": "RLVR in TinyLoRA space",
    "quantize": "Quantization",
}


def spell(char: str) -> str | None:
    """How an invisible or reordering character is written out; None for a character that shows itself."""
    if char == "\N{SOFT HYPHEN}" or unicodedata.category(char) in _ODD:
        code = ord(char)
        return f"⟨{_CONTROLS[code]}⟩" if code < len(_CONTROLS) else "⟨DEL⟩" if code == 0x7F else f"⟨U+{code:04X}⟩"
    return None


def visible(text: str) -> str:
    """`text` with control, format, bidirectional, surrogate and private characters spelled out; newlines stay."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char == "\n" else spell(char) or char for char in text)


def clip(text: str, limit: int) -> tuple[str, int]:
    """The first `limit` characters and the number of characters left out."""
    return (text, 0) if len(text) <= limit else (text[:limit], len(text) - limit)


def _pieces(text: str) -> Iterator[Markup]:
    for char in text:
        if char == "\n":
            yield Markup('<span class="nl" title="new line">\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}</span>\n')
        elif (spelled := spell(char)) is not None:
            name = unicodedata.name(char, f"U+{ord(char):04X}").lower()
            yield Markup('<span class="odd" title="{}">{}</span>').format(name, spelled)
        else:
            yield Markup.escape(char)


def specimen(text: str, limit: int = 280) -> Markup:
    """A completion or prompt as HTML: escaped, odd characters marked, long text cut with a count of what is missing."""
    shown, missing = clip(text, limit)
    if not text:
        return Markup('<span class="odd">empty</span>')
    body = Markup("").join(_pieces(shown))
    return body + Markup(' <span class="cut">… {} more characters</span>').format(f"{missing:,}") if missing else body


def markdown(text: str) -> str:
    """`text` as inert Markdown on one line."""
    return _MARKDOWN.sub(r"\\\1", visible(" ".join(text.split())))


def title(name: str) -> str:
    """A domain's or stage's name for people: title("text_to_sql") is "Text-to-SQL"."""
    known = _NAMES.get(name)
    plain = visible(name).replace("_", " ").strip()
    return known or plain[:1].upper() + plain[1:] or "Unnamed"


def slug(name: str) -> str:
    """`name` as an HTML id."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "domain"
