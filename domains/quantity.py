"""Numbers as people write them, read exactly.

values("$1,250.50") == {Fraction(2501, 2)}
values("35 percent") == {Fraction(35), Fraction(7, 20)}       # a percentage is both
values("3 \\times 10^{-7}") == {Fraction(3, 10**7)}           # and never equal to 4e-7
[q.text for q in quantities("2 - 5 = -3")] == ["2", "5", "-3"]
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

_SPACES = "\u00a0\u2009\u202f\u2007"
_REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\[dtc]?frac\s*(\d)\s*(\d)", r"(\1)/(\2)"),
        (r"\\[dtc]?frac\s*\{\s*(-?[\d.,]+)\s*\}\s*\{\s*(-?[\d.,]+)\s*\}", r"(\1)/(\2)"),
        (r"(?<=\d)\(([\d.,-]+)\)/\(([\d.,-]+)\)", r" (\1)/(\2)"),  # 3\frac{1}{2}
        (r"\(([\d.,]+)\)/\(([\d.,]+)\)", r"\1/\2"),
        (r"\\(?:text|mathrm|mathbf|textbf|textit|mbox|operatorname)\s*\{([^{}]*)\}", r" \1 "),
        (r"\^\s*\{?\s*\\circ\s*\}?|°|\\degree", " degrees "),
        (r"\\(?:left|right|displaystyle|quad|qquad)(?![a-zA-Z])|\\[,;:!> ]|~|\{,\}(?!\d)", " "),
        (r"(?<=\d)\{,\}(?=\d)", ","),
        (r"\\([$%#&])", r"\1"),
        (r"\*\*|__|`|\$(?=\s*-?\s*\D)|(?<=[\d%)])\$", ""),
        (r"[−‒–﹣－](?=\s*[\d.$€£])", "-"),
        (r"(?<=\d)\s*(?:\\times|\\cdot|×|·|\*|x)\s*10\s*(?:\^|\*\*)\s*\{?\s*([+-]?\d+)\s*\}?", r"e\1"),
        (rf"(?<=\d)[{_SPACES}](?=\d{{3}}(?!\d))", ","),
        (r"(?<=\d) (?=\d{3},|\d{3} \d{3}(?!\d))", ","),
        (r"(?<=\d),\s(?=\d{3}(?!\d)(?!\s*,\s*\d))(?<=\d,\s)", ", "),
    )
)
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"(?<![\w^.])(?P<whole>{_DIGITS})(?:[eE](?P<power>[+-]?\d{{1,4}}))?(?!\d|(?:st|nd|rd|th)\b)"
    rf"(?:\s*/\s*(?P<under>{_DIGITS})(?![\d/]))?(?:\s+(?P<top>\d+)\s*/\s*(?P<bottom>\d+)(?![\d/]))?"
    r"(?:\s*(?P<scale>thousand|million|billion|trillion)s?\b)?(?:\s*(?P<percent>%|percent\b|per cent\b|pct\b))?",
    re.IGNORECASE,
)
_SIGN = re.compile(
    r"(?:^|[^\w)\]}%!.\s])\s*(?P<sign>[-+])\s*[$€£]?\s*$|(?:^|\s)(?P<word>minus|negative)\s+[$€£]?$|(?P<tight>\s[-+])[$€£]?$"
)
# Letters that stand for a variable, or for the imaginary unit, rather than for a unit of measure.
VARIABLE = r"(?:[abxyz]{2,3}|[abxyznijktrpquvwe])(?![a-zA-Z])"
_VARIABLE = re.compile(rf"{VARIABLE}|\s+{VARIABLE}[\s.^\d{{}}]*$")
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_WORDS = {word: value for value, word in enumerate(_UNITS)} | {word: 20 + 10 * i for i, word in enumerate(_TENS)}
_SPOKEN = re.compile(
    r"\b(?:{words})(?:(?:\s+and\s+|[\s-]+)(?:{words}))*\b".format(words="|".join([*_WORDS, "hundred", *_SCALES])),
    re.IGNORECASE,
)
_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_SUBSCRIPT = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")


class Quantity(NamedTuple):
    start: int
    end: int
    text: str
    values: frozenset[Fraction]


def readable(text: str) -> str:
    """The text as it is seen: without characters that have no width, with ½ as 1/2, 4² as 4^2 and 4₂ as 4_2."""
    if text.isascii():
        return text
    text = re.sub("[⁰¹²³⁴-⁹⁻]+", lambda match: "^" + match[0].translate(_SUPERSCRIPT), text)
    text = re.sub("[₀-₉]+", lambda match: "_" + match[0].translate(_SUBSCRIPT), text)
    text = re.sub(
        "[¼-¾⅐-⅞]", lambda match: " " + unicodedata.normalize("NFKC", match[0]).replace("\u2044", "/") + " ", text
    )
    return "".join(char for char in text if unicodedata.category(char) not in ("Cf", "Mn", "Me"))


def plain(text: str) -> str:
    """The text with TeX, markdown and typographic signs around numbers rewritten in ASCII."""
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    return text


def quantities(text: str) -> list[Quantity]:
    """Every number in the text, with its sign, in order. Exponents, indices and digits inside words are not numbers.

    A number that is out of all bounds, or a division that was not carried out, is listed without a value.
    """
    found = []
    for match in _NUMBER.finditer(text):
        start, negative = _signed(text, match.start())
        exact = _exact(match)
        both: set[Fraction] = set()
        if exact is not None:
            exact = -exact if negative else exact
            both = {exact, exact / 100} if match["percent"] else {exact}
        found.append(Quantity(start, match.end(), text[start : match.end()].strip(), frozenset(both)))
    return found


def values(text: str) -> frozenset[Fraction]:
    """What a text that is one quantity, with its currency and unit, may stand for; empty for any other text."""
    text = plain(text).strip().rstrip(".")
    found = quantities(text)
    if len(found) == 1:
        before, after = text[: found[0].start], text[found[0].end :]
        if _VARIABLE.match(after):  # 2x is no quantity of x
            return frozenset()
        if re.fullmatch(r"[\s$€£(]*", before) and re.fullmatch(r"[\s$)]*(?:[a-zA-Z][\w\s./^²³-]*)?", after):
            return found[0].values
    return frozenset() if found else number_word(text) if _SPOKEN.fullmatch(text) else frozenset()


def equal(one: frozenset[Fraction], other: frozenset[Fraction]) -> bool:
    """Equal as numbers: whole numbers exactly, others up to the last digits of a double."""
    return any(
        a == b or (a.denominator * b.denominator != 1 and abs(a - b) <= abs(b) * Fraction(1, 10**12))
        for a in one
        for b in other
    )


def number_word(text: str) -> frozenset[Fraction]:
    """The value of a text that says exactly one number in words, "forty-two" as in "the answer is forty-two"."""
    found = {_spoken(match[0]) for match in _SPOKEN.finditer(text)}
    return frozenset(found) if len(found) == 1 else frozenset()


def _spoken(words: str) -> Fraction:
    total = part = 0
    for word in re.split(r"[\s-]+", words.lower()):
        if word == "hundred":
            part = max(part, 1) * 100
        elif word in _SCALES:
            total, part = total + max(part, 1) * _SCALES[word], 0
        elif word != "and":
            part += _WORDS[word]
    return Fraction(total + part)


def _exact(match: re.Match[str]) -> Fraction | None:
    if len(match[0]) > 400:
        return None
    value = _read(match["whole"])
    if match["power"]:
        power = int(match["power"])
        if abs(power) > 400:
            return None
        value *= Fraction(10) ** power
    if match["under"]:
        under = _read(match["under"])
        if not under:
            return None
        value /= under
        if value.denominator == 1 and under != 1:
            return None  # a division that was not carried out
    if match["top"]:
        if not int(match["bottom"]):
            return None
        value += Fraction(int(match["top"]), int(match["bottom"]))
    return value * _SCALES[match["scale"].lower()] if match["scale"] else value


def _read(digits: str) -> Fraction:
    return Fraction(digits.replace(",", ""))


def _signed(text: str, start: int) -> tuple[int, bool]:
    """Where the number starts with its sign, and whether it is negative. A minus after an operand subtracts instead."""
    before = text[max(0, start - 24) : start]
    match = _SIGN.search(before)
    if not match:
        return start, False
    if match["tight"]:  # "is -3" but not "5 -3": a word or nothing stands before
        operand = before[: match.start("tight")].rstrip()[-1:]
        if operand.isdigit() or operand in set(")]}%"):
            return start, False
        return start, "-" in match["tight"]
    if match["word"]:
        earlier = before[: match.start("word")].rstrip()[-1:]
        return start, not (earlier.isdigit() and match["word"] == "minus")
    return start - (len(before) - match.start("sign")), match["sign"] == "-"
