"""``lossless``: is the text of self-speculative decoding that of autoregressive decoding, token for token?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch

import sbd
from sbd.config import Experiment
from sbd.data import encode_prompt, read_problems
from sbd.device import device_name
from sbd.evaluation.decoders import make_decoder
from sbd.records import write_csv
from sbd.steps.checkpoints import trained_checkpoint

COLUMNS = (
    "model",
    "run",
    "benchmark",
    "decoder",
    "prompts",
    "batch",
    "reference_batch",
    "equal_prompts",
    "first_difference",
    "tokens",
    "tokens_per_forward",
    "dtype",
    "device",
)


def run(
    experiment: Experiment,
    model_name: str,
    run_name: str,
    decoder_name: str,
    batch_sizes: Sequence[int],
    count: int,
    output: Path,
    dtype: torch.dtype | None = None,
) -> None:
    """Decode the first ``count`` test problems of every benchmark; writes a row for each of them and each pair of
    batch sizes, of self-speculative and of autoregressive decoding.
    """
    checkpoint = trained_checkpoint(experiment, model_name, run_name)
    model, tokenizer = sbd.load(checkpoint, dtype=dtype)
    speculative, end = make_decoder(experiment.decoders[decoder_name]), tokenizer.eos_token_id
    rows = []
    for name, benchmark in experiment.benchmarks.items():
        most = benchmark.max_new_tokens
        problems = read_problems(experiment.source_file(benchmark.source, "test"), count)
        ids = [encode_prompt(tokenizer, problem["prompt"]) for problem in problems]
        plain = {size: _decode(model, ids, sbd.Autoregressive(), size, most, end)[0] for size in batch_sizes}
        for size in batch_sizes:
            texts, passes = _decode(model, ids, speculative, size, most, end)
            for reference, expected in plain.items():
                unequal = [n for n, pair in enumerate(zip(texts, expected, strict=True)) if pair[0] != pair[1]]
                rows.append(
                    {
                        "model": model_name,
                        "run": run_name,
                        "benchmark": name,
                        "decoder": decoder_name,
                        "prompts": len(ids),
                        "batch": size,
                        "reference_batch": reference,
                        "equal_prompts": len(ids) - len(unequal),
                        "first_difference": unequal[0] if unequal else None,
                        "tokens": sum(map(len, texts)),
                        "tokens_per_forward": round(sum(map(len, texts)) / passes, 4),
                        "dtype": str(model.dtype).removeprefix("torch."),
                        "device": device_name(model.device),
                    }
                )
                print(
                    f"{model_name} {run_name} on {name}, {decoder_name} at batch {size} and autoregressive at batch "
                    f"{reference}: {rows[-1]['equal_prompts']} of {len(ids)} texts are equal, "
                    f"{rows[-1]['tokens_per_forward']:.2f} tokens per forward"
                )
    write_csv(rows, output, COLUMNS)
    print(output)


def _decode(
    model: Any, ids: list[list[int]], decoder: sbd.Autoregressive | sbd.SelfSpeculative, size: int, most: int, end: Any
) -> tuple[list[list[int]], int]:
    """The texts in batches of ``size``, of at most ``most`` tokens, and their forward passes."""
    outs = [
        sbd.generate(model, ids[start : start + size], decoder, most, eos_token_id=end)
        for start in range(0, len(ids), size)
    ]
    return list(chain.from_iterable(out.tokens for out in outs)), sum(sum(out.forward_passes) for out in outs)
