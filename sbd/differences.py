"""Paired differences between arms on the same problems, from the generations of each.

A row for each pair that a table, figure or claim of the experiment needs, and for the same pair under every seed that
both of its runs were repeated with: the arm minus its baseline in points, with a 95% bootstrap interval over problems
and an exact McNemar test, and the interval of the arm's tokens per forward pass.

Two claims need more than two arms. Each is a contrast, one weighted sum of the arms for each problem, with a bootstrap
interval over problems like a difference:

    gap closed    (longest training - its next-token twin) - (shortest training - its twin)
    above factor  entropy bound - ((1 - w) factor below + w factor above), with w such that both sides take the same
                  forward passes per problem; factor below and above are the neighbours of the arm in passes
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sbd import columns, statistics
from sbd.config import Experiment
from sbd.errors import UserError
from sbd.selection import Arm

Job = tuple[str, str, str, str]
Problems = dict[str, dict[str, Any]]

GAP_CLOSED, ABOVE_FACTOR = "gap closed", "above factor"
"""Names of the contrasts."""


def pairs(experiment: Experiment) -> list[tuple[Arm, Arm]]:
    """(arm, baseline) of table 1, the curves, table 2, the ablations, the claims and the seeds, each once."""
    figures = experiment.figures
    first, *others = experiment.table1.rows
    found = [(arm, first) for arm in others]
    references = [first, *experiment.pareto.references[:1]]
    found += [(arm, base) for grid in experiment.pareto.curves.values() for arm in grid for base in references]
    if figures.table2:
        baseline, *runs = (Arm(run=run, decoder=figures.table2.decoder) for run in figures.table2.runs)
        found += [(arm, baseline) for arm in runs]
    if figures.figure5:
        for length in figures.figure5.lengths:
            twin = Arm(run=length.baseline, decoder=figures.figure5.baseline_decoder)
            found += [(Arm(run=length.run, decoder=name), twin) for name in figures.figure5.decoders]
    if figures.ablations:
        found += [(arm, arms[0]) for arms in figures.ablations.groups.values() for arm in arms[1:]]
    if figures.claims:
        claims = figures.claims
        arms = [claims.sbd_ntp, claims.gamma_low, *claims.factor, *claims.entropy_bound]
        found += [(arm, claims.baseline) for arm in arms if arm]
        for arm, reference in (
            (claims.without_ntp_loss, claims.with_ntp_loss or claims.sbd_ntp),
            (claims.without_matp_loss, claims.with_matp_loss or claims.gamma_low),
        ):
            found += [(arm, reference)] if arm and reference else []
    if figures.seeds:
        found += [(comparison.arm, comparison.baseline) for comparison in figures.seeds.comparisons]
    repeated = [
        (Arm(run=one, decoder=arm.decoder), Arm(run=two, decoder=baseline.decoder))
        for arm, baseline in found
        for one, two in experiment.seeds_of(arm.run, baseline.run)
    ]
    unique = {((a.run, a.decoder), (b.run, b.decoder)): (a, b) for a, b in repeated}
    return [pair for (one, two), pair in unique.items() if one != two]


def reader(experiment: Experiment) -> Callable[[Job], Problems]:
    """Reads the problems of a job (model, run, decoder, benchmark), each file once. Raises UserError."""
    known: dict[Job, Problems] = {}

    def problems(job: Job) -> Problems:
        if job not in known:
            path = experiment.record_folder(*job) / "generations.jsonl"
            known[job] = read_generations(path, f"run `{experiment.evaluate_command(*job)}`")
        return known[job]

    return problems


def _same_problems(experiment: Experiment, jobs: Sequence[Job], problems: Callable[[Job], Problems]) -> list[Problems]:
    found = [problems(job) for job in jobs]
    for job, other in zip(jobs[1:], found[1:], strict=True):
        if other.keys() != found[0].keys():
            commands = "` and `".join(experiment.evaluate_command(*one) for one in (jobs[0], job))
            raise UserError(
                f"{'/'.join(jobs[0])} and {'/'.join(job)} were evaluated on different problems; run `{commands}`"
            )
    return found


def collect(
    experiment: Experiment,
    wanted: Iterable[tuple[Arm, Arm]],
    problems: Callable[[Job], Problems] | None = None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """A row per model, benchmark and pair that the experiment evaluates on both sides. Raises UserError."""
    asked, wanted, problems = set(experiment.jobs()), list(wanted), problems or reader(experiment)
    rows = []
    for model in experiment.models:
        for benchmark in experiment.benchmarks:
            for arm, baseline in wanted:
                sides = (model, arm.run, arm.decoder, benchmark), (model, baseline.run, baseline.decoder, benchmark)
                if not asked.issuperset(sides):
                    continue
                ours, theirs = _same_problems(experiment, sides, problems)
                pair = (model, benchmark, arm.run, arm.decoder, baseline.run, baseline.decoder)
                rows.append(dict(zip(columns.PAIR, pair, strict=True)) | _compared(ours, theirs, seed))
    return rows


def gap_arms(experiment: Experiment) -> Iterator[tuple[Arm, Arm, Arm, Arm]]:
    """Longest training, its twin, shortest, its twin (see figures.figure5), for every seed that all four have.

    Decoded by the decoder of gamma_low of the claims where figure 5 has it, or else by its first one.
    """
    chosen, claims = experiment.figures.figure5, experiment.figures.claims
    if not chosen or len(chosen.lengths) < 2:
        return
    low = claims.gamma_low.decoder if claims and claims.gamma_low else None
    decoder = low if low in chosen.decoders else chosen.decoders[0]
    short, long = chosen.lengths[0], chosen.lengths[-1]
    decoders = (decoder, chosen.baseline_decoder) * 2
    for runs in experiment.seeds_of(long.run, long.baseline, short.run, short.baseline):
        one, two, three, four = (Arm(run=r, decoder=d) for r, d in zip(runs, decoders, strict=True))
        yield one, two, three, four


def factor_arms(experiment: Experiment) -> Iterator[tuple[Arm, list[Arm]]]:
    """An arm of the entropy bound and those of the factor rule, for every seed that all of them have."""
    claims = experiment.figures.claims
    for arm in claims.entropy_bound if claims and claims.factor else ():
        for run, *runs in experiment.seeds_of(arm.run, *(factor.run for factor in claims.factor)):  # type: ignore[union-attr]
            factors = zip(runs, claims.factor, strict=True)  # type: ignore[union-attr]
            yield Arm(run=run, decoder=arm.decoder), [Arm(run=r, decoder=f.decoder) for r, f in factors]


def contrasts(
    experiment: Experiment, problems: Callable[[Job], Problems] | None = None, seed: int = 0
) -> list[dict[str, Any]]:
    """The rows of contrasts.csv: those whose arms the experiment evaluates. Raises UserError.

    An arm that takes fewer passes than every factor arm, or more, has no neighbours: its difference is empty.
    """
    asked, problems = set(experiment.jobs()), problems or reader(experiment)
    rows = []
    for model in experiment.models:
        for benchmark in experiment.benchmarks:

            def job(arm: Arm, model: str = model, benchmark: str = benchmark) -> Job:
                return model, arm.run, arm.decoder, benchmark

            for arms in gap_arms(experiment):
                if asked.issuperset(map(job, arms)):
                    correct = np.array(
                        [_values(part, "correct") for part in _same_problems(experiment, [*map(job, arms)], problems)]
                    )
                    found = _interval(correct[0] + correct[3], correct[1] + correct[2], seed)
                    against = " - ".join(f"{arm.run}/{arm.decoder}" for arm in arms[1:3])
                    found |= {"against": f"{against} + {arms[3].run}/{arms[3].decoder}"}
                    rows.append(_contrast_row(job(arms[0]), GAP_CLOSED, found))
            for arm, factors in factor_arms(experiment):
                present = [factor for factor in factors if job(factor) in asked]
                if job(arm) in asked and present:
                    parts = _same_problems(experiment, [job(arm), *map(job, present)], problems)
                    names = [f"{factor.run}/{factor.decoder}" for factor in present]
                    rows.append(_contrast_row(job(arm), ABOVE_FACTOR, _above(parts[0], parts[1:], names, seed)))
    return rows


def _contrast_row(job: Job, name: str, found: dict[str, Any]) -> dict[str, Any]:
    model, run, decoder, benchmark = job
    key = dict(zip(columns.CONTRAST, (model, benchmark, name, run, decoder), strict=True))
    return {**dict.fromkeys(columns.CONTRASTS), **key, **found}


def _above(ours: Problems, factors: Sequence[Problems], names: Sequence[str], seed: int) -> dict[str, Any]:
    """The arm against the two factor arms that it lies between in forward passes, weighted to the same passes.

    The weights come from the mean passes of all problems and stay the same in every resample.
    """
    mean = float(_values(ours, "forward_passes").mean())
    order = sorted(range(len(factors)), key=lambda i: float(_values(factors[i], "forward_passes").mean()))
    passes = np.array([_values(factors[i], "forward_passes").mean() for i in order])
    found: dict[str, Any] = {"n": len(ours), "passes": mean, "passes_low": passes[0], "passes_high": passes[-1]}
    if not passes[0] <= mean <= passes[-1]:
        return found
    above = min(int(np.searchsorted(passes, mean)), len(passes) - 1)
    below = max(above - 1, 0)
    step = passes[above] - passes[below]
    weight = float((mean - passes[below]) / step) if step else 1.0
    low, high = (_values(factors[order[i]], "correct") for i in (below, above))
    against = f"{1 - weight:.3f} {names[order[below]]} + {weight:.3f} {names[order[above]]}"
    return found | {"against": against} | _interval(_values(ours, "correct"), (1 - weight) * low + weight * high, seed)


def _interval(ours: np.ndarray, theirs: np.ndarray, seed: int) -> dict[str, Any]:
    paired = statistics.paired_difference(theirs.tolist(), ours.tolist(), seed)
    points = paired.difference.times(100)
    return {"n": paired.n, "difference": points.estimate, "low": points.low, "high": points.high}


def _values(problems: Problems, name: str) -> np.ndarray:
    return np.array([float(problems[i][name]) for i in sorted(problems)])


def _compared(ours: Problems, theirs: Problems, seed: int) -> dict[str, Any]:
    before, after = (_values(part, "correct").tolist() for part in (theirs, ours))
    paired = statistics.paired_difference(before, after, seed)
    points = paired.difference.times(100)
    tokens, passes = (_values(ours, name).tolist() for name in ("tokens", "forward_passes"))
    speed = statistics.ratio_of_sums(tokens, passes, seed) if all(passes) else None
    return {
        "n": paired.n,
        "difference": points.estimate,
        "low": points.low,
        "high": points.high,
        "p_value": None if math.isnan(paired.p_value) else paired.p_value,
        "only_baseline": paired.only_a,
        "only_arm": paired.only_b,
        "tokens_per_forward": speed and speed.estimate,
        "tokens_per_forward_low": speed and speed.low,
        "tokens_per_forward_high": speed and speed.high,
    }


def read_generations(path: Path, remedy: str = "evaluate that job again") -> Problems:
    """The lines of a ``generations.jsonl`` by problem; ``remedy`` says how to make it again. Raises UserError."""
    try:
        # Not str.splitlines, which also splits at signs that a text may hold, such as U+2028.
        with open(path, encoding="utf-8") as file:
            lines: Sequence[dict[str, Any]] = [json.loads(line) for line in file]
        found = {str(line["id"]): line for line in lines}
        counted = ("correct", "tokens", "forward_passes")
        wrong = [(i, name) for i, line in found.items() for name in counted if not math.isfinite(float(line[name]))]
    except FileNotFoundError:
        raise UserError(f"no such file: {path}; {remedy}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{path}: not a file of generations ({type(error).__name__}: {error}); delete it and {remedy}"
        ) from None
    if len(found) != len(lines) or not found:
        raise UserError(f"{path}: {len(lines)} lines of {len(found)} problems; delete it and {remedy}")
    if wrong:
        (problem, name), *_ = wrong
        what = "the score" if name == "correct" else name
        raise UserError(f"{path}: {what} of {problem} is not a number; delete it and {remedy}")
    return found
