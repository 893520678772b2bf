"""Programming: a function from its description, judged by hidden tests in the sandbox.

    item = Item(prompt="# add 12 to n, multiply by 7\\ndef f(n): return", gold="(n+12)*7", tests="assert f(1) == 91\\n")
    verify(" (n+12)*7", item)                                 # the rest of the line: RIGHT
    verify("```python\\ndef f(n):\\n    return 7*n+84\\n```", item)  # a whole function: RIGHT
    verify(" n+12*7", item)                                   # WRONG

`Item.tests` is Python source; the program is right if it runs to its end. It may begin with settings for the judge:

    # candidate: sum            built-in names that the program is asked to define (otherwise built-ins stay built-ins)
    # cpu: 60                   seconds of CPU, where the reference is slow
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from domains.base import GoldError, Item, Population, Verdict
from domains.registry import generated_populations
from domains.sandbox import Limits, Sandbox
from domains.text import fenced, visible

_DEFINES = re.compile(r"^(?:async\s+def|def|class|import|from|@|\w+\s*=)", re.MULTILINE)
_CODE_LINE = re.compile(r"^(?:async\s+def\s|def\s|class\s|import\s|from\s+[\w.]+\s+import\s|@\w|#)")
_HEADER = re.compile(r"^(?:async[ \t]+)?def[ \t]+(\w+)[ \t]*\(")
_INLINE_BODY = re.compile(r"\)[^:]*:[ \t]*\S")
_PROSE = re.compile(r"^[A-Z][a-z']*,?(?: [a-zA-Z']+,?){2,}")
_SETTING = re.compile(r"# (candidate|cpu): *(.+)")


class Programming:
    name = "programming"
    version = "programming/2"

    def __init__(self, data_dir: Path | None = None) -> None:
        self._data_dir = data_dir
        self._sandbox = Sandbox()

    def populations(self) -> Mapping[str, Population]:
        from domains.data import programming

        return generated_populations(self.name) | programming.populations(self._data_dir)

    def verify(self, completion: str, item: Item) -> Verdict:
        if not item.tests.strip():
            raise GoldError(f"item {item.id or item.digest[:12]} has no tests")
        limits, shadowing = settings(item.tests)
        return self._sandbox.run(program(item, completion), item.tests, limits, shadowing)

    def protections(self) -> dict[str, bool]:
        """What holds a program on this machine; raises `SandboxUnavailableError` where nothing can."""
        return self._sandbox.protections()

    def close(self) -> None:
        self._sandbox.close()


def program(item: Item, completion: str) -> str:
    """The source to run: what a reader of prompt and completion would take for the program.

    A whole function (fenced or not) stands for itself, behind the imports of the prompt. Where the prompt ends inside a
    function, a completion without that function is its rest: of the line, if the prompt broke off within one, else of
    the body.
    """
    text = visible(completion)
    blocks = fenced(text)
    if blocks:
        text = "\n\n".join([block for block in blocks if _DEFINES.search(block)] or blocks)
    opening = unfinished_function(item.prompt)
    if opening is None:
        return text if blocks else _without_prose(text)
    name = _HEADER.match(opening.splitlines()[-1] if _ends_in_line(opening) else _last_header(opening))
    assert name is not None
    if re.search(rf"^(?:async[ \t]+)?def[ \t]+{name[1]}\b", text, re.MULTILINE):
        return opening[: opening.rindex(_last_header(opening))] + (text if blocks else _without_prose(text))
    if _ends_in_line(opening):
        return opening + text.partition("\n")[0]
    return opening + ("" if opening.endswith("\n") else "\n") + _body(text)


def unfinished_function(prompt: str) -> str | None:
    """The code at the end of a prompt whose last line at the margin is the header of a function; None without one."""
    lines = prompt.split("\n")
    at_margin = [line for line in lines if line[:1] not in ("", " ", "\t", ")")]
    if not at_margin or not _HEADER.match(at_margin[-1]):
        return None
    first = next(i for i, line in enumerate(lines) if _CODE_LINE.match(line))
    return "\n".join(lines[first:])


def settings(tests: str) -> tuple[Limits, tuple[str, ...]]:
    """The limits and the shadowed built-ins that the first lines of the tests ask for."""
    cpu, names = Limits().cpu, ""
    for line in tests.splitlines():
        match = _SETTING.fullmatch(line.strip())
        if not match:
            break
        if match[1] == "cpu":
            cpu = float(match[2])
        else:
            names = match[2]
    return Limits(cpu=cpu), tuple(name.strip() for name in names.split(",") if name.strip())


def _last_header(opening: str) -> str:
    return [line for line in opening.split("\n") if _HEADER.match(line)][-1]


def _ends_in_line(opening: str) -> bool:
    """Whether the prompt breaks off within the one line of a function, as in `def f(n): return`."""
    last = opening.split("\n")[-1]
    return bool(_HEADER.match(last) and _INLINE_BODY.search(last))


def _body(text: str) -> str:
    """The lines that continue a function: up to the first at the margin that is not code of its own."""
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    if lines[first][:1] not in ("", " ", "\t"):
        lines[first] = "    " + lines[first]
    kept = []
    for line in lines:
        if line[:1] not in ("", " ", "\t", ")", "]", "}", "#") and not _CODE_LINE.match(line):
            break
        kept.append(line)
    return "\n".join(kept) + "\n"


def _without_prose(text: str) -> str:
    """Bare code from its first line on, without the sentences before and after it."""
    lines = text.split("\n")
    first = next((i for i, line in enumerate(lines) if _CODE_LINE.match(line)), None)
    if first is None:
        return text
    if all(not line.strip() or _PROSE.match(line) for line in lines[:first]):
        lines = lines[first:]
    for i, line in enumerate(lines):
        if i and not lines[i - 1].strip() and _PROSE.match(line):
            return "\n".join(lines[:i])
    return "\n".join(lines)
