"""What the task files in experiments/tasks refer to: reading problems, running code, making choices.

lm-eval calls ``custom_dataset`` with the task's metadata; ``data`` there is the path of the problems (JSONL), which
``sbd.evaluation`` sets. Reading the file here rather than through the datasets library keeps the order of the file,
writes no cache, and turns a damaged file into one clear line.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from sbd import conversations
from sbd.data import read_problems
from sbd.errors import UserError
from sbd.evaluation.code import scores
from sbd.files import half_character
from sbd.problems.word_problems import LARGEST
from sbd.sandbox import Limits, check_function
from sbd.sources import check_columns, open_rows

_CHOICES = 4


class Documents(list[dict[str, Any]]):
    """Problems as lm-eval wants a data set: a sequence that also names its columns and can be mapped."""

    def map(self, function: Callable[[dict[str, Any]], dict[str, Any]]) -> Documents:
        """The problems with the columns that ``function`` gives, as the stock tasks prepare theirs."""
        return Documents({**problem, **function(dict(problem))} for problem in self)

    @property
    def features(self) -> dict[str, None]:
        """The columns of the first problem."""
        return dict.fromkeys(self[0])


def problems(data: str, **metadata: Any) -> dict[str, Documents]:
    """The problems of the file ``data`` as the test split; every one needs an answer to be scored by."""
    found = read_problems(data)
    for number, problem in enumerate(found, 1):
        if not isinstance(problem.get("answer"), str):
            raise UserError(f"{data}, line {number}: no text `answer` to score against; give each problem one")
    return {"test": Documents(found)}


def rows(data: str, columns: list[str] | None = None, **metadata: Any) -> dict[str, Documents]:
    """The rows of the file ``data`` as they were published; every one needs the columns that the task file names."""
    opened = open_rows(data, ".", what="the problems of a benchmark")
    check_columns(opened, columns or [])
    found = list(opened.read())
    for number, row in enumerate(found, 1):
        missing = [name for name in columns or [] if row.get(name) is None]
        if missing:
            raise UserError(f"{data}, line {number}: {' and '.join(missing)} missing; make the file again")
        if half := half_character(row):
            raise UserError(f"{data}, line {number}: {half} is half of a character; take it out of the text")
    return {"test": Documents(found)}


def after_thought(answers: list[list[str]], docs: Any) -> list[list[str]]:
    """A filter of lm-eval: what stands behind the thought; nothing where the thought did not end."""
    return [[conversations.after_thought(text) for text in texts] for texts in answers]


def gpqa_choices(documents: Documents) -> Documents:
    """GPQA's four answers in an order drawn from the question, so that every run asks the same.

    The stock task shuffles by the global random state, which no one seeds.
    """

    def choices(doc: dict[str, Any]) -> dict[str, Any]:
        wrong = [str(doc[f"Incorrect Answer {number}"]).strip() for number in (1, 2, 3)]
        right = str(doc["Correct Answer"]).strip()
        order = [*wrong, right]
        random.Random(f"gpqa {doc['Question']}").shuffle(order)
        named = {f"choice{number}": choice for number, choice in enumerate(order, 1)}
        return {**named, "answer": f"({'ABCD'[order.index(right)]})"}

    return documents.map(choices)


def functions(data: str, **metadata: Any) -> dict[str, Documents]:
    """The problems of the file ``data``, each with an entry point and tests."""
    found = read_problems(data)
    for number, problem in enumerate(found, 1):
        if not problem.get("entry_point") or not problem.get("tests"):
            raise UserError(f"{data}, line {number}: no entry_point or no tests; make the file again")
    return {"test": Documents(found)}


def run_tests(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """pass@1 of one generated body, run in the sandbox, and how it ended: 1.0 for one of the statuses."""
    return scores(check_function(doc["prompt"] + results[0], doc["entry_point"], doc["tests"], Limits()))


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
