"""``evaluate`` and ``score``: decoders of one trained run on benchmarks; a record and its generations for each pair."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from sbd import evaluation
from sbd.config import Experiment, fingerprint
from sbd.errors import UserError
from sbd.fingerprints import code_fingerprint
from sbd.records import Key, Record
from sbd.steps.checkpoints import trained_checkpoint


def run(experiment: Experiment, model: str, run_name: str, decoders: Sequence[str], benchmarks: Sequence[str]) -> None:
    """Every decoder on every benchmark: ``generations.jsonl`` and then ``record.json`` of each, in this order.

    Where the score is made apart it is ``generated.json`` in place of the record. A rerun goes on from the batches that
    an earlier one finished.
    """
    checkpoint = trained_checkpoint(experiment, model, run_name)
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    for decoder, benchmark in product(decoders, benchmarks):
        _evaluate(experiment, checkpoint, (model, run_name, decoder, benchmark))


def _evaluate(experiment: Experiment, checkpoint: Path, job: tuple[str, str, str, str]) -> None:
    model, run_name, decoder, benchmark = job
    config = experiment.benchmarks[benchmark]
    apart = config.scored == "apart"
    answer = evaluation.generate if apart else evaluation.evaluate
    made = answer(
        checkpoint,
        config.task,
        experiment.source_file(config.source, "test"),
        experiment.decoder(decoder, benchmark),
        experiment.generated_folder(*job) if apart else experiment.record_folder(*job),
        Key(
            scale=experiment.work_scale,
            model=model,
            run=run_name,
            decoder=decoder,
            benchmark=benchmark,
            seed=experiment.seed,
        ),
        max_new_tokens=config.max_new_tokens,
        limit=config.limit,
        batch_size=config.batch_size,
        prompt=config.prompt,
        thinking=config.thinking,
        config_hash=fingerprint(experiment),
        resume=code_fingerprint("sbd.evaluation.run"),
        # The workflow deletes the records of a whole group when one of them is to be made again.
        keep=experiment.evaluate_together,
    )
    print(_line(*job, made) if isinstance(made, Record) else f"{' '.join(job)}: generated, to be scored apart")


def score(experiment: Experiment, model: str, run_name: str, decoder: str, benchmark: str) -> None:
    """Score saved generations: no model and no GPU are needed."""
    config = experiment.benchmarks[benchmark]
    if config.scored != "apart":
        raise UserError(f"benchmark {benchmark!r} is scored by `evaluate`; set scored: apart to score it by itself")
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    job = (model, run_name, decoder, benchmark)
    record = evaluation.score(
        experiment.generated_folder(*job),
        experiment.record_folder(*job),
        config.task,
        experiment.source_file(config.source, "test"),
        experiment.evaluate_command(*job),
    )
    print(_line(*job, record))


def _line(model: str, run: str, decoder: str, benchmark: str, record: Record) -> str:
    passes = "" if record.tokens_per_forward is None else f", {record.tokens_per_forward:.2f} tokens per forward"
    cut = f", {record.truncated} cut off" if record.truncated else ""
    return f"{model} {run} {decoder} {benchmark}: {record.score:.1f}% of {record.n}{passes}{cut}"
