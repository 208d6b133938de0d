"""``evaluate``: one benchmark with one trained run and one decoder; leaves a record and its generations."""

from __future__ import annotations

import logging

from sbd import evaluation
from sbd.config import Experiment, fingerprint
from sbd.errors import UserError
from sbd.records import Key


def run(experiment: Experiment, model: str, run_name: str, decoder: str, benchmark: str) -> None:
    """Write ``generations.jsonl`` and then ``record.json``."""
    checkpoint = experiment.run_folder(model, run_name) / "checkpoint"
    if not (checkpoint / "config.json").is_file():
        raise UserError(f"run {run_name!r} of {model!r} has no checkpoint at {checkpoint}; train it first")
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    config = experiment.benchmarks[benchmark]
    record = evaluation.evaluate(
        checkpoint,
        config.task,
        experiment.source_file(config.source, "test"),
        experiment.decoders[decoder],
        experiment.record_folder(model, run_name, decoder, benchmark),
        Key(
            scale=experiment.scale,
            model=model,
            run=run_name,
            decoder=decoder,
            benchmark=benchmark,
            seed=experiment.seed,
        ),
        max_new_tokens=config.max_new_tokens,
        limit=config.limit,
        batch_size=config.batch_size,
        config_hash=fingerprint(experiment),
    )
    passes = "" if record.tokens_per_forward is None else f", {record.tokens_per_forward:.2f} tokens per forward"
    print(f"{model} {run_name} {decoder} {benchmark}: {record.score:.1f}% of {record.n}{passes}")
