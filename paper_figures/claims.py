"""The claims of the paper beside the evidence of this run; ``verdicts`` has the rule that judges them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from paper_figures import command, decoding_speed, inputs, reported, tables
from paper_figures.labels import ABSENT, model_label, run_label, sampling_label
from paper_figures.verdicts import Cell, Claim, Quantity, Side, verdict
from sbd import differences as paired
from sbd import roofline
from sbd.config import Experiment
from sbd.experiment_files import load_experiment
from sbd.selection import Arm, Figures, arms_of
from sbd.statistics import Interval

MARGIN = 2.0
"""Points of score within which two arms count as equally accurate."""

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Evidence:
    """The CSV files, looked up by arm.

    speed: the passes of one and of k tokens that `python -m sbd speed` measured; None where nothing was timed.
    missing: with ``--partial`` the names of rows that are asked for and not there; without it one of them is an error.
    """

    experiment: Experiment
    differences: pd.DataFrame
    contrasts: pd.DataFrame
    speed: pd.DataFrame | None = None
    missing: list[str] | None = None

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

    def asks(self, model: str, benchmark: str, *arms: Arm) -> bool:
        """Whether the experiment evaluates all of these arms there."""
        return self._jobs.issuperset((model, arm.run, arm.decoder, benchmark) for arm in arms)

    @cached_property
    def _jobs(self) -> set[tuple[str, str, str, str]]:
        return set(self.experiment.jobs())

    def difference(self, model: str, benchmark: str, arm: Arm, baseline: Arm) -> Row | None:
        """The row of a pair that is asked for. Raises UserError without it, but for ``--partial``."""
        pair = (model, benchmark, arm.run, arm.decoder, baseline.run, baseline.decoder)
        return inputs.difference(self.differences, self.experiment, pair, self.missing)

    def contrast(self, model: str, benchmark: str, name: str, arm: Arm) -> Row | None:
        """The row of a contrast that is asked for; as above."""
        key = (model, benchmark, name, arm.run, arm.decoder)
        return inputs.contrast(self.contrasts, self.experiment, key, self.missing)


MISSING = "missing"


def _points(name: str, row: Row, threshold: float, side: Side = "at least") -> Quantity:
    """A difference in points."""
    interval = Interval(*(float(row[end]) for end in ("difference", "low", "high")))
    return Quantity(name, interval, threshold, side, int(row["n"]))


def _pairs(
    evidence: Evidence, arm: Arm | None, baseline: Arm | None, quantities: Callable[[Row], list[Quantity]]
) -> list[Cell]:
    """A cell per model, benchmark and seed on which both arms are evaluated and that has quantities."""
    if not (arm and baseline):
        return []
    cells = []
    for model, benchmark, where in evidence.places():
        for seed, one, two in evidence.seeds(arm, baseline):
            if not evidence.asks(model, benchmark, one, two):
                continue
            row = evidence.difference(model, benchmark, one, two)
            found = quantities(row) if row else []
            if found or row is None:
                cells.append(Cell(where + seed, found, "" if found else MISSING))
    return cells


def speed_up(evidence: Evidence) -> list[Cell]:
    """gamma_low reaches 3 tokens per forward within the margin of the baseline, where text is generated."""

    def quantities(row: Row) -> list[Quantity]:
        speed = Interval(*(float(row[f"tokens_per_forward{end}"]) for end in ("", "_low", "_high")))
        if math.isnan(speed.estimate):
            return []
        return [Quantity("tokens per forward", speed, 3.0, n=int(row["n"])), _points("difference", row, -MARGIN)]

    chosen = evidence.figures.claims
    return _pairs(evidence, chosen.gamma_low, chosen.baseline, quantities) if chosen else []


def quality_kept(evidence: Evidence) -> list[Cell]:
    """The SBD run, decoded by next-token prediction, is within the margin of the baseline."""
    chosen = evidence.figures.claims
    if not chosen:
        return []
    return _pairs(evidence, chosen.sbd_ntp, chosen.baseline, lambda row: [_points("difference", row, -MARGIN)])


def _falls(evidence: Evidence, arm: Arm | None, reference: Arm | None) -> list[Cell]:
    return _pairs(evidence, arm, reference, lambda row: [_points("difference", row, -5.0, "at most")])


def loss_needed(evidence: Evidence) -> list[Cell]:
    """Without the NTP loss the run loses at least 5 points."""
    chosen = evidence.figures.claims
    if not chosen:
        return []
    return _falls(evidence, chosen.without_ntp_loss, chosen.with_ntp_loss or chosen.sbd_ntp)


def masked_loss_needed(evidence: Evidence) -> list[Cell]:
    """Without the MATP loss, decoded in blocks, the run loses at least 5 points."""
    chosen = evidence.figures.claims
    if not chosen:
        return []
    return _falls(evidence, chosen.without_matp_loss, chosen.with_matp_loss or chosen.gamma_low)


def gap_closes(evidence: Evidence) -> list[Cell]:
    """The gap to the next-token twin is smaller after the longest training than after the shortest, where it is one.

    The difference of both gaps is taken problem by problem.
    """
    cells = []
    for model, benchmark, where in evidence.places():
        for index, arms in enumerate(paired.gap_arms(evidence.experiment)):
            if not evidence.asks(model, benchmark, *arms):
                continue
            closed = evidence.contrast(model, benchmark, paired.GAP_CLOSED, arms[0])
            short = evidence.difference(model, benchmark, *arms[2:])
            name = f"{where}, {sampling_label(evidence.experiment, arms[0])}" + (f", seed {index + 1}" if index else "")
            if closed and short:
                behind = _points("shortest minus its twin", short, 0.0, "less than")
                cells.append(Cell(name, [_points("gap closed by", closed, 0.0, "more than"), behind]))
            else:
                cells.append(Cell(name, [], MISSING))
    return cells


def bound_against_factor(evidence: Evidence) -> list[Cell]:
    """The entropy bound is more accurate than the factor rule at equal forward passes per problem.

    The factor rule's score is that of its two neighbouring arms, weighted to the same passes, problem by problem.
    """
    cells = []
    for model, benchmark, where in evidence.places():
        for arm, factors in paired.factor_arms(evidence.experiment):
            if not (evidence.asks(model, benchmark, arm) and any(evidence.asks(model, benchmark, f) for f in factors)):
                continue
            row = evidence.contrast(model, benchmark, paired.ABOVE_FACTOR, arm)
            labels = run_label(evidence.experiment, arm.run), sampling_label(evidence.experiment, arm)
            name = f"{where}, {', '.join(labels)}"
            if row is None:
                cells.append(Cell(name, [], MISSING))
            elif math.isnan(row["difference"]):
                note = (
                    f"not comparable at equal passes: {row['passes']:.1f} a problem, "
                    f"factor {row['passes_low']:.1f} to {row['passes_high']:.1f} (n = {row['n']})"
                )
                cells.append(Cell(name, [], note))
            else:
                cells.append(Cell(name, [_points("points above factor", row, 0.0, "more than")]))
    return cells


def block_16_is_cheap(evidence: Evidence) -> list[Cell]:
    """At most 10% slower, by the roofline with true sizes on an H100, and as this run measured it on its own machine.

    Neither has an interval: the one is a calculation, the other the ratio of two medians.
    """
    cells = []
    for shape in (roofline.LLAMA, roofline.QWEN):
        model = roofline.Roofline(shape, roofline.H100)
        for batch in (1, 4, 8, 16):
            worst = max(model.slowdown(batch, 16, cached) for cached in roofline.KV_LENGTHS)
            quantity = Quantity("slow-down", Interval(worst, worst, worst), 1.10, "at most")
            cells.append(Cell(f"{shape.name} on an H100 by the roofline, batch {batch}, worst KV length", [quantity]))
    if evidence.speed is None:
        return cells
    timed = evidence.speed.loc[(evidence.speed["block_size"] == 16) & evidence.speed["ms_pass_k"].notna()]
    for row in timed.drop_duplicates(["model", "batch"]).to_dict("records"):
        ratio = float(row["ms_pass_k"] / row["ms_pass_1"])
        quantity = Quantity("slow-down", Interval(ratio, ratio, ratio), 1.10, "at most")
        name = model_label(evidence.experiment, str(row["model"]))
        machine = f"{row['device']}, {row['dtype']}, threads: {int(row['threads'])}"
        cells.append(Cell(f"{name} measured on {machine}, batch {int(row['batch'])}", [quantity]))
    return cells


@dataclass(frozen=True)
class Rule:
    """A claim, what the paper has for it (from the folder of its numbers), and how it is tried."""

    name: str
    paper: Callable[[Path], str]
    condition: str
    cells: Callable[[Evidence], list[Cell]]


CLAIMS = [
    Rule(
        "3 to 5 times fewer forward passes at the same accuracy",
        reported.speed_up,
        f"gamma_low: tokens per forward >= 3 and difference to NTP >= -{MARGIN:g} points",
        speed_up,
    ),
    Rule(
        "Next-token quality is kept",
        reported.quality_kept,
        f"SBD run decoded by NTP: difference to the NTP run >= -{MARGIN:g} points",
        quality_kept,
    ),
    Rule(
        "The next-token loss is needed",
        reported.loss_needed,
        "SBD without NTP loss: difference to SBD <= -5 points, both decoded by NTP",
        loss_needed,
    ),
    Rule(
        "Without the masked-token loss, decoding in blocks falls clearly below",
        reported.without_matp_loss,
        "SBD without MATP loss: difference to SBD <= -5 points, both decoded in blocks",
        masked_loss_needed,
    ),
    Rule(
        "More training steps close the gap to next-token training",
        reported.gap_closes,
        "gap to the twin closed by > 0 points from shortest to longest, and shortest below its twin",
        gap_closes,
    ),
    Rule(
        "The entropy bound beats the factor rule at equal passes",
        reported.bound_against_factor,
        "points above the factor rule at equal forward passes per problem > 0",
        bound_against_factor,
    ),
    Rule(
        "A block of 16 costs a few percent",
        reported.block_16,
        "slow-down of a pass <= 1.10, by the roofline and as measured",
        block_16_is_cheap,
    ),
]


def build(evidence: Evidence, paper: Path) -> list[Claim]:
    """All claims with their cells; ``paper`` is the folder of the paper's numbers."""
    return [Claim(rule.name, rule.paper(paper), rule.condition, rule.cells(evidence)) for rule in CLAIMS]


