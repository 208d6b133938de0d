"""``speed``: decoders side by side in one process, as wall-clock: tokens per second, time per pass, gain."""

from __future__ import annotations

from collections.abc import Sequence

import sbd
from sbd.config import Experiment
from sbd.data import encode_prompt, read_problems
from sbd.evaluation.decoders import make_decoder
from sbd.speed import measure, write_csv


def run(
    experiment: Experiment,
    model_name: str,
    run_name: str,
    decoders: Sequence[str],
    batch_sizes: Sequence[int],
    count: int,
) -> None:
    """Measure on the first ``count`` test problems of the first benchmark; writes ``speed/MODEL/RUN.csv``."""
    model, tokenizer = sbd.load(experiment.run_folder(model_name, run_name) / "checkpoint")
    benchmark = next(iter(experiment.benchmarks.values()))
    problems = read_problems(experiment.source_file(benchmark.source, "test"), count)
    rows = measure(
        model,
        [encode_prompt(tokenizer, problem["prompt"]) for problem in problems],
        {name: make_decoder(experiment.decoders[name]) for name in decoders},
        batch_sizes,
        benchmark.max_new_tokens,
        tokenizer.eos_token_id,  # type: ignore[arg-type]
    )
    path = experiment.folder / "speed" / model_name / f"{run_name}.csv"
    write_csv(path, rows)
    for row in rows:
        print(
            f"batch {row['batch']}, {row['decoder']}: {row['tokens_per_second']:.0f} tokens/s, "
            f"{row['tokens_per_forward']:.2f} tokens per forward"
        )
    print(path)
