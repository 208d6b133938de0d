"""The rule by which a claim is judged, over 95% intervals; nobody types a verdict.

A claim is a list of cells (model and benchmark), each with quantities that must lie on one side of a threshold.

    reproduced      in every cell the whole interval of every quantity lies on the claimed side
    trend only      not so, but in more than half of the cells the estimate of every quantity does
    not reproduced  otherwise
    not attempted at this scale   there is no cell: the experiment names no runs for it, or evaluates none

A cell whose arms were evaluated and cannot be compared (or, with ``--partial``, are missing) says so, and counts as one
that is not on the claimed side.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from sbd.statistics import Interval

SIDES = {"at least": operator.ge, "more than": operator.gt, "at most": operator.le, "less than": operator.lt}
Side = Literal["at least", "more than", "at most", "less than"]


@dataclass(frozen=True)
class Quantity:
    """A number and the side of a threshold it must be on, with its interval over n problems (None: a calculation)."""

    name: str
    interval: Interval
    threshold: float
    side: Side = "at least"
    n: int | None = None

    def holds(self, value: float) -> bool:
        """Whether a value is on the claimed side."""
        return bool(SIDES[self.side](value, self.threshold))

    def by_interval(self) -> bool:
        """Whether the whole interval is on the claimed side."""
        return self.holds(self.interval.low) and self.holds(self.interval.high)

    def by_estimate(self) -> bool:
        """Whether the estimate is."""
        return self.holds(self.interval.estimate)

    def text(self) -> str:
        """As the table shows it: with as many decimals as tell on which side of the threshold each number is.

        A number without problems to draw from has no interval, and none is shown.
        """
        values = (self.interval.estimate, self.interval.low, self.interval.high)
        digits = next((d for d in range(2, 9) if all(self.holds(round(v, d)) == self.holds(v) for v in values)), 9)
        estimate, low, high = (f"{value:.{digits}f}" for value in values)
        return f"{self.name} {estimate}" + ("" if self.n is None else f" [{low}, {high}]")


@dataclass(frozen=True)
class Cell:
    """One place where a claim is tried; ``note`` says why there are no quantities."""

    where: str
    quantities: Sequence[Quantity]
    note: str = ""

    @property
    def n(self) -> int | None:
        """Number of problems; None for a calculation."""
        return next((q.n for q in self.quantities if q.n is not None), None)

    def holds(self, how: Callable[[Quantity], bool]) -> bool:
        """Whether every quantity does, of which there must be one."""
        return bool(self.quantities) and all(map(how, self.quantities))

    def text(self) -> str:
        """As the table shows it."""
        count = "" if self.n is None else f" (n = {self.n})"
        return f"{self.where}{count}: {', '.join(q.text() for q in self.quantities) or self.note}"


@dataclass(frozen=True)
class Claim:
    """What the paper says with its numbers, what must hold, and where it was tried."""

    name: str
    paper: str
    condition: str
    cells: Sequence[Cell]


def verdict(cells: Sequence[Cell]) -> str:
    """The rule of this module, over the cells of a claim."""
    if not cells:
        return "not attempted at this scale"
    if all(cell.holds(Quantity.by_interval) for cell in cells):
        return "reproduced"
    good = sum(cell.holds(Quantity.by_estimate) for cell in cells)
    return "trend only" if 2 * good > len(cells) else "not reproduced"
