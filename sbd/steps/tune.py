"""``tune``: the largest gamma (and the block size) whose accuracy stays within a margin of one-by-one decoding."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from sbd import evaluation, modeling
from sbd.config import Experiment
from sbd.errors import UserError
from sbd.evaluation.run import read_generations
from sbd.records import GENERATIONS_NAME, Key, Record, write_csv
from sbd.steps.checkpoints import trained_checkpoint
from sbd.tuning import Trial, chosen, search


def run(
    experiment: Experiment,
    model: str,
    run_name: str,
    baseline_run: str,
    benchmark: str,
    *,
    gammas: Sequence[float],
    block_sizes: Sequence[int],
    margin: float,
    confidence: float,
    limit: int | None,
) -> None:
    """Print what was tried and what was chosen; the table also goes to ``tune/MODEL/RUN/BENCHMARK.csv``."""
    config = experiment.benchmarks[benchmark]
    if not experiment.data.sources[config.source].validation:
        raise UserError(
            f"source {config.source!r} has no validation split, and test problems are not tuned on; "
            f"give it `validation: COUNT`"
        )
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    folder = experiment.folder / "tune" / model / run_name
    loaded = {name: _load(experiment, model, name) for name in dict.fromkeys((run_name, baseline_run))}

    def evaluate(of_run: str, name: str, decoder: dict[str, Any]) -> tuple[list[float], Record]:
        place = folder / benchmark / name
        record = evaluation.evaluate(
            loaded[of_run],
            config.task,
            experiment.source_file(config.source, "validation"),
            decoder,
            place,
            Key(
                scale=experiment.work_scale,
                model=model,
                run=of_run,
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

    baseline, record = evaluate(baseline_run, "baseline", {"kind": "autoregressive"})
    if record.tokens_per_forward is None:
        raise UserError(f"{benchmark!r} is a likelihood task and generates nothing; choose another benchmark")
    print(f"{benchmark}, {record.n} validation problems: {baseline_run} decoded one by one {record.score:.1f}%")
    print(f"allowed: {margin:g} points less, with confidence {confidence:g}; the first gamma refused ends the search")
    print(f"{'block':>5} {'gamma':>6} {'score':>6} {'difference':>10} {'at least':>8} {'tokens/pass':>11}")

    def measure(size: int, gamma: float) -> tuple[list[float], float]:
        settings = {"kind": "set_block", "block_size": size, "sampler": {"gamma": gamma}}
        scores, record = evaluate(run_name, f"gamma_{gamma:g}_k{size}", settings)
        return scores, record.tokens_per_forward or 0.0

    trials = search(baseline, measure, block_sizes, gammas, margin, confidence)
    for trial in trials:
        print(_line(trial))
    path = experiment.folder / "tune" / model / run_name / f"{benchmark}.csv"
    write_csv([asdict(trial) for trial in trials], path, [field.name for field in fields(Trial)])
    best = chosen(trials)
    if best is None:
        print("none can be used: decode one by one or self-speculatively, allow more, or use more problems")
    else:
        print(
            f"use gamma {best.gamma:g} with blocks of {best.block_size}: {best.tokens_per_forward:.2f} tokens per pass"
        )
    print(path)


def _load(experiment: Experiment, model: str, run_name: str) -> Any:
    checkpoint = trained_checkpoint(experiment, model, run_name)
    return modeling.load(checkpoint)


def _line(trial: Trial) -> str:
    return (
        f"{trial.block_size:>5} {trial.gamma:>6g} {trial.score:>6.1f} {trial.difference:>+10.1f} {trial.bound:>+8.1f} "
        f"{trial.tokens_per_forward:>11.2f}  {'within' if trial.accepted else 'not shown to be within'}"
    )
