"""The README of pacbayes runs: its Python blocks print what stands after `#>`, its commands what stands below them.

python tests/pacbayes/test_readme.py        # writes the outputs into the README anew; then read the difference
"""

from __future__ import annotations

import ast
import io
import os
import re
import subprocess
import sys
import tempfile
from contextlib import chdir, redirect_stdout
from pathlib import Path
from typing import Any

import pacbayes

README = Path(__file__).parents[2] / "pacbayes" / "README.md"
BLOCK = re.compile(r"(?<=^```)(python|console)\n(.*?)(?=^```$)", re.MULTILINE | re.DOTALL)
OUTPUT, PROMPT = "#>", "$ "


def with_outputs(text: str) -> str:
    """The README as it would be if it told the truth: all blocks run in order, in one namespace, in this directory."""
    namespace: dict[str, Any] = {"__name__": "readme"}

    def run(block: re.Match[str]) -> str:
        language, source = block.groups()
        lines = run_python(source, namespace) if language == "python" else run_commands(source)
        return "\n".join([language, *lines, ""])

    return BLOCK.sub(run, text)


def run_python(source: str, namespace: dict[str, Any]) -> list[str]:
    """The lines of a block, each statement followed by what it prints."""
    lines = [line for line in source.splitlines() if not line.startswith(OUTPUT)]
    shown, done = [], 0
    for statement in ast.parse("\n".join(lines)).body:
        code = compile(ast.Module([statement], type_ignores=[]), README.name, "exec", dont_inherit=True)
        with redirect_stdout(io.StringIO()) as output:
            exec(code, namespace)
        end = statement.end_lineno or done
        shown += lines[done:end] + [f"{OUTPUT} {line}".rstrip() for line in output.getvalue().splitlines()]
        done = end
    return shown + lines[done:]


def run_commands(source: str) -> list[str]:
    """The commands of a block, each followed by what it prints."""
    shown = []
    for line in source.splitlines():
        if line.startswith(PROMPT):
            environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            command = line.removeprefix(PROMPT)
            done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=True)
            shown += [line, *done.stdout.splitlines()]
    return shown


def test_every_output_is_true(tmp_path: Path) -> None:
    text = README.read_text("utf-8")
    with chdir(tmp_path):
        assert with_outputs(text) == text


def test_every_public_name_is_explained() -> None:
    text = README.read_text("utf-8")
    assert [name for name in pacbayes.__all__ if not re.search(rf"\b{name}\b", text)] == []


def test_lines_are_short_and_modules_exist() -> None:
    text = README.read_text("utf-8")
    assert [line for line in text.splitlines() if len(line) > 120] == []
    named = re.findall(r"`([\w/]+(?:\.py|/))`", text)
    assert named
    assert [name for name in named if not (README.parent / name).exists()] == []


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        fresh = with_outputs(README.read_text("utf-8"))
    README.write_text(fresh, "utf-8")
    print(f"{README} written")