def layout(
    claims: Sequence[Claim], scale: str, missing: Sequence[str] = ()
) -> tuple[pd.DataFrame, tables.Layout, tables.Layout]:
    """A row per cell as numbers, a row per claim as text, and the same without the evidence."""
    nothing = Quantity("none", Interval(math.nan, math.nan, math.nan), math.nan)
    numbers = [
        [
            *(claim.name, cell.where, q.name, q.n, q.interval.estimate),
            *((None, None) if q.n is None else (q.interval.low, q.interval.high)),
            *(q.threshold, "" if q is nothing else q.side, cell.note, verdict(claim.cells)),
        ]
        for claim in claims
        for cell in claim.cells or [Cell("none", [])]
        for q in cell.quantities or [nothing]
    ]
    columns = ["claim", "where", "quantity", "n", "estimate", "low", "high", "threshold", "side", "note", "verdict"]
    frame = pd.DataFrame(numbers, columns=pd.Index(columns)).astype({"n": "Int64"})
    rows = []
    for claim in claims:
        evidence = "; ".join(cell.text() for cell in claim.cells)
        counts = sorted({cell.n for cell in claim.cells if cell.n is not None})
        n = " to ".join(map(str, dict.fromkeys(counts[:1] + counts[-1:]))) or ABSENT
        rows.append([claim.name, claim.paper, claim.condition, n, evidence or "none", verdict(claim.cells)])
    caption = (
        f"Scale {scale}; evidence of this run with 95% intervals over n problems; a calculation and a ratio of "
        "measured times have none, and count as the number alone. A run that was repeated with another seed is "
        "another cell. Reproduced: in every cell the whole interval of every quantity is on the claimed side. Trend "
        "only: the estimates are in more than half of them. A cell that cannot be compared, or is missing, is not on "
        "the claimed side. The verdict is computed, not written."
    )
    if warning := command.partial_warning(list(missing)):
        caption += f" {warning}."
    header = ["claim", "in the paper", "what must hold", "n", "evidence", "verdict"]
    # Four columns of sentences: as wide as a page lets them.
    paragraphs = {0: 0.2, 1: 0.26, 2: 0.22, 4: 0.1}
    cells = [[*row[:4], row[5]] for row in rows]
    short = tables.Layout([*header[:4], header[5]], cells, caption, left=5, paragraphs=paragraphs)
    return frame, tables.Layout(header, rows, caption, left=6), short


