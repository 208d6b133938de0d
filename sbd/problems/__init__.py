"""Seeded problem generators with worked solutions, and disjoint splits of what they make. Standard library only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sbd.errors import UserError
from sbd.problems import functions, word_problems

GENERATORS: dict[str, Callable[[int, int], list[dict[str, Any]]]] = {
    "tiny_gsm": word_problems.generate,
    "tiny_code": functions.generate,
}


def split(name: str, seed: int, *, train: int, validation: int, test: int) -> dict[str, list[dict[str, Any]]]:
    """Problems of generator ``name`` in three parts that share no prompt.

    The test part comes first in the stream and the training part last, so that more training problems leave the
    others as they were. Raises UserError for an unknown name or a negative size.
    """
    if name not in GENERATORS:
        raise UserError(f"problem generator {name!r} is unknown; use one of {sorted(GENERATORS)}")
    sizes = {"test": test, "validation": validation, "train": train}
    for part, size in sizes.items():
        if size < 0:
            raise UserError(f"the {part} split of {name} has size {size}; it must be 0 or more")
    problems = iter(GENERATORS[name](seed, sum(sizes.values())))
    return {part: [next(problems) for _ in range(size)] for part, size in sizes.items()}
