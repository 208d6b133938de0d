"""``generate``: decode one prompt and print the text, the counts and, if asked, a page that shows every pass."""

from __future__ import annotations

from pathlib import Path

import sbd
from sbd.config import DecoderConfig
from sbd.data import encode_prompt
from sbd.evaluation.decoders import make_decoder
from sbd.trace import write_trace


def run(
    model_path: str,
    prompt: str,
    decoder_name: str,
    decoder: DecoderConfig,
    max_new_tokens: int,
    temperature: float,
    seed: int,
    trace: Path | None,
) -> None:
    """Print the continuation of ``prompt`` by the model of a folder or the hub."""
    model, tokenizer = sbd.load(model_path)
    # Problems end with a new line, and models of this project have seen no other.
    prompt = prompt if prompt.endswith("\n") else prompt + "\n"
    out = sbd.generate(
        model,
        [encode_prompt(tokenizer, prompt)],
        decoder=make_decoder(decoder),
        max_new_tokens=max_new_tokens,
        eos_token_id=tokenizer.eos_token_id,
        temperature=temperature,
        seed=seed,
        record_entropy=trace is not None,
    )
    print(tokenizer.decode(out.tokens[0], skip_special_tokens=True))
    tokens, passes, prefill = len(out.tokens[0]), out.forward_passes[0], out.prefill_passes[0]
    print(
        f"\n[{decoder_name}] {tokens} tokens in {passes} forward passes ({tokens / passes:.2f} tokens per forward"
        f"{f', prefill apart: {prefill}' if prefill else ''}), ended by {out.finish_reasons[0]}"
    )
    if trace is not None:
        write_trace(trace, out, tokenizer, prompt=prompt, title=f"{decoder_name}: {tokens} tokens in {passes} passes")
        print(f"{trace}: which token was revealed in which pass")
