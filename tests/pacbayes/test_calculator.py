"""The calculator's commands, as a user types them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pacbayes
from pacbayes import __main__ as calculator

ROOT = Path(__file__).parents[2]


def ask(capsys: pytest.CaptureFixture[str], command: str) -> dict[str, Any]:
    calculator.main(command.split())
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    answer: dict[str, Any] = json.loads(out)
    return answer


def test_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, "accuracy --n 1000 --correct 800 --bits 208 --delta 0.05 --bound binomial")
    assert 0.5436 <= answer["certified_accuracy"] < 0.5437
    assert answer == {
        "question": "accuracy",
        "n": 1000,
        "correct": 800,
        "bits": 208.0,
        "delta": 0.05,
        "bound": "binomial",
        "accuracy": 0.8,
        "certified_accuracy": answer["certified_accuracy"],
    }
    assert (
        0.5406
        <= ask(capsys, "accuracy --n 1000 --correct 800 --bits 208 --delta 0.05 --bound kl")["certified_accuracy"]
        < 0.541
    )


def test_accuracy_on_a_pool(capsys: pytest.CaptureFixture[str]) -> None:
    command = "accuracy --n 7500 --correct 6000 --bits 200 --delta 0.05 --pool 20000"
    unseen = ask(capsys, command)
    assert (unseen["part"], unseen["outcome"]) == ("unseen", "realised")
    assert 0.694 <= unseen["certified_accuracy"] < 0.695
    assert 0.733 <= ask(capsys, f"{command} --part pool")["certified_accuracy"] < 0.734
    expected = ask(capsys, f"{command} --part pool --outcome expected")["certified_accuracy"]
    assert expected == pytest.approx(pacbayes.certified_accuracy(1500, 7500, bits=200, delta=0.05))


def test_inverse_questions(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, "required-n --target 0.75 --accuracy 0.8 --bits 50 --delta 0.05")
    assert answer["required_n"] == pacbayes.required_n(0.75, accuracy=0.8, bits=50, delta=0.05)
    assert answer["required_holdout_labels"] == pacbayes.required_n(0.75, accuracy=0.8, bits=0, delta=0.05)
    bits = ask(capsys, "required-bits --target 0.74 --n 7500 --correct 6000 --delta 0.05")["required_bits"]
    assert 107 <= bits < 108
    needed = ask(capsys, "required-accuracy --target 0.75 --n 7500 --bits 50 --delta 0.05")["required_accuracy"]
    assert needed == pacbayes.required_accuracy(0.75, n=7500, bits=50, delta=0.05)
    assert ask(capsys, "required-n --target 0.9 --accuracy 0.8 --bits 50 --delta 0.05")["required_n"] is None


def test_gain_and_transfer(capsys: pytest.CaptureFixture[str]) -> None:
    gain = ask(
        capsys,
        "gain --n 5000 --won 400 --lost 20 --both 2500 --bits 30"
        " --delta-accuracy 0.02 --delta-base 0.01 --delta-paired 0.02",
    )
    assert gain["certified_gain"] == max(gain["marginal"], gain["paired"]) > 0
    command = "transfer --n 7500 --correct 6000 --bits 60 --differing 100 --compared 5000"
    shares = " --delta-student 0.03 --delta-differ 0.02"
    one = ask(capsys, command + shares)["certified_accuracy"]
    assert 0.7 < one < 0.75
    assert ask(capsys, f"{command} --teachers 4 {shares}")["certified_accuracy"] < one


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("accuracy --n 10 --correct 12 --bits 0 --delta 0.05", "expected 0 <= losses <= n"),
        ("accuracy --n 10 --correct 8 --bits -1 --delta 0.05", "expected finite bits >= 0"),
        ("accuracy --n 10 --correct 8 --bits 1 --delta 0.05 --bound magic", "invalid choice: 'magic'"),
        ("accuracy --n 10 --correct 8 --bits 1 --delta 0.05 --bound kl --pool 20", "leave --bound out"),
        ("accuracy --n 10 --correct 8 --bits 1 --delta 0.05 --part pool", "give its size with --pool"),
        ("accuracy --n 10 --correct 8", "the following arguments are required: --bits, --delta"),
        ("guess", "invalid choice: 'guess'"),
    ],
)
def test_nonsense_is_one_line_and_status_two(capsys: pytest.CaptureFixture[str], command: str, said: str) -> None:
    with pytest.raises(SystemExit) as stopped:
        calculator.main(command.split())
    assert stopped.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err.splitlines()[-1]


def test_examples_of_the_help_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = (calculator.__doc__ or "").replace("\\\n", " ")
    commands = [line.split("-m pacbayes")[1].strip() for line in text.splitlines() if "python -m pacbayes" in line]
    assert {command.split()[0] for command in commands} == set(calculator._COMMANDS)
    for command in commands:
        assert ask(capsys, command)["question"] == command.split()[0]


def run_python(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_import_is_light() -> None:
    """`import pacbayes` loads next to nothing, and everything of it neither torch nor the slow parts of SciPy."""
    loaded = run_python("import sys, pacbayes; print([m for m in ('numpy', 'pydantic', 'torch') if m in sys.modules])")
    assert loaded.strip() == "[]"
    loaded = run_python(
        "import sys, pacbayes.bounds, pacbayes.codes\n"
        "print([m for m in ('torch', 'scipy.stats', 'scipy.optimize', 'mpmath') if m in sys.modules])"
    )
    assert loaded.strip() == "[]"


def test_public_names_resolve() -> None:
    for name in pacbayes.__all__:
        assert getattr(pacbayes, name).__module__.startswith("pacbayes.")
    with pytest.raises(AttributeError, match="no attribute 'certify'"):
        pacbayes.certify  # noqa: B018
