"""``lossless``: is the text of self-speculative decoding that of autoregressive decoding, token for token?"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import sbd
from sbd.config import Experiment
from sbd.data import encode_prompt, read_problems
from sbd.device import device_name
from sbd.errors import UserError
from sbd.evaluation.decoders import make_decoder
from sbd.records import write_csv

COLUMNS = (
    "model",
    "run",
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
) -> None:
    """Decode test problems of all benchmarks in turn, ``count`` in all; writes a row for each pair of batch sizes."""
    checkpoint = experiment.run_folder(model_name, run_name) / "checkpoint"
    if not (checkpoint / "config.json").is_file():
        raise UserError(f"run {run_name!r} of {model_name!r} has no checkpoint at {checkpoint}; train it first")
    prompts: list[str] = []
    for benchmark in experiment.benchmarks.values():
        left = count - len(prompts)
        if left:
            found = read_problems(experiment.source_file(benchmark.source, "test"), left)
            prompts += [problem["prompt"] for problem in found]
    model, tokenizer = sbd.load(checkpoint)
    longest = max(benchmark.max_new_tokens for benchmark in experiment.benchmarks.values())
    ids = [encode_prompt(tokenizer, prompt) for prompt in prompts]

    def decode(decoder: sbd.Autoregressive | sbd.SelfSpeculative, size: int) -> tuple[list[list[int]], int]:
        outs = [
            sbd.generate(model, ids[start : start + size], decoder, longest, eos_token_id=tokenizer.eos_token_id)
            for start in range(0, len(ids), size)
        ]
        return list(chain.from_iterable(out.tokens for out in outs)), sum(sum(out.forward_passes) for out in outs)

    plain = {size: decode(sbd.Autoregressive(), size)[0] for size in batch_sizes}
    rows = []
    for size in batch_sizes:
        texts, passes = decode(make_decoder(experiment.decoders[decoder_name]), size)
        for reference, expected in plain.items():
            unequal = [number for number, pair in enumerate(zip(texts, expected, strict=True)) if pair[0] != pair[1]]
            rows.append(
                {
                    "model": model_name,
                    "run": run_name,
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
                f"{model_name} {run_name}, {decoder_name} at batch {size} and autoregressive at batch {reference}: "
                f"{rows[-1]['equal_prompts']} of {len(ids)} texts are equal, "
                f"{rows[-1]['tokens_per_forward']:.2f} tokens per forward"
            )
    write_csv(rows, output, COLUMNS)
    print(output)
