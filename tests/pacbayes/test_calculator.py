"""The calculator's commands, as a user types them."""

import inspect
import json
import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import pytest

import pacbayes
from pacbayes import __main__ as calculator
from pacbayes.bounds import ACCURACY_BOUNDS

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


def test_every_bound_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, "bounds --n 7500 --correct 6000 --bits 120 --delta 0.05")["certified_accuracy"]
    assert set(answer) == set(ACCURACY_BOUNDS)
    assert answer["binomial"] == max(answer.values()) == pacbayes.certified_accuracy(1500, 7500, bits=120, delta=0.05)


def test_draws_and_hold_out(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, "draws --right 4:5000 3:1000 2:1000 1:600 0:400 --bits 50 --delta 0.05")
    assert (answer["n"], answer["draws"], answer["accuracy"]) == (8000, 4, 0.8)
    assert 0.7678 <= answer["certified_accuracy"] < 0.7679
    lower = ask(capsys, "draws --right 8:0 4:5000 3:1000 2:1000 1:600 0:400 --bits 50 --delta 0.05")
    assert (lower["draws"], lower["accuracy"]) == (8, 0.4)  # eight draws, of which none had more than four right
    answer = ask(capsys, "holdout --n 1000 --correct 800 --delta 0.05")
    assert answer["certified_accuracy"] == pacbayes.holdout_accuracy(200, 1000, delta=0.05)


def test_a_joint_statement(capsys: pytest.CaptureFixture[str]) -> None:
    answer = ask(capsys, "joint --claim a:7500:6000:60:0.02 b:2000:1300:40:0.03")
    assert answer["delta"] == pytest.approx(0.05)
    assert answer["certified_accuracy"] == {
        "a": pacbayes.certified_accuracy(1500, 7500, bits=60, delta=0.02),
        "b": pacbayes.certified_accuracy(700, 2000, bits=40, delta=0.03),
    }


def test_a_transfer_on_a_pool(capsys: pytest.CaptureFixture[str]) -> None:
    command = "transfer --n 7500 --correct 6000 --bits 60 --differing 40 --compared 2000 --pool 20000"
    shares = {"bits": 60.0, "delta_student": 0.03, "delta_differ": 0.02}
    for outcome in ("expected", "realised"):
        given = "" if outcome == "expected" else " --outcome realised"
        answer = ask(capsys, f"{command} --delta-student 0.03 --delta-differ 0.02{given}")
        wanted = pacbayes.transfer_pool_accuracy(1500, 7500, 40, 2000, 20_000, outcome=outcome, **shares)  # type: ignore[arg-type]
        assert (answer["outcome"], answer["certified_accuracy"]) == (outcome, wanted)


def test_every_question_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for name, question in calculator.QUESTIONS.items():
        with pytest.raises(SystemExit) as stopped:
            calculator.main([name, "--help"])
        assert stopped.value.code == 0
        text = " ".join(capsys.readouterr().out.split())
        assert question.explanation.split(".")[0] in text


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("accuracy --n 10 --correct 12 --bits 0 --delta 0.05", "expected 0 <= losses <= n"),
        ("accuracy --n 10 --correct 8 --bits -1 --delta 0.05", "expected finite bits >= 0"),
        ("accuracy --n 10 --correct 8 --bits 1 --delta 0.05 --bound magic", "invalid choice: 'magic'"),
        ("accuracy --n 10 --correct 8 --bits 1 --delta 0.05 --bound kl --pool 20", "leave --bound out"),
        ("accuracy --n 10 --correct 8 --bits 1 --delta 0.05 --part pool", "give its size with --pool"),
        ("accuracy --n 10 --correct 8 --bits nan --delta 0.05", "expected finite bits"),
        ("accuracy --n 0 --correct 0 --bits 0 --delta 0.05", "n=0"),
        ("accuracy --n 10 --correct 8 --bits 0 --delta 1", "expected delta in (0, 1)"),
        (f"accuracy --n {10**400} --correct 8 --bits 0 --delta 0.05", "n <= 10^12"),
        (f"accuracy --n 100 --correct 80 --bits 0 --delta 0.05 --pool {10**18}", "population <= 10^12"),
        ("draws --right 4 --bits 0 --delta 0.05", "expected RIGHT:PROMPTS"),
        ("draws --right 0:5 --bits 0 --delta 0.05", "at least one draw"),
        (f"draws --right 1:{10**12} --bits 0 --delta 0.05", "1 to 10000000 prompts"),
        ("joint --claim a:10:8:0", "expected NAME:N:CORRECT:BITS:DELTA"),
        ("joint --claim a:10:8:0:0.1 a:10:8:0:0.1", "appears twice"),
        ("joint --claim a:10:8:0:0.5 b:10:8:0:0.5", "with a sum below 1"),
        (
            "transfer --n 9 --correct 8 --bits 0 --differing 0 --compared 9 --delta-student 0.1 --delta-differ 0.1"
            " --outcome realised",
            "give its size with --pool",
        ),
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
    assert {command.split()[0] for command in commands} == set(calculator.QUESTIONS)
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
    assert set(pacbayes.__all__) <= set(dir(pacbayes))


def test_types_of_public_signatures_are_public() -> None:
    """What a caller must build or receive can be imported from where the function is."""
    for name in pacbayes.__all__:
        function = getattr(pacbayes, name)
        if not inspect.isfunction(function):
            continue
        for annotation in typing.get_type_hints(function).values():
            for part in _parts(annotation):
                if isinstance(part, type) and part.__module__.startswith("pacbayes."):
                    assert part.__name__ in {*pacbayes.__all__, *INTERNAL}, (name, part)


# Seen through attributes of public objects, or a protocol that the caller's own items have.
INTERNAL = {"HasDigests", "Frozen", "Lock"}


def _parts(annotation: Any) -> list[Any]:
    return [annotation, *(part for inner in typing.get_args(annotation) for part in _parts(inner))]
