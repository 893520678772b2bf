"""General knowledge: multiple choice, answered with a letter however it is dressed, or with the text of an option.

    item = Item(prompt="What pet does Ann have? A) crab B) goat C) newt\\nAnswer:", gold="C")
    verify(" C", item)                                        # RIGHT; so are "(c) newt", "**Answer: C**" and "a newt"
    verify("The answer is B. No, wait: C.", item)             # RIGHT: the first answer was taken back
    verify("B or C", item)                                    # WRONG: several answers
    verify("A newt cannot be excluded.", item)                # WRONG or UNPARSEABLE, never a letter A
    verify(item.prompt, item)                                 # UNPARSEABLE: to repeat the question is no answer

Options are read from the prompt ("A) cat B) dog", "(A) cat", one per line, or numbered 1 to n). A gold that is no
label is compared as text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from domains.base import GoldError, Item, Population, Reason, Verdict
from domains.registry import generated_populations
from domains.text import boxed, retracts, tagged_answer, visible

LETTERS = "ABCDEFGHIJ"
_MAX_TEXT = 4_000  # characters; of longer answers the beginning and the end are read
_MARK = re.compile(r"(?<![\w'])\(?([A-J]|\d)[).:](?=\s|\w)\s*")
_LABEL = r"(?:option|choice|letter|answer)?\s{0,8}[\"'(\[*_`$]{0,8}([A-Ja-j]|[1-9])(?![\w'’])[\"')\]*_`$]{0,8}"
# A label standing by itself: a capital (or a bracketed or starred letter), or a number in brackets.
_BARE = re.compile(r"(?<![\w'’\-])(?:\(([A-Ja-j]|[1-9])\)|\[([A-Ja-j])\]|([A-J])(?![\w'’]|-\w|\+\+|#))")
# Words that make a letter behind them a name: "vitamin C" is no option.
_NAMED = re.compile(
    r"\b(?:vitamin|plan|hepatitis|type|group|class|grade|figure|table|section|part|team|row|column|model|step|line|"
    r"appendix|chapter|language|disc|side|blood|drug|factor|case|point|phase|level|size|note|key|string|exhibit)\s+$",
    re.IGNORECASE,
)
_OPTION_AND_LABEL = re.compile(r"(.+?)[\s:,-]*[(\[]([A-Ja-j])[)\]]\W*", re.DOTALL)
_CUE = re.compile(
    r"(?:\banswer\b(?:\s+(?:is|would be|must be|should be|has to be)\b)?(?:\s+(?:clearly|definitely|therefore|thus))?|"
    r"\b(?:option|choice|pick|one)\s+is\b|"
    r"\bi(?:'d|'ll|\s+would|\s+will)?\s+(?:choose|pick|select|go with|say|answer)\b|"
    r"\b(?:choose|select|pick)\b|\bgo(?:ing)?\s+with\b|\b(?:it|this)\s+(?:is|must be)\b|\bit's\b)[\s:=*_`\"-]*",
    re.IGNORECASE,
)
_ASSERTS = re.compile(
    r"(?<![\w'’])" + _LABEL + r"\s+(?:is|must be|would be)\s+(?:the\s+)?(?:correct|right|best|true|answer)\b",
    re.IGNORECASE,
)
_REJECTED_AFTER = re.compile(
    r"^[\"')\]*_`.:,\s]*(?:[\w\s]{0,40}?)?\b(?:(?:is|are|was|seems?|looks?|would be)\s+(?:not|n't|wrong|incorrect|"
    r"excluded|ruled out|eliminated|false|a\s+\w*\s*wrong|a\s+(?:frequent|common|tempting|typical))|"
    r"isn't|aren't|can(?:not)?\s+be\s+(?:excluded|ruled out|eliminated|correct|right)|"
    r"can't\s+be|cannot|(?:does|do)\s+not|doesn't|don't)",
    re.IGNORECASE,
)
_REJECTED_BEFORE = re.compile(
    r"(?:\bnot|n't|\brather than|\binstead of|\bunlike|\bexcept|\bexclud\w+|\bneither|"
    r"\bnor|\b(?:any|every)thing but|\ball but|\beliminat\w+|\brul\w+ out)\s+"
    r"(?:(?:option|choice|answer|be|is|the|a|an)\s+)*[\"'(\[*_`]*$",
    re.IGNORECASE,
)
_REPLACES = re.compile(
    r"\b(?:wait|no,|no\.|actually|scratch that|sorry|correction|i mean|on second thought)", re.IGNORECASE
)
_EMPTY_WORDS = re.compile(r"\b(?:a|an|the)\b|[^\w\s+\-/%.]|_")
_TEX = re.compile(r"\\(?:text|mathrm|mathbf|textbf|mathit)\s*\{([^{}]*)\}")


class Pick(NamedTuple):
    start: int
    end: int
    option: str  # an index as text, or the normalised text of an answer that is no option


class Options(NamedTuple):
    labels: str  # as displayed: "ABCDE" or "1234"; "" when the prompt lists none
    texts: tuple[str, ...]


class Knowledge:
    name = "knowledge"
    version = "knowledge/2"

    def __init__(self, data_dir: Path | None = None) -> None:
        self._data_dir = data_dir

    def populations(self) -> Mapping[str, Population]:
        from domains.data import knowledge

        return generated_populations(self.name) | knowledge.populations(self._data_dir)

    def verify(self, completion: str, item: Item) -> Verdict:
        options = read_options(item.prompt)
        gold = _gold(item, options)
        text = _without_question(_undress(completion), item.prompt, options)
        if not text:
            return Verdict.loss(Reason.UNPARSEABLE, "no answer")
        if gold is None:
            right = normal(text) == normal(item.gold) or normal(_after_cue(text)) == normal(item.gold)
            return Verdict.right(item.gold) if right else Verdict.loss(Reason.WRONG, text[:80])
        picks = find_picks(text, options)
        if not picks:
            return Verdict.loss(Reason.UNPARSEABLE, f"no option in {text[:60]!r}")
        final = _settle(picks, text)
        if final is None:
            return Verdict.loss(Reason.WRONG, "several answers: " + ", ".join(sorted({p.option for p in picks})))
        label = LETTERS[int(final)]
        return Verdict.right(label) if final == gold else Verdict.loss(Reason.WRONG, label)

    def close(self) -> None:
        """No workers."""


@lru_cache(maxsize=4096)
def read_options(prompt: str) -> Options:
    """The last list of options in a prompt: earlier ones belong to examples."""
    marks = list(_MARK.finditer(prompt))
    for first in range(len(marks) - 1, -1, -1):
        if marks[first][1] not in ("A", "1"):
            continue
        alphabet = LETTERS if marks[first][1] == "A" else "123456789"
        found = [marks[first]]
        for mark in marks[first + 1 :]:
            if len(found) < len(alphabet) and mark[1] == alphabet[len(found)]:
                found.append(mark)
        if len(found) >= 2:
            ends = [mark.start() for mark in found[1:]]
            newline = prompt.find("\n", found[-1].end())
            ends.append(newline if newline >= 0 else len(prompt))
            texts = tuple(prompt[m.end() : end].strip(" \t\n;,") for m, end in zip(found, ends, strict=True))
            return Options(alphabet[: len(found)], texts)
    return Options("", ())


def _without_question(text: str, prompt: str, options: Options) -> str:
    """The text without what it only repeats: the prompt, or its question and the whole list of its options."""
    text = text.replace(prompt.strip(), " ").strip()
    if len(text) < sum(map(len, options.texts)):  # too short to hold the list
        return text
    pattern = _listing(options)
    found, asked = (pattern.search(text), pattern.search(prompt)) if pattern else (None, None)
    if found is None:
        return text
    question = prompt[: asked.start()].strip() if asked else ""
    head = text[: found.start()]
    return f"{head.replace(question, ' ') if question else head}\n{text[found.end() :]}".strip()


@lru_cache(maxsize=4096)
def _listing(options: Options) -> re.Pattern[str] | None:
    """What a list of these options looks like."""
    if len(options.labels) < 2:
        return None
    pairs = zip(options.labels, options.texts, strict=True)
    items = [rf"\(?{label}\s{{0,3}}[).:\-]?\s{{0,3}}{re.escape(text.rstrip('.'))}" for label, text in pairs]
    return re.compile(r"(?<!\w)" + r"[\s.,;]{0,8}".join(items) + r"(?!\w)", re.IGNORECASE)


def normal(text: str) -> str:
    """Text for comparison: lower case, no articles, no punctuation around words, single spaces."""
    return " ".join(_EMPTY_WORDS.sub(" ", text.lower()).split()).strip(" .")


def find_picks(text: str, options: Options) -> list[Pick]:
    """Every answer the text gives, in order; options it only mentions to reject them are left out."""
    whole = _whole(text, options)
    if whole:
        return whole
    stated = _stated(text, options)
    bare = [
        Pick(m.start(), m.end(), index)
        for m in _BARE.finditer(text)
        if (index := _index(next(filter(None, m.groups())), options)) is not None
        and not _is_word(text, m)
        and not _NAMED.search(text[: m.start()])
    ]
    bare = [pick for pick in bare if not _rejected(text, pick)]
    if stated:  # other letters are talk about the options, unless they replace the answer ("No, wait: C.")
        return stated + [p for p in bare if p > stated[-1] and _REPLACES.search(text[stated[-1].end : p.start])]
    return bare or [pick for pick in _by_text(text, options) if not _rejected(text, pick)]


def _gold(item: Item, options: Options) -> str | None:
    """The index of the gold option as text, or None for a gold that is text."""
    gold = item.gold.strip()
    if not gold:
        raise GoldError(f"item {item.id or item.digest[:12]} has no gold")
    index = _index(gold.strip("().").upper(), options) if len(gold.strip("().")) == 1 else None
    if index is not None:
        return index
    texts = [normal(text) for text in options.texts]
    return str(texts.index(normal(gold))) if normal(gold) in texts else None


def _index(label: str, options: Options) -> str | None:
    """The position of a label: a letter counts from A even where the options are numbered, as datasets mix the two."""
    label = label.upper()
    if label in options.labels and options.labels:
        return str(options.labels.index(label))
    place = LETTERS.find(label)
    limit = len(options.labels) or len(LETTERS)
    return str(place) if 0 <= place < limit else None


def _undress(completion: str) -> str:
    """The answer without reasoning, tags, boxes and TeX; empty when there is none."""
    text = visible(completion)
    if len(text) > _MAX_TEXT:
        text = f"{text[: _MAX_TEXT // 2]}\n{text[-_MAX_TEXT // 2 :]}"
    tagged = tagged_answer(text)
    if tagged is not None:
        text = tagged
    boxes = boxed(text)
    if boxes:
        distinct = {normal(_TEX.sub(r"\1", box.text)) for box in boxes}
        adjacent = any(not retracts(text[a.end : b.start]) for a, b in pairwise(boxes))
        text = " or ".join(box.text for box in boxes) if len(distinct) > 1 and adjacent else boxes[-1].text
    return _TEX.sub(r"\1", text).replace("**", "").strip()


def _whole(text: str, options: Options) -> list[Pick]:
    """The text that is nothing but a label, a label with an option (both, if they differ), or an option."""
    match = re.fullmatch(_LABEL + r"[\s.:,)\-]*(.*?)", text, re.IGNORECASE | re.DOTALL)
    index = _index(match[1], options) if match else None
    if match and index is not None and not (match[1] in "aA" and re.match(r"\s+\w", text[match.end(1) :])):  # "a newt"
        rest = normal(match[2])
        if not rest:
            return [Pick(0, len(text), index)]
        named = [str(i) for i, option in enumerate(options.texts) if rest == normal(option)]
        if named:
            return [Pick(0, match.end(1), index)] + [
                Pick(match.start(2), len(text), i) for i in named if index not in named
            ]
    behind = _OPTION_AND_LABEL.fullmatch(text)  # goat (C)
    if behind and (index := _index(behind[2], options)) is not None:
        named = [str(i) for i, option in enumerate(options.texts) if normal(option) == normal(behind[1])]
        if named:
            other = [Pick(behind.start(1), behind.end(1), i) for i in named if index not in named]
            return [*other, Pick(behind.start(2), behind.end(2), index)]
    same = [i for i, option in enumerate(options.texts) if normal(option) and normal(option) == normal(text)]
    return [Pick(0, len(text), str(same[0]))] if len(same) == 1 else []


def _stated(text: str, options: Options) -> list[Pick]:
    """Answers that the text announces: "the answer is C", "C is correct", "I'd go with newt"."""
    picks = []
    for cue in _CUE.finditer(text):
        if _negated(text[: cue.start()]) or re.match(r"\s*not\b", text[cue.end() :], re.IGNORECASE):
            continue
        match = re.compile(_LABEL, re.IGNORECASE).match(text, cue.end())
        index = _index(match[1], options) if match else None
        if match and index is not None and not _is_word(text, match):
            picks.append(Pick(match.start(1), match.end(1), index))
            picks += _joined(text, match.end(), options)
            continue
        sentence = re.match(r"[^\n.;]*", text[cue.end() :])
        assert sentence is not None
        near = [p for p in _by_text(sentence[0], options) if not _rejected(sentence[0], p)]
        picks += [Pick(p.start + cue.end(), p.end + cue.end(), p.option) for p in near]
    for match in _ASSERTS.finditer(text):
        index = _index(match[1], options)
        if index is not None and not re.search(r"\bnot\b|n't", match[0]) and not _negated(text[: match.start()]):
            picks.append(Pick(match.start(1), match.end(1), index))
    return sorted({pick for pick in picks if not _rejected(text, pick)})


def _joined(text: str, start: int, options: Options) -> list[Pick]:
    """Further labels tied to one that was just given: "B or C", "B, C and D", "A/B"."""
    picks = []
    link = re.compile(
        r"[\s.)\]*]*(?:,|/|&|\bor\b|\band\b|\bor maybe\b|\bmaybe\b|\s)[\s,/]*(?:or|and|maybe|possibly)?\s*" + _LABEL
    )
    while match := link.match(text, start):
        index = _index(match[1], options)
        if index is None or not match[1].isupper() or _is_word(text, match):
            break
        picks.append(Pick(match.start(1), match.end(1), index))
        start = match.end()
    return picks


def _by_text(text: str, options: Options) -> list[Pick]:
    """Options whose words stand in the text; one inside a longer one that also stands there does not count."""
    picks = []
    for i, option in enumerate(options.texts):
        words = normal(option).split()
        if words:
            pattern = r"(?<!\w)" + r"\W+(?:(?:a|an|the)\W+)?".join(map(re.escape, words)) + r"(?!\w)"
            picks += [Pick(m.start(), m.end(), str(i)) for m in re.finditer(pattern, text, re.IGNORECASE)]
    return sorted(
        p
        for p in picks
        if not any(q.start <= p.start and p.end <= q.end and q.end - q.start > p.end - p.start for q in picks)
    )


def _settle(picks: list[Pick], text: str) -> str | None:
    """The one answer that stands: the last, if every earlier and different one was taken back; None for several."""
    final = picks[-1].option
    for earlier, later in pairwise(picks):
        if earlier.option != later.option and not retracts(text[earlier.end : later.start]):
            return None
    return final


def _is_word(text: str, match: re.Match[str]) -> bool:
    """Whether a letter is the article "a" or the pronoun "I" and no label."""
    letter = match[0].strip()
    if letter.lower() not in ("a", "i"):
        return False
    follows = re.match(r"\s+([a-z']+)", text[match.end() :])
    return (
        bool(follows)
        and follows is not None
        and follows[1] not in ("is", "because", "since", "as", "or", "and", "but", "for")
    )


def _rejected(text: str, pick: Pick) -> bool:
    sentence = re.match(r"[^\n.;,]*", text[pick.end :])
    after = sentence[0] if sentence else ""
    return bool(_REJECTED_AFTER.match(after)) or _negated(text[max(0, pick.start - 60) : pick.start])


def _negated(before: str) -> bool:
    return bool(_REJECTED_BEFORE.search(before))


def _after_cue(text: str) -> str:
    cues = list(_CUE.finditer(text))
    return re.split(r"[\n.;]", text[cues[-1].end() :])[0] if cues else text
