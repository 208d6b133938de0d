"""``speed``: decoders side by side in one process, as wall-clock: tokens per second, time per pass, gain."""

from __future__ import annotations

from pathlib import Path

import sbd
from sbd.config import Experiment, SpeedConfig
from sbd.data import encode_prompt, read_problems
from sbd.decoding.fixed import Execution
from sbd.evaluation.decoders import make_decoder
from sbd.files import require_writable
from sbd.modeling import DTYPES
from sbd.speed import measure, write_csv

_UNSTEADY = 0.25
"""A spread of rounds that is worth a word."""


def run(
    experiment: Experiment,
    checkpoint: str | Path,
    settings: SpeedConfig,
    output: Path,
    shown: dict[str, str],
    label: str,
    execution: Execution = "eager",
    prompts: Path | None = None,
) -> None:
    """Measure a checkpoint; writes ``output``, a row for each batch size and decoder, which ``shown`` begins.

    checkpoint: a folder or a hub id, called ``label`` on the terminal. prompts: a file of problems (default: the test
    problems of the benchmark).
    """
    require_writable(output)
    benchmark = experiment.benchmark_of(settings)
    problems = read_problems(prompts or experiment.source_file(benchmark.source, "test"), settings.problems)
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
        in_step=settings.in_step,
        label=f"{label} speed",
    )
    write_csv(output, [{**shown, "problems": len(problems), **row} for row in rows])
    for row in rows:
        print(
            f"{label}, batch {row['batch']}, {row['decoder']}: "
            f"{row['tokens_per_second']:.0f} tokens/s, {row['tokens_per_forward']:.2f} tokens per forward"
        )
    if (spread := max(row["spread"] for row in rows)) > _UNSTEADY:
        print(
            f"rounds differ by up to {spread:.0%}: the machine did something else as well; where that matters, "
            "measure again, or by the processor's clock (--clock cpu --threads 1)"
        )
    print(output)
