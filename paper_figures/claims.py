"""The claims of the paper beside the evidence of this run; every verdict follows from one rule over 95% intervals.

A claim is a list of cells (model and benchmark), each with quantities that must lie on one side of a threshold.

    reproduced      in every cell the whole interval of every quantity lies on the claimed side
    trend only      not so, but in more than half of the cells the estimate of every quantity does
    not reproduced  otherwise
    not attempted at this scale   the experiment names no runs for it, or evaluates none
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paper_figures import command, inputs, tables
from paper_figures.labels import model_label
from sbd import roofline
from sbd.config import Experiment
from sbd.experiment_files import load_experiment
from sbd.selection import Arm, Figures
from sbd.statistics import Interval

MARGIN = 2.0
"""Points of score within which two arms count as equally accurate."""


@dataclass(frozen=True)
class Quantity:
    """A number with its interval that must be at least (or at most) a threshold."""

    name: str
    interval: Interval
    threshold: float
    at_least: bool = True

    def by_interval(self) -> bool:
        """Whether the whole interval is on the claimed side."""
        return self.interval.low >= self.threshold if self.at_least else self.interval.high <= self.threshold

    def by_estimate(self) -> bool:
        """Whether the estimate is."""
        estimate = self.interval.estimate
        return estimate >= self.threshold if self.at_least else estimate <= self.threshold

    def text(self) -> str:
        """As the table shows it."""
        return f"{self.name} {self.interval.estimate:.2f} [{self.interval.low:.2f}, {self.interval.high:.2f}]"


@dataclass(frozen=True)
class Cell:
    """One place where a claim is tried."""

    where: str
    quantities: Sequence[Quantity]


@dataclass(frozen=True)
class Claim:
    """What the paper says, what must hold, and where it was tried."""

    name: str
    paper: str
    condition: str
    cells: Sequence[Cell]


def verdict(cells: Sequence[Cell]) -> str:
    """The rule of this module."""
    if not cells:
        return "not attempted at this scale"
    if all(quantity.by_interval() for cell in cells for quantity in cell.quantities):
        return "reproduced"
    good = sum(all(quantity.by_estimate() for quantity in cell.quantities) for cell in cells)
    return "trend only" if 2 * good > len(cells) else "not reproduced"


@dataclass(frozen=True)
class Evidence:
    """The CSV files, looked up by arm."""

    experiment: Experiment
    records: pd.DataFrame
    differences: pd.DataFrame

    @property
    def figures(self) -> Figures:
        """What the experiment shows."""
        return self.experiment.figures

    def seeds(self, arm: Arm, baseline: Arm) -> Iterator[tuple[str, Arm, Arm]]:
        """The two arms, and again for every seed that both of their runs were repeated with: each is a cell."""
        for index, (one, two) in enumerate(self.experiment.seeds_of(arm.run, baseline.run)):
            name = f", seed {index + 1}" if index else ""
            yield name, Arm(run=one, decoder=arm.decoder), Arm(run=two, decoder=baseline.decoder)

    def places(self) -> Iterator[tuple[str, str, str]]:
        """(model, benchmark, how a cell is called)."""
        for model in self.experiment.models:
            for benchmark in self.experiment.benchmarks:
                label = self.experiment.benchmarks[benchmark].label or benchmark
                yield model, benchmark, f"{model_label(self.experiment, model)}, {label}"

    def difference(self, model: str, benchmark: str, arm: Arm, baseline: Arm) -> Interval | None:
        """Paired difference in points; None where that pair was not evaluated."""
        row = self._row(model, benchmark, arm, baseline)
        return None if row is None else Interval(*(float(row[name]) for name in ("difference", "low", "high")))

    def speed(self, model: str, benchmark: str, arm: Arm, baseline: Arm) -> Interval | None:
        """Tokens per forward pass of the arm."""
        row = self._row(model, benchmark, arm, baseline)
        if row is None or math.isnan(float(row["tokens_per_forward"])):
            return None
        return Interval(*(float(row[f"tokens_per_forward{end}"]) for end in ("", "_low", "_high")))

    def _row(self, model: str, benchmark: str, arm: Arm, baseline: Arm) -> dict[str, Any] | None:
        key = (model, benchmark, arm.run, arm.decoder, baseline.run, baseline.decoder)
        if key not in self.differences.index:
            return None
        return inputs.row_at(self.differences, key)

    def record(self, model: str, arm: Arm, benchmark: str) -> dict[str, Any] | None:
        """The record of an arm that generates text."""
        found = inputs.where(self.records, model=model, run=arm.run, decoder=arm.decoder, benchmark=benchmark)
        if found.empty or np.isnan(found["tokens_per_forward"].to_numpy(dtype=float)).any():
            return None
        return {str(name): value for name, value in found.iloc[0].items()}


def speed_up(evidence: Evidence) -> list[Cell]:
    """gamma_low reaches 3 tokens per forward within the margin of the baseline."""
    chosen = evidence.figures.claims
    cells = []
    for model, benchmark, where in evidence.places():
        if not (chosen and chosen.gamma_low):
            break
        for seed, arm, baseline in evidence.seeds(chosen.gamma_low, chosen.baseline):
            speed = evidence.speed(model, benchmark, arm, baseline)
            difference = evidence.difference(model, benchmark, arm, baseline)
            if speed and difference:
                points = Quantity("difference", difference, -MARGIN)
                cells.append(Cell(where + seed, [Quantity("tokens per forward", speed, 3.0), points]))
    return cells


def _differences(evidence: Evidence, arm: Arm | None, baseline: Arm | None, limit: float, at_least: bool) -> list[Cell]:
    if not (arm and baseline):
        return []
    found = (
        (where + seed, evidence.difference(model, benchmark, one, two))
        for model, benchmark, where in evidence.places()
        for seed, one, two in evidence.seeds(arm, baseline)
    )
    return [Cell(where, [Quantity("difference", d, limit, at_least)]) for where, d in found if d]


def quality_kept(evidence: Evidence) -> list[Cell]:
    """The SBD run, decoded by next-token prediction, is within the margin of the baseline."""
    chosen = evidence.figures.claims
    return _differences(evidence, chosen.sbd_ntp, chosen.baseline, -MARGIN, True) if chosen else []


def loss_needed(evidence: Evidence) -> list[Cell]:
    """Without the NTP loss the run loses at least 5 points."""
    chosen = evidence.figures.claims
    if not chosen:
        return []
    return _differences(evidence, chosen.without_ntp_loss, chosen.with_ntp_loss or chosen.sbd_ntp, -5.0, False)


def gap_closes(evidence: Evidence) -> list[Cell]:
    """The gap to the next-token twin is smaller after the longest training than after the shortest.

    The two gaps are combined by their outer ends, which makes the interval wider than it need be.
    """
    chosen, claims = evidence.figures.figure5, evidence.figures.claims
    if not chosen or len(chosen.lengths) < 2:
        return []
    low = claims.gamma_low.decoder if claims and claims.gamma_low else None
    decoder = low if low in chosen.decoders else chosen.decoders[0]
    cells = []
    for model, benchmark, where in evidence.places():
        ends = []
        for length in (chosen.lengths[0], chosen.lengths[-1]):
            twin = Arm(run=length.baseline, decoder=chosen.baseline_decoder)
            ends.append(evidence.difference(model, benchmark, Arm(run=length.run, decoder=decoder), twin))
        short, long = ends
        if short and long:
            closed = Interval(long.estimate - short.estimate, long.low - short.high, long.high - short.low)
            cells.append(
                Cell(where, [Quantity("gap closed by", closed, 0.0), Quantity("shortest behind by", short, 0.0, False)])
            )
    return cells


def bound_against_factor(evidence: Evidence) -> list[Cell]:
    """The entropy bound is more accurate than the factor rule at equal tokens per forward.

    The factor rule's score is read off between its two neighbouring points; outside of them nothing is compared. The
    interval joins the two arms' own intervals as if independent, which is wider than a paired one.
    """
    chosen = evidence.figures.claims
    cells = []
    for model, benchmark, where in evidence.places():
        if not chosen:
            break
        factor = [row for arm in chosen.factor if (row := evidence.record(model, arm, benchmark)) is not None]
        factor.sort(key=lambda row: row["tokens_per_forward"])
        x = np.array([row["tokens_per_forward"] for row in factor], dtype=float)
        for arm in chosen.entropy_bound:
            row = evidence.record(model, arm, benchmark)
            if row is None or len(x) < 2 or not x[0] <= row["tokens_per_forward"] <= x[-1]:
                continue
            score, low, high = (
                float(np.interp(row["tokens_per_forward"], x, [f[name] for f in factor]))
                for name in ("score", "score_low", "score_high")
            )
            better = row["score"] - score
            down = math.hypot(row["score"] - row["score_low"], high - score)
            up = math.hypot(row["score_high"] - row["score"], score - low)
            interval = Interval(better, better - down, better + up)
            cells.append(Cell(f"{where}, {arm.decoder}", [Quantity("points above factor", interval, 0.0)]))
    return cells


def block_16_is_cheap(_: Evidence) -> list[Cell]:
    """By the roofline with true sizes, on an H100: at most 10% slower. A calculation: its interval is a point."""
    cells = []
    for shape in (roofline.LLAMA, roofline.QWEN):
        model = roofline.Roofline(shape, roofline.H100)
        for batch in (1, 4, 8, 16):
            worst = max(model.slowdown(batch, 16, cached) for cached in roofline.KV_LENGTHS)
            quantity = Quantity("slow-down", Interval(worst, worst, worst), 1.10, False)
            cells.append(Cell(f"{shape.name}, batch {batch}, worst KV length", [quantity]))
    return cells


CLAIMS: list[tuple[str, str, str, Callable[[Evidence], list[Cell]]]] = [
    (
        "3 to 5 times fewer forward passes at the same accuracy",
        "abstract and table 1",
        f"gamma_low: tokens per forward >= 3 and difference to NTP >= -{MARGIN:g} points",
        speed_up,
    ),
    (
        "Next-token quality is kept",
        "table 1, rows SBD / NTP",
        f"SBD run decoded by NTP: difference to the NTP run >= -{MARGIN:g} points",
        quality_kept,
    ),
    (
        "The next-token loss is needed",
        "figure 4 and table 2",
        "SBD without NTP loss: difference to SBD <= -5 points, both decoded by NTP",
        loss_needed,
    ),
    (
        "More training steps close the gap to next-token training",
        "figure 5",
        "gap to the twin closed by >= 0 points from shortest to longest, shortest behind its twin",
        gap_closes,
    ),
    (
        "The entropy bound beats the factor rule at equal passes",
        "figures 12 and 13",
        "points above the factor rule at equal tokens per forward >= 0",
        bound_against_factor,
    ),
    (
        "A block of 16 costs a few percent",
        "tables 3 and 4",
        "slow-down of a pass <= 1.10 by the roofline with true sizes",
        block_16_is_cheap,
    ),
]


def build(evidence: Evidence) -> list[Claim]:
    """All claims with their cells."""
    return [Claim(name, paper, condition, cells(evidence)) for name, paper, condition, cells in CLAIMS]


def layout(claims: Sequence[Claim], scale: str) -> tuple[pd.DataFrame, tables.Layout, tables.Layout]:
    """A row per cell as numbers, a row per claim as text, and the same without the evidence."""
    numbers = [
        [
            *(claim.name, cell.where, q.name, q.interval.estimate, q.interval.low, q.interval.high, q.threshold),
            "at least" if q.at_least else "at most",
            verdict(claim.cells),
        ]
        for claim in claims
        for cell in claim.cells or [Cell("none", [Quantity("none", Interval(math.nan, math.nan, math.nan), math.nan)])]
        for q in cell.quantities
    ]
    columns = ["claim", "where", "quantity", "estimate", "low", "high", "threshold", "side", "verdict"]
    rows = []
    for claim in claims:
        evidence = "; ".join(f"{c.where}: {', '.join(q.text() for q in c.quantities)}" for c in claim.cells)
        rows.append([claim.name, claim.paper, claim.condition, evidence or "none", verdict(claim.cells)])
    caption = (
        f"Scale {scale}; evidence of this run with 95% intervals over problems; a run that was repeated with another "
        "seed is another cell. Reproduced: in every cell the whole interval of every quantity is on the "
        "claimed side. Trend only: the estimates are in more than half of them. The verdict is computed, not written."
    )
    header = ["claim", "in the paper", "what must hold", "evidence", "verdict"]
    short = tables.Layout([*header[:3], header[4]], [[*row[:3], row[4]] for row in rows], caption, left=4)
    return pd.DataFrame(numbers, columns=pd.Index(columns)), tables.Layout(header, rows, caption, left=5), short


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv and differences.csv -> claims.csv, .md and .tex."""
    parser = command.parser(
        __doc__,
        records="records.csv of `python -m sbd collect`",
        differences="differences.csv of `python -m sbd collect`",
    )
    options = parser.parse_args(arguments)
    experiment = load_experiment(options.experiment)
    command.required(experiment.figures.claims, "claims", options.experiment)
    records, differences = inputs.read_records(options.records), inputs.read_differences(options.differences)
    claims = build(Evidence(experiment, records, differences))
    return tables.write(options.output, "claims", *layout(claims, experiment.scale))


if __name__ == "__main__":
    command.run(main)
