"""``speed``: decoders side by side in one process, as wall-clock: tokens per second, time per pass, gain."""

from __future__ import annotations

from pathlib import Path

import sbd
from sbd.config import Experiment, SpeedConfig
from sbd.data import encode_prompt, read_problems
from sbd.decoding.fixed import Execution
from sbd.errors import UserError
from sbd.evaluation.decoders import make_decoder
from sbd.modeling import DTYPES
from sbd.speed import measure, write_csv


def run(
    experiment: Experiment, model_name: str, settings: SpeedConfig, output: Path, execution: Execution = "eager"
) -> None:
    """Measure on the first test problems of a benchmark; writes ``output``, a row for each batch size and decoder."""
    checkpoint = experiment.run_folder(model_name, settings.run) / "checkpoint"
    if not (checkpoint / "config.json").is_file():
        raise UserError(f"run {settings.run!r} of {model_name!r} has no checkpoint at {checkpoint}; train it first")
    benchmark = experiment.benchmark_of(settings)
    problems = read_problems(experiment.source_file(benchmark.source, "test"), settings.problems)
    model, tokenizer = sbd.load(checkpoint, dtype=DTYPES[settings.dtype])
    rows = measure(
        model,
        [encode_prompt(tokenizer, problem["prompt"]) for problem in problems],
        {name: make_decoder(experiment.decoders[name]) for name in settings.decoders},
        settings.batch_sizes,
        benchmark.max_new_tokens,
        tokenizer.eos_token_id,  # type: ignore[arg-type]
        settings.repeats,
        clock=settings.clock,
        execution=execution,
    )
    first = {"model": model_name, "run": settings.run, "problems": len(problems)}
    write_csv(output, [{**first, **row} for row in rows])
    for row in rows:
        print(
            f"{model_name} {settings.run}, batch {row['batch']}, {row['decoder']}: "
            f"{row['tokens_per_second']:.0f} tokens/s, {row['tokens_per_forward']:.2f} tokens per forward"
        )
    print(output)