def main(arguments: Sequence[str] | None = None) -> list[Path]:
    """Command line: records.csv, differences.csv, contrasts.csv (and measured times) -> claims.csv, .md and .tex."""
    parser = command.parser(
        __doc__,
        records="records.csv of `python -m sbd collect`, which must have all arms of the claims",
        differences="differences.csv of `python -m sbd collect`",
        contrasts="contrasts.csv of `python -m sbd collect`",
        reported="folder of the paper's numbers",
    )
    parser.add_argument("--speed", type=Path, nargs="+", help="CSV files of `python -m sbd speed`, if there are any")
    options = parser.parse_args(arguments)
    experiment = load_experiment(options.experiment)
    command.required(experiment.figures.claims, "claims", options.experiment)
    records = inputs.read_records(options.records, experiment)
    _, missing = inputs.rows_of(records, experiment, _arms(experiment), options.partial, speed=False)
    evidence = Evidence(
        experiment,
        inputs.read_differences(options.differences, experiment),
        inputs.read_contrasts(options.contrasts, experiment),
        decoding_speed.read(options.speed, experiment) if options.speed else None,
        missing if options.partial else None,
    )
    claims = build(evidence, options.reported)
    return tables.write(options.output, "claims", *layout(claims, experiment.scale, list(dict.fromkeys(missing))))


def _arms(experiment: Experiment) -> list[Arm]:
    """All arms that a claim compares."""
    figures = experiment.figures
    found = [arm for where, arm in arms_of(figures) if where == "claims"]
    found += [arm for arms in paired.gap_arms(experiment) for arm in arms]
    again = [Arm(run=run, decoder=a.decoder) for a in found for (run,) in experiment.seeds_of(a.run)]
    return [*found, *again]


if __name__ == "__main__":
    command.run(main)
