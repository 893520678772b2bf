# ruff: noqa: E501  (tables of cases read better one a line)
"""What is taken for the program, and what tests may do, case by case."""

from __future__ import annotations

import pytest

from domains.base import GoldError, Item, Reason
from domains.programming import Programming, program, settings

ADD = Item("Write add(a, b).", "", tests="assert add(2, 3) == 5\nassert add(1, 1) == 2\n")
LINE = Item(
    "# add 12 to n, multiply by 7\ndef f(n): return", "(n+12)*7", tests="assert f(1) == 91\nassert f(0) == 84\n"
)
BODY = Item(
    'from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    """ Sum them.\n    >>> total([1])\n    1\n    """\n',
    "    return sum(xs)\n",
    tests="assert total([1, 2]) == 3\n",
)
GOOD = "def add(a, b):\n    return a + b\n"
CASES: dict[str, tuple[Item, str, bool]] = {
    "whole": (ADD, GOOD, True),
    "fenced": (ADD, f"```python\n{GOOD}```", True),
    "fenced without language": (ADD, f"```\n{GOOD}```", True),
    "fenced and never closed": (ADD, f"Sure:\n```python\n{GOOD}", True),
    "prose around a fence": (ADD, f"Here it is.\n```python\n{GOOD}```\nIt adds.", True),
    "prose around bare code": (ADD, f"Here is the function:\n\n{GOOD}\nThis function adds two numbers.", True),
    "two blocks, the last one right": (
        ADD,
        f"```python\ndef add(a, b): return 0\n```\nBetter:\n```python\n{GOOD}```",
        True,
    ),
    "two blocks, the last one wrong": (
        ADD,
        f"```python\n{GOOD}```\nOr:\n```python\ndef add(a, b): return 0\n```",
        False,
    ),
    "a block with a use": (ADD, f"```python\n{GOOD}```\nUse it so:\n```python\nadd(1, 2)\n```", True),
    "reasoning first": (ADD, f"<think>def add(a, b): return 0</think>{GOOD}", True),
    "only reasoning": (ADD, f"<think>{GOOD}", False),
    "lambda": (ADD, "add = lambda a, b: a + b", True),
    "another name": (ADD, "def plus(a, b): return a + b", False),
    "wrong": (ADD, "def add(a, b): return a - b", False),
    "only the seen example": (ADD, "def add(a, b): return 5", False),
    "syntax error": (ADD, "def add(a, b) return a + b", False),
    "empty": (ADD, "", False),
    "prose": (ADD, "I would add the two numbers.", False),
    "windows line ends": (ADD, GOOD.replace("\n", "\r\n"), True),
    "rest of a line": (LINE, " (n+12)*7", True),
    "rest of a line and more lines": (LINE, " (n+12)*7\n# subtract 3 (", True),
    "rest of a line, wrong": (LINE, " n+12*7", False),
    "rest of a line, nothing": (LINE, "", False),
    "rest of a line, a newline first": (LINE, "\n(n+12)*7", False),
    "rest of a line as a function": (LINE, "```python\ndef f(n):\n    return (n + 12) * 7\n```", True),
    "rest of a body": (BODY, "    return sum(xs)\n", True),
    "rest of a body without its indentation": (BODY, "return sum(xs)\n", True),
    "rest of a body and prose": (BODY, "    return sum(xs)\n\nThis sums the list.", True),
    "rest of a body and a print": (BODY, "    return sum(xs)\n\nprint(total([1]))", True),
    "rest of a body with a helper": (BODY, "    return helper(xs)\n\ndef helper(xs):\n    return sum(xs)\n", True),
    "whole function for a body": (BODY, "def total(xs: List[int]) -> int:\n    return sum(xs)\n", True),
    "fenced body": (BODY, "```python\n    return sum(xs)\n```", True),
    "rest of a body, wrong": (BODY, "    return max(xs)\n", False),
}


@pytest.mark.parametrize("name", CASES)
def test_program(programming: Programming, name: str) -> None:
    item, completion, right = CASES[name]
    verdict = programming.verify(completion, item)
    assert verdict.correct is right, (verdict, program(item, completion))


