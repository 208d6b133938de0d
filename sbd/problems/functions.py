"""tiny_code: small Python functions from a one-line description, scored by running them.

A description combines two to four operations with constants (tens of thousands of different ones); the body is
written in one of several styles, drawn at random, so that how it goes on is open until it has begun.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sbd.errors import UserError

_TESTS = 5


@dataclass(frozen=True)
class _Operation:
    """Arithmetic with constants, ``x * factor + offset``: how it is said, how it is written, what it does.

    The sum is never multiplied, so the words from left to right mean what the code means.
    """

    factor: int
    offset: int

    @property
    def words(self) -> str:
        return " ".join(self._parts("times", "plus", "minus"))

    def code(self, expression: str) -> str:
        return " ".join([expression, *self._parts("*", "+", "-")])

    def __call__(self, value: int) -> int:
        return value * self.factor + self.offset

    def _parts(self, times: str, plus: str, minus: str) -> list[str]:
        parts = [f"{times} {self.factor}"] if self.factor != 1 else []
        if self.offset:
            parts.append(f"{plus if self.offset > 0 else minus} {abs(self.offset)}")
        return parts


@dataclass(frozen=True)
class _Condition:
    """A test of one number: as an adjective before "numbers", as "x is ...", as code, as a function."""

    words: str
    sentence: str
    pattern: str
    holds: Callable[[int], bool]

    def code(self, variable: str) -> str:
        return self.pattern.format(variable)


def generate(seed: int, count: int) -> list[dict[str, Any]]:
    """``count`` problems, no two of which ask for the same function; a larger count only adds problems at the end.

    Each is ``{"id", "prompt", "solution", "answer", "entry_point", "tests"}``: the prompt is a comment and the ``def``
    line, the solution the body, ``tests`` a list of ``[arguments, expected]``. Raises UserError when ``count`` is more
    than there are functions (some 50,000).
    """
    draw = random.Random(f"tiny_code {seed}")
    problems: list[dict[str, Any]] = []
    seen: set[Any] = set()
    refused = 0
    while len(problems) < count:
        meaning, problem = draw.choice(_FAMILIES)(draw)
        if meaning in seen:
            refused += 1
            if refused > 1000 * (len(problems) + 1):
                raise UserError(f"tiny_code has no {count} different functions; ask for at most {len(problems)}")
            continue
        seen.add(meaning)
        problems.append({"id": f"tiny_code-{seed}-{len(problems)}", **problem})
    return problems


def _one_operation(draw: random.Random) -> _Operation:
    sign = draw.choice("+-*")
    if sign == "*":
        return _Operation(draw.randint(2, 5), 0)
    return _Operation(1, draw.randint(1, 20) * (1 if sign == "+" else -1))


def _operations(draw: random.Random) -> _Operation:
    """One operation, or (every second time) a multiplication and then an addition or subtraction."""
    if draw.random() < 0.5:
        return _one_operation(draw)
    return _Operation(draw.randint(2, 5), draw.randint(1, 20) * draw.choice((1, -1)))


def _condition(draw: random.Random) -> _Condition:
    kind = draw.choice(("even", "odd", "greater", "less"))
    if kind == "even":
        return _Condition("even numbers", "is even", "{} % 2 == 0", lambda x: x % 2 == 0)
    if kind == "odd":
        return _Condition("odd numbers", "is odd", "{} % 2 == 1", lambda x: x % 2 == 1)
    bound = draw.randint(3, 15)
    if kind == "greater":
        return _Condition(
            f"numbers greater than {bound}", f"is greater than {bound}", f"{{}} > {bound}", lambda x: x > bound
        )
    return _Condition(f"numbers less than {bound}", f"is less than {bound}", f"{{}} < {bound}", lambda x: x < bound)


def _choose_between(draw: random.Random) -> tuple[Any, dict[str, Any]]:
    """If a condition holds then one operation, else another."""
    condition, yes, no = _condition(draw), _one_operation(draw), _one_operation(draw)
    while no == yes:
        no = _one_operation(draw)
    description = draw.choice(
        (
            "Return x {yes} if x {is_}, else x {no}.",
            "If x {is_}, return x {yes}, else return x {no}.",
        )
    ).format(yes=yes.words, no=no.words, is_=condition.sentence)
    test, y = condition.code("x"), draw.choice(("y", "out"))
    body = draw.choice(
        (
            [f"if {test}:", f"    return {yes.code('x')}", f"return {no.code('x')}"],
            [f"if {test}:", f"    return {yes.code('x')}", "else:", f"    return {no.code('x')}"],
            [f"return {yes.code('x')} if {test} else {no.code('x')}"],
            [f"{y} = {no.code('x')}", f"if {test}:", f"    {y} = {yes.code('x')}", f"return {y}"],
        )
    )
    true_at = [x for x in range(21) if condition.holds(x)]
    false_at = [x for x in range(21) if not condition.holds(x)]
    arguments = draw.sample(true_at, 3) + draw.sample(false_at, _TESTS - 3)
    # "x is odd" with the two swapped is the same function as "x is even", and so for less and greater.
    swapped = {"is odd": "is even"} | {f"is less than {b}": f"is greater than {b - 1}" for b in range(21)}
    if condition.sentence in swapped:
        meaning = ("between", swapped[condition.sentence], no, yes)
    else:
        meaning = ("between", condition.sentence, yes, no)
    return meaning, _finish(draw, description, "x", body, arguments, lambda x: yes(x) if condition.holds(x) else no(x))


def _reduce(draw: random.Random) -> tuple[Any, dict[str, Any]]:
    """Sum, count or largest of the numbers of a list that meet a condition, then an operation."""
    condition, after = _condition(draw), _operations(draw)
    kind = draw.choice(("sum", "count", "largest"))
    description = draw.choice(
        (
            f"Return the {kind} of the {condition.words} in xs, {after.words}.",
            f"Take the {kind} of the {condition.words} in xs and return it {after.words}.",
        )
    )
    x, total, ys = draw.choice(("x", "n")), draw.choice(("y", "out")), draw.choice(("ys", "kept"))
    test = condition.code(x)
    change, whole, function = {
        "sum": (f"{total} += {x}", f"sum({x} for {x} in xs if {test})", f"sum({ys})"),
        "count": (f"{total} += 1", f"sum(1 for {x} in xs if {test})", f"len({ys})"),
        "largest": (f"{total} = max({total}, {x})", f"max({x} for {x} in xs if {test})", f"max({ys})"),
    }[kind]
    body = draw.choice(
        (
            [f"{total} = 0", f"for {x} in xs:", f"    if {test}:", f"        {change}", f"return {after.code(total)}"],
            [f"return {after.code(whole)}"],
            [f"{ys} = [{x} for {x} in xs if {test}]", f"return {after.code(function)}"],
            [f"{total} = {whole}", f"return {after.code(total)}"],
        )
    )
    result: Callable[[list[int]], int] = {"sum": sum, "count": len, "largest": max}[kind]

    def expected(xs: list[int]) -> int:
        return after(result([number for number in xs if condition.holds(number)]))

    arguments = [_list(draw, condition) for _ in range(_TESTS)]
    return (kind, condition.sentence, after), _finish(draw, description, "xs", body, arguments, expected)


def _transform(draw: random.Random) -> tuple[Any, dict[str, Any]]:
    """The list of the numbers that meet a condition, each after an operation."""
    condition, each = _condition(draw), _operations(draw)
    description = draw.choice(
        (
            f"Return the {condition.words} in xs, each {each.words}.",
            f"Take the {condition.words} in xs and return each {each.words}.",
        )
    )
    x, out, ys = draw.choice(("x", "n")), draw.choice(("y", "out")), draw.choice(("ys", "kept"))
    test = condition.code(x)
    body = draw.choice(
        (
            [
                f"{out} = []",
                f"for {x} in xs:",
                f"    if {test}:",
                f"        {out}.append({each.code(x)})",
                f"return {out}",
            ],
            [f"return [{each.code(x)} for {x} in xs if {test}]"],
            [f"{ys} = [{x} for {x} in xs if {test}]", f"return [{each.code(x)} for {x} in {ys}]"],
        )
    )
    arguments = [_list(draw, condition) for _ in range(_TESTS)]

    def expected(xs: list[int]) -> list[int]:
        return [each(number) for number in xs if condition.holds(number)]

    return ("each", condition.sentence, each), _finish(draw, description, "xs", body, arguments, expected)


_FAMILIES = (_choose_between, _choose_between, _reduce, _reduce, _transform)


def _list(draw: random.Random, condition: _Condition) -> list[int]:
    """Three to six numbers from 0 to 20, at least one that meets the condition and one that does not."""
    meets = [number for number in range(21) if condition.holds(number)]
    fails = [number for number in range(21) if not condition.holds(number)]
    numbers = [draw.choice(meets), draw.choice(fails)] + [draw.randint(0, 20) for _ in range(draw.randint(1, 4))]
    draw.shuffle(numbers)
    return numbers


def _finish(
    draw: random.Random,
    description: str,
    parameter: str,
    body: list[str],
    arguments: list[Any],
    expected: Callable[[Any], Any],
) -> dict[str, Any]:
    name = draw.choice(("f", "g", "solve"))
    solution = "\n".join("    " + line for line in body)
    return {
        "prompt": f"# {description}\ndef {name}({parameter}):\n",
        "solution": solution,
        "answer": solution,
        "entry_point": name,
        "tests": [[[argument], expected(argument)] for argument in arguments],
    }
