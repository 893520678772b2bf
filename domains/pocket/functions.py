"""Pocket programming: a one-line Python function from its description.

# add 12 to n, multiply by 7, subtract 45
def f(n): return
(n+12)*7-45
"""

from __future__ import annotations

import random
import re

from domains.base import Item
from domains.pocket.family import Family

OPERATIONS = ("+", "-", "*")
VARIABLES = ("n", "x", "y", "k", "m", "t")
FIRST_STEP = {"+": "add {c} to {v}", "-": "subtract {c} from {v}", "*": "multiply {v} by {c}"}
NEXT_STEP = {"+": "add {c}", "-": "subtract {c}", "*": "multiply by {c}"}
STEP = re.compile(r"(add|subtract|multiply)\D*(\d+)")
OPERATION_OF_VERB = {"add": "+", "subtract": "-", "multiply": "*"}

Step = tuple[str, int]


def expression(variable: str, steps: list[Step]) -> str:
    """The steps as one expression, with the one pair of parentheses that a product after a sum needs."""
    text, is_sum = variable, False
    for operation, constant in steps:
        if operation == "*" and is_sum:
            text, is_sum = f"({text})", False
        is_sum = is_sum or operation != "*"
        text += f"{operation}{constant}"
    return text


def apply(steps: list[Step], value: int) -> int:
    """What the described function returns for `value`."""
    for operation, constant in steps:
        value = value + constant if operation == "+" else value - constant if operation == "-" else value * constant
    return value


def read_steps(prompt: str) -> tuple[str, list[Step]]:
    """The variable and the steps that a prompt of this family describes."""
    description, signature = prompt.split("\n")
    return signature[len("def f(")], [(OPERATION_OF_VERB[v], int(c)) for v, c in STEP.findall(description)]


class Functions(Family):
    domain = "programming"
    description = "three steps (+, -, *) with constants uniform on 2..99 applied to one of six variables"

    def item(self, rng: random.Random) -> Item:
        variable = rng.choice(VARIABLES)
        steps = [(rng.choice(OPERATIONS), rng.randint(2, 99)) for _ in range(3)]
        words = [(NEXT_STEP if i else FIRST_STEP)[op].format(c=c, v=variable) for i, (op, c) in enumerate(steps)]
        inputs = [0, 1, rng.randint(2, 99), -rng.randint(1, 99)]
        return Item(
            prompt=f"# {', '.join(words)}\ndef f({variable}): return",
            gold=expression(variable, steps),
            tests="".join(f"assert f({value}) == {apply(steps, value)}\n" for value in inputs),
        )

    def write(self, item: Item) -> str:
        return f" {item.gold}"

    def mistake(self, rng: random.Random, item: Item) -> str:
        """Parentheses forgotten where they matter, or one operation or constant wrong."""
        if "(" in item.gold and rng.random() < 0.4:
            return " " + item.gold.replace("(", "").replace(")", "")
        variable, steps = read_steps(item.prompt)
        place = rng.randrange(len(steps))
        operation, constant = steps[place]
        if rng.random() < 0.5:
            operation = rng.choice([op for op in OPERATIONS if op != operation])
        else:
            constant = rng.choice([c for c in range(2, 100) if c != constant])
        steps[place] = (operation, constant)
        return " " + expression(variable, steps)


POPULATION = Functions()