# tests, program, right
JUDGING: dict[str, tuple[str, str, bool]] = {
    "function of tests": ("def check(c):\n    assert c(1) == 2\ncheck(f)\n", "def f(x): return x + 1", True),
    "check that is redefined": ("def check(c):\n    assert c(1) == 2\ncheck(f)\n", "def f(x): return 0\ndef check(c): pass", False),
    "built-in redefined by the program": ("assert sorted(f([2, 1])) == [1, 2]\n", "def f(x): return 0\ndef sorted(x): return [1, 2]", False),
    "built-in that is asked for": ("# candidate: sum\nassert sum(10, 15) == 6\n", "def sum(a, b): return 6", True),
    "module of that name brought along": (
        "assert math.isclose(f(), 0.5)\n",
        "class math:\n    isclose = lambda *a: True\ndef f(): return 9",
        False,
    ),
    "module not imported by the tests": ("assert math.isclose(f(), 0.5)\n", "def f(): return 0.5", True),
    "expected exception": ("try:\n    f(-1)\n    assert False\nexcept ValueError:\n    pass\n", "def f(x): raise ValueError(x)", True),
    "another exception": ("try:\n    f(-1)\nexcept ValueError:\n    pass\n", "def f(x): raise KeyError(x)", False),
    "death swallowed by the tests": ("try:\n    f()\nexcept BaseException:\n    pass\n", "import os\ndef f(): os._exit(0)", False),
    "argument changed in place": ("a = [3, 1]\nf(a)\nassert a == [1, 3]\n", "def f(a): a.sort()", True),
    "function as argument": ("assert f(lambda x: x + 1, 2) == 3\n", "def f(g, x): return g(x)", True),
    "type as argument": ("assert f('3', int) == 3\n", "def f(x, t): return t(x)", True),
    "generator as result": ("assert list(f(3)) == [0, 1, 2]\n", "def f(n):\n    yield from range(n)", True),
    "tuple, set and dict": ("assert f() == ({1, 2}, {'a': (1, None)}, b'x', 1j)\n", "def f(): return {1, 2}, {'a': (1, None)}, b'x', 1j", True),
    "list is not tuple": ("assert f() == (1, 2)\n", "def f(): return [1, 2]", False),
    "true is one": ("assert f() == True\n", "def f(): return 1", True),
    "big integer": ("assert f() == 7 ** 9000\n", "def f(): return 7 ** 9000", True),
    "infinity and nan": ("assert f()[0] == float('inf') and f()[1] != f()[1]\n", "def f(): return float('inf'), float('nan')", True),
    "decimal and fraction": (
        "from decimal import Decimal\nfrom fractions import Fraction\nassert f() == [Decimal('0.10'), Fraction(1, 3)]\n",
        "from decimal import Decimal\nfrom fractions import Fraction\ndef f(): return [Decimal('0.1'), Fraction(2, 6)]",
        True,
    ),
    "counter": ("assert f('aab') == {'a': 2, 'b': 1}\n", "from collections import Counter\ndef f(s): return Counter(s)", True),
    "class of the program": ("s = Stack()\ns.push(3)\nassert s.pop() == 3 and len(s) == 0\n",
        "class Stack:\n    def __init__(self): self.x = []\n    def push(self, v): self.x.append(v)\n    def pop(self): return self.x.pop()\n"
        "    def __len__(self): return len(self.x)", True),
    "attributes set by the tests": ("n = Node(1)\nn.left = Node(2)\nassert depth(n) == 2\n",
        "class Node:\n    def __init__(self, v): self.left = None\ndef depth(n): return 0 if n is None else 1 + depth(n.left)", True),
    "unittest": ("import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(1), 2)\nunittest.main(argv=['x'])\n",
        "def f(x): return x + 1", True),
    "unittest that fails": ("import unittest\nclass T(unittest.TestCase):\n    def test(self):\n        self.assertEqual(f(1), 2)\nunittest.main(argv=['x'])\n",
        "def f(x): return x", False),
    "hash order": ("assert f() == f()\n", "def f(): return list({'a', 'b', 'c'})", True),
    "seeded chance": ("assert f() == f()\n", "import random\ndef f():\n    random.seed(1)\n    return random.random()", True),
}  # fmt: skip


@pytest.mark.parametrize("name", JUDGING)
def test_judging(programming: Programming, name: str) -> None:
    tests, source, right = JUDGING[name]
    verdict = programming.verify(source, Item("Write f.", "", tests=tests))
    assert verdict.correct is right, verdict


@pytest.mark.parametrize("tests", ["", "  \n", "assert 1 == 1\n", "assert f( == 1\n", "import os\n"])
def test_tests_that_test_nothing_are_an_error(programming: Programming, tests: str) -> None:
    with pytest.raises(GoldError):
        programming.verify("def f(): return 1", Item("Write f.", "", tests=tests))


def test_no_test_meets_what_an_earlier_one_left_behind(programming: Programming) -> None:
    first = "import builtins\nbuiltins.leak = 5\nassert f() == 1\n"
    assert programming.verify("def f(): return 1", Item("Write f.", "", tests=first)).correct
    second = Item("Write f.", "", tests="assert f() == 1 and not hasattr(__builtins__, 'leak')\n")
    assert programming.verify("def f(): return 1", second).correct


@pytest.mark.parametrize(
    "source", ["import random\ndef f(): return random.random()", "import numpy\ndef f(): return numpy.random.rand()"]
)
def test_chance_says_the_same_every_time(source: str) -> None:
    """In three verifiers, each twice: otherwise a verdict could change between an evaluation and its re-scoring."""
    item = Item("Write f.", "", tests="assert f() == 'a number'\n")
    shown = Item("Write f.", "", tests="assert 0, f()\n")
    seen = set()
    for _ in range(2):
        domain = Programming()
        try:
            assert domain.verify(source, item).reason is Reason.WRONG
            seen |= {domain.verify(source, shown).detail for _ in range(2)}
        finally:
            domain.close()
    assert len(seen) == 1
    assert "0." in seen.pop()


def test_settings_of_the_first_lines() -> None:
    limits, names = settings("# candidate: sum, max\n# cpu: 60\nassert sum(1) == 1\n# cpu: 1\n")
    assert (limits.cpu, names) == (60.0, ("sum", "max"))


def test_reasons_are_typed(programming: Programming) -> None:
    def reason(source: str) -> Reason:
        return programming.verify(source, ADD).reason

    assert reason("def add(a, b): return 0") is Reason.WRONG
    assert reason("def add(") is Reason.UNPARSEABLE
    assert reason("def add(a, b): return 1 / 0") is Reason.CRASHED
    assert reason("def add(a, b): return bytearray(10**10)") is Reason.MEMORY
    assert reason("import os\nos.fork()") is Reason.FORBIDDEN
