"""``tune``: the largest gamma (and the block size) whose accuracy stays within a margin of one-by-one decoding."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sbd import evaluation, modeling
from sbd.config import Experiment
from sbd.errors import UserError
from sbd.evaluation.run import read_generations
from sbd.records import GENERATIONS_NAME, Key, Record, write_csv
from sbd.steps.checkpoints import trained_checkpoint
from sbd.tuning import Trial, chosen, search


@dataclass(frozen=True)
class Candidate:
    """A checkpoint, a folder or hub id, and what it is called; the default run is of one that no experiment made."""

    checkpoint: str | Path
    model: str
    run: str = "checkpoint"


def of_experiment(experiment: Experiment, model: str, run_name: str) -> Candidate:
    """The trained checkpoint of a run."""
    return Candidate(trained_checkpoint(experiment, model, run_name), model, run_name)


def validation_problems(experiment: Experiment, benchmark: str) -> Path:
    """The validation problems of a benchmark's source. Raises UserError if it has none."""
    source = experiment.benchmarks[benchmark].source
    if not experiment.data.sources[source].validation:
        raise UserError(
            f"source {source!r} has no validation split, and test problems are not tuned on; "
            "give it `validation: COUNT`"
        )
    return experiment.source_file(source, "validation")


def run(
    experiment: Experiment,
    candidate: Candidate,
    baseline_candidate: Candidate,
    benchmark: str,
    problems: Path,
    folder: Path,
    *,
    gammas: Sequence[float],
    block_sizes: Sequence[int],
    margin: float,
    confidence: float,
    limit: int | None,
) -> None:
    """Print what was tried and what was chosen; the table also goes to ``BENCHMARK.csv`` in ``folder``.

    benchmark: how ``problems`` are asked and scored.
    """
    config = experiment.benchmarks[benchmark]
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    loaded = {of: modeling.load(of.checkpoint) for of in dict.fromkeys((candidate, baseline_candidate))}

    def evaluate(of: Candidate, name: str, decoder: dict[str, Any]) -> tuple[list[float], Record]:
        place = folder / benchmark / name
        record = evaluation.evaluate(
            loaded[of],
            config.task,
            problems,
            decoder,
            place,
            Key(
                scale=experiment.work_scale,
                model=of.model,
                run=of.run,
                decoder=name,
                benchmark=benchmark,
                seed=experiment.seed,
            ),
            max_new_tokens=config.max_new_tokens,
            limit=limit,
            batch_size=config.batch_size,
            prompt=config.prompt,
            thinking=config.thinking,
        )
        return [line["correct"] for line in read_generations(place / GENERATIONS_NAME)], record

    baseline, record = evaluate(baseline_candidate, "baseline", {"kind": "autoregressive"})
    if record.tokens_per_forward is None:
        raise UserError(f"{benchmark!r} is a likelihood task and generates nothing; choose another benchmark")
    one_by_one = f"{baseline_candidate.model} {baseline_candidate.run} decoded one by one {record.score:.1f}%"
    print(f"{benchmark}, {record.n} validation problems: {one_by_one}")
    print(f"allowed: {margin:g} points less, with confidence {confidence:g}; the first gamma refused ends the search")
    print(f"{'block':>5} {'gamma':>6} {'score':>6} {'difference':>10} {'at least':>8} {'tokens/pass':>11}")

    def measure(size: int, gamma: float) -> tuple[list[float], float]:
        settings = {"kind": "set_block", "block_size": size, "sampler": {"gamma": gamma}}
        scores, record = evaluate(candidate, f"gamma_{gamma:g}_k{size}", settings)
        return scores, record.tokens_per_forward or 0.0

    trials = search(baseline, measure, block_sizes, gammas, margin, confidence)
    for trial in trials:
        print(_line(trial))
    path = folder / f"{benchmark}.csv"
    write_csv([asdict(trial) for trial in trials], path, [field.name for field in fields(Trial)])
    best = chosen(trials)
    if best is None:
        print("none can be used: decode one by one or self-speculatively, allow more, or use more problems")
    else:
        print(
            f"use gamma {best.gamma:g} with blocks of {best.block_size}: {best.tokens_per_forward:.2f} tokens per pass"
        )
    print(path)


def _line(trial: Trial) -> str:
    return (
        f"{trial.block_size:>5} {trial.gamma:>6g} {trial.score:>6.1f} {trial.difference:>+10.1f} {trial.bound:>+8.1f} "
        f"{trial.tokens_per_forward:>11.2f}  {'within' if trial.accepted else 'not shown to be within'}"
    )
