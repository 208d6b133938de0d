"""What the task files in experiments/tasks refer to: reading problems, running code, making choices.

lm-eval calls ``custom_dataset`` with the task's metadata; ``data`` there is the path of the problems (JSONL), which
``sbd.evaluation`` sets. Reading the file here rather than through the datasets library keeps the order of the file,
writes no cache, and turns a damaged file into one clear line.
"""

from __future__ import annotations

import random
import re
from typing import Any

from sbd.data import read_problems
from sbd.errors import UserError
from sbd.problems.word_problems import LARGEST
from sbd.sandbox import STATUSES, Limits, check_function

_CHOICES = 4


class Documents(list[dict[str, Any]]):
    """Problems as lm-eval wants a data set: a sequence that also names its columns."""

    @property
    def features(self) -> dict[str, None]:
        """The columns of the first problem."""
        return dict.fromkeys(self[0])


def problems(data: str, **metadata: Any) -> dict[str, Documents]:
    """The problems of the file ``data`` as the test split; every one needs an answer to be scored by."""
    found = read_problems(data)
    for number, problem in enumerate(found, 1):
        if not isinstance(problem.get("answer"), str):
            raise UserError(f"{data}, line {number}: no answer to score against; make the file again")
    return {"test": Documents(found)}


def functions(data: str, **metadata: Any) -> dict[str, Documents]:
    """The problems of the file ``data``, each with an entry point and tests."""
    found = read_problems(data)
    for number, problem in enumerate(found, 1):
        if not problem.get("entry_point") or not problem.get("tests"):
            raise UserError(f"{data}, line {number}: no entry_point or no tests; make the file again")
    return {"test": Documents(found)}


def run_tests(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """pass@1 of one generated body, run in the sandbox, and how it ended: 1.0 for one of the statuses."""
    outcome = check_function(doc["prompt"] + results[0], doc["entry_point"], doc["tests"], Limits())
    return {"pass_at_1": float(outcome.passed), **{status: float(outcome.status == status) for status in STATUSES}}


def next_steps(data: str, **metadata: Any) -> dict[str, Documents]:
    """Multiple choice from worked solutions: which of four continuations is the next step (or the answer).

    The wrong ones are the right one with another result. Which step is asked for depends only on the problem's id.
    """
    return {"test": Documents(_choice(problem) for problem in problems(data)["test"])}


def bodies(data: str, **metadata: Any) -> dict[str, Documents]:
    """Multiple choice from functions: which of four bodies is the right one; the wrong ones have another number in it.

    Bodies without a number to change are left out. Which number is changed depends only on the problem's id.
    """
    found = [_body(problem) for problem in functions(data)["test"]]
    return {"test": Documents(doc for doc in found if doc is not None)}


def _body(problem: dict[str, Any]) -> dict[str, Any] | None:
    draw = random.Random(f"body {problem['id']}")
    # Operands only: what an accumulator starts at says nothing of the description.
    numbers = list(re.finditer(r"(?<=[-+*<>] )\d+", problem["solution"]))
    if not numbers:
        return None
    asked = draw.choice(numbers)
    right = int(asked[0])
    values = [right, *draw.sample([n for n in range(1, LARGEST + 1) if n != right], _CHOICES - 1)]
    draw.shuffle(values)
    start, end = asked.span()
    choices = [problem["solution"][:start] + str(value) + problem["solution"][end:] for value in values]
    return {"id": problem["id"], "prompt": problem["prompt"], "choices": choices, "label": values.index(right)}


def _choice(problem: dict[str, Any]) -> dict[str, Any]:
    draw = random.Random(f"next step {problem['id']}")
    steps = re.findall(r".+?\.(?=\s|$)\s*", problem["solution"], flags=re.S)
    asked = draw.randrange(len(steps))
    before, gold = "".join(steps[:asked]), steps[asked]
    # A space or newline belongs to what follows it, so that the words are cut into tokens as in training.
    stripped = before.rstrip()
    gold = before[len(stripped) :] + gold.rstrip()
    head, separator, tail = gold.rpartition(" is " if asked == len(steps) - 1 else " = ")
    result = int(re.findall(r"\d+", tail)[0])
    others = [number for number in range(LARGEST + 1) if number not in (result, 1)]
    numbers = [result, *draw.sample(others, _CHOICES - 1)]
    draw.shuffle(numbers)
    choices = [head + separator + re.sub(rf"\b{result}\b", str(number), tail) for number in numbers]
    return {
        "id": problem["id"],
        "prompt": problem["prompt"] + stripped,
        "choices": choices,
        "label": numbers.index(result),
    }
