"""``generate``: decode prompts and print the text, the counts and, if asked, a page that shows every pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch

import sbd
from sbd.config import DecoderConfig
from sbd.data import encode_prompt
from sbd.decoding.fixed import Execution
from sbd.errors import UserError
from sbd.evaluation.decoders import make_decoder
from sbd.files import require_writable
from sbd.trace import write_trace


@dataclass(frozen=True)
class Options:
    """What `sbd.generate` is asked, and how it is shown. See there."""

    max_new_tokens: int = 128
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    samples: int = 1
    stop: Sequence[str] = field(default_factory=list)
    stream: bool = False
    dtype: torch.dtype | None = None
    execution: Execution = "eager"
    trace: Path | None = None


def run(model_path: str, prompts: Sequence[str], decoder_name: str, decoder: DecoderConfig, options: Options) -> None:
    """Print the continuations of ``prompts`` by the model of a folder or the hub."""
    rows = len(prompts) * options.samples
    if options.stream and rows > 1:
        raise UserError(f"--stream shows one text while it grows, not {rows}; give one prompt and one sample")
    if options.trace is not None and rows > 1:
        raise UserError(f"--trace shows one text, not {rows}; give one prompt and one sample")
    if options.trace is not None:
        require_writable(options.trace)
    model, tokenizer = sbd.load(model_path, dtype=options.dtype)
    # Problems end with a new line, and models of this project have seen no other.
    prompts = [prompt if not prompt or prompt.endswith("\n") else prompt + "\n" for prompt in prompts]
    out = sbd.generate(
        model,
        [encode_prompt(tokenizer, prompt) for prompt in prompts],
        decoder=make_decoder(decoder),
        max_new_tokens=options.max_new_tokens,
        eos_token_id=tokenizer.eos_token_id,
        temperature=options.temperature,
        seed=options.seed,
        top_k=options.top_k,
        top_p=options.top_p,
        num_samples=options.samples,
        stop=list(options.stop),
        tokenizer=tokenizer,
        on_text=(lambda _, text: print(text, end="", flush=True)) if options.stream else None,
        record_entropy=options.trace is not None,
        execution=options.execution,
    )
    for row, tokens in enumerate(out.tokens):
        print("" if options.stream else tokenizer.decode(tokens, skip_special_tokens=True))
        passes, prefill = out.forward_passes[row], out.prefill_passes[row]
        print(
            f"\n[{decoder_name}] {len(tokens)} tokens in {passes} forward passes "
            f"({len(tokens) / passes:.2f} tokens per forward"
            f"{f', prefill apart: {prefill}' if prefill else ''}), ended by {out.finish_reasons[row]}"
        )
    if options.trace is not None:
        title = f"{decoder_name}: {len(out.tokens[0])} tokens in {out.forward_passes[0]} passes"
        write_trace(options.trace, out, tokenizer, prompt=prompts[0], title=title)
        print(f"{options.trace}: which token was revealed in which pass")
