"""tiny_gsm: word problems of two or three steps on the numbers 0 to 20, each with a worked solution.

The same calculation can be told in several ways, drawn at random, that differ in wording, order and length. That
variation is the point: with one fixed sentence per step a model knows every word in advance, and decoding many tokens
at once would cost nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

LARGEST = 20

_NAMES = {"Mia": "she", "Eva": "she", "Zoe": "she", "Ben": "he", "Leo": "he", "Tom": "he"}
_FOOD = ("apples", "eggs", "cakes")
_THINGS = ("books", "cards", "coins")

_STARTS = (
    "{Name} has {n} {things}.",
    "{Name} starts with {n} {things}.",
    "At first {Name} has {n} {things}.",
)
_QUESTIONS = (
    "How many {things} does {Name} have now?",
    "How many {things} are there in the end?",
    "Now how many {things} does {he} have?",
)

# An event: what the prompt says (three ways), and the verb that the solution uses.
_ADD = {
    "buys": ("{He} buys {n} more.", "Then {he} buys {n} {things} more.", "{Name} buys {n} other {things}."),
    "finds": ("{He} finds {n} more.", "Then {he} finds {n} {things} more.", "{Name} finds {n} other {things}."),
    "gets": (
        "{He} gets {n} more from {Friend}.",
        "Then {he} gets {n} {things} from {Friend}.",
        "{Name} gets {n} other {things} from {Friend}.",
    ),
}
_SUBTRACT = {
    "sells": ("{He} sells {n} of them.", "Then {he} sells {n} {things}.", "{Name} sells {n} of the {things}."),
    "loses": ("{He} loses {n} of them.", "Then {he} loses {n} {things}.", "{Name} loses {n} of the {things}."),
    "gives": (
        "{He} gives {n} to {Friend}.",
        "Then {he} gives {n} {things} to {Friend}.",
        "{Name} gives {n} of the {things} to {Friend}.",
    ),
    "eats": ("{He} eats {n} of them.", "Then {he} eats {n} {things}.", "{Name} eats {n} of the {things}."),
}
_DOUBLE = ("{He} doubles them.", "Then {he} doubles the {things}.", "{Name} makes them double.")
_HALVE = ("{He} burns half of them.", "Then {he} burns half of the {things}.", "{Name} burns half of the {things}.")

# The worked steps. {a} before, {n} the change, {b} after. Every group differs in order and in length.
_SOLVE_ADD = (
    "{S} {verb} {n} more {things}, so now {he} has {a} + {n} = {b} {bthings}.",
    "{a} + {n} = {b}, so {he} has {b} {bthings} now.",
    "There {awere} {a} {athings} and {s} {verb} {n}, which makes {a} + {n} = {b} in all.",
    "With the {n} {things} that {s} {verb} there {bare} {a} + {n} = {b}.",
)
_SOLVE_SUBTRACT = (
    "{S} {verb} {n} of the {things}, so now {he} has {a} - {n} = {b} left.",
    "{a} - {n} = {b}, so {b} {bthings} {bare} left.",
    "There {awere} {a} {athings} but {s} {verb} {n}, which leaves {a} - {n} = {b}.",
    "Without the {n} {things} that {s} {verb} there {bare} {a} - {n} = {b} left for {Name}.",
)
_SOLVE_DOUBLE = (
    "Double of {a} is {a} * 2 = {b}, so now {s} has {b} {bthings}.",
    "{a} * 2 = {b}, so there are {b} now.",
    "There {awere} {a} {athings} and now there are double, which makes {a} * 2 = {b} in all.",
    "With double the {things} there are {a} * 2 = {b}.",
)
_SOLVE_HALVE = (
    "Half of {a} is {a} / 2 = {b}, so now {s} has {b} {bthings} left.",
    "{a} / 2 = {b}, so {b} {bare} left.",
    "There {awere} {a} {athings} but half of them are gone, which leaves {a} / 2 = {b}.",
    "Without half of the {things} there {bare} {a} / 2 = {b} left for {Name}.",
)


@dataclass(frozen=True)
class _Step:
    """One event: its sentences for the prompt, its sentences for the solution, and the numbers."""

    prompt: tuple[str, ...]
    solution: tuple[str, ...]
    verb: str
    before: int
    change: int
    after: int


def generate(seed: int, count: int) -> list[dict[str, Any]]:
    """``count`` problems with different prompts; a larger count only adds problems at the end.

    Each is ``{"id", "prompt", "solution", "answer", "steps"}``; the prompt ends with a newline.
    """
    draw = random.Random(f"tiny_gsm {seed}")
    problems: list[dict[str, Any]] = []
    seen: set[str] = set()
    while len(problems) < count:
        problem = _problem(draw)
        if problem["prompt"] not in seen:
            seen.add(problem["prompt"])
            problems.append({"id": f"tiny_gsm-{seed}-{len(problems)}", **problem})
    return problems


def _problem(draw: random.Random) -> dict[str, Any]:
    name, friend = draw.sample(sorted(_NAMES), 2)
    things = draw.choice(_FOOD + _THINGS)
    start = draw.randint(2, LARGEST)
    steps: list[_Step] = []
    number = start
    for _ in range(draw.choice((2, 3))):
        steps.append(_step(draw, number, things in _FOOD, {step.verb for step in steps}))
        number = steps[-1].after

    who = {"Name": name, "Friend": friend, "he": _NAMES[name], "He": _NAMES[name].capitalize(), "things": things}
    sentences = [draw.choice(_STARTS).format(n=start, **who)]
    sentences += [draw.choice(step.prompt).format(n=step.change, **who) for step in steps]
    sentences.append(draw.choice(_QUESTIONS).format(**who))

    worked = []
    for step in steps:
        subject = draw.choice((name, who["he"]))
        worked.append(
            draw.choice(step.solution).format(
                **who,
                S=subject[0].upper() + subject[1:],
                s=subject,
                verb=step.verb,
                a=step.before,
                n=step.change,
                b=step.after,
                athings=_plural(things, step.before),
                bthings=_plural(things, step.after),
                awere="was" if step.before == 1 else "were",
                bare="is" if step.after == 1 else "are",
            )
        )
    return {
        "prompt": " ".join(sentences) + "\n",
        "solution": " ".join(worked) + f"\nThe answer is {number}.",
        "answer": str(number),
        "steps": len(steps),
    }


def _step(draw: random.Random, number: int, edible: bool, told: set[str]) -> _Step:
    """A step that is possible from ``number``: changes are 2 to 9, results 2 to 20, or 0 and 1 by subtraction.

    No problem has a verb twice, so that a sentence of the solution says which event it is about.
    """
    kinds = []
    if number + 2 <= LARGEST:
        kinds += ["add"] * 4
    if number >= 2:
        kinds += ["subtract"] * 4
    if 2 <= number <= LARGEST // 2 and "doubles" not in told:
        kinds.append("double")
    if number >= 4 and number % 2 == 0 and "halves" not in told:
        kinds.append("halve")
    kind = draw.choice(kinds)
    if kind == "add":
        verb = draw.choice(sorted(set(_ADD) - told))
        change = draw.randint(2, min(9, LARGEST - number))
        return _Step(_ADD[verb], _SOLVE_ADD, verb, number, change, number + change)
    if kind == "subtract":
        verb = draw.choice([verb for verb in sorted(set(_SUBTRACT) - told) if edible or verb != "eats"])
        change = draw.randint(2, min(9, number))
        return _Step(_SUBTRACT[verb], _SOLVE_SUBTRACT, verb, number, change, number - change)
    if kind == "double":
        return _Step(_DOUBLE, _SOLVE_DOUBLE, "doubles", number, number, number * 2)
    return _Step(_HALVE, _SOLVE_HALVE, "halves", number, number // 2, number // 2)


def _plural(things: str, number: int) -> str:
    return things[:-1] if number == 1 else things
