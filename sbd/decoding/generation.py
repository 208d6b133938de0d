"""The front door: check the request, then decode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sbd.decoding import autoregressive, fixed, longest_prefix, request, self_speculative, set_block
from sbd.decoding.engine import Engine
from sbd.decoding.fixed import Execution
from sbd.decoding.randomness import Sampling
from sbd.decoding.request import Request, StopTest, TokenCallback
from sbd.decoding.rows import Generation, Rows
from sbd.decoding.settings import Autoregressive, Decoder, LongestPrefix, SelfSpeculative, SetBlock
from sbd.decoding.text import TextCallback, TextStream


def generate(
    model: PreTrainedModel,
    input_ids: Tensor | Sequence[Sequence[int]],
    decoder: Decoder | None = None,
    max_new_tokens: int = 256,
    eos_token_id: int | Sequence[int] | None = None,
    attention_mask: Tensor | None = None,
    temperature: float = 0.0,
    seed: int | None = None,
    *,
    top_k: int | None = None,
    top_p: float | None = None,
    num_samples: int = 1,
    sample_ids: Sequence[int] | None = None,
    stop: Sequence[str] | StopTest | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    on_tokens: TokenCallback | None = None,
    on_text: TextCallback | None = None,
    record_entropy: bool = False,
    cache_length: int | None = None,
    execution: Execution = "eager",
) -> Generation:
    """Continue every prompt of a batch with the given decoder.

    input_ids: [batch, prompt] padded on either side with ``attention_mask`` [batch, prompt], or a list of unequal
    prompts. decoder: ``SetBlock()`` if None. eos_token_id: one id, several, or None to run to ``max_new_tokens``.
    temperature: 0 is greedy. seed: the same seed gives the same text of a row at any batch size, for its sample id.
    num_samples: samples per prompt; the rows of the result are those of prompt 0, then of prompt 1, and so on.
    sample_ids: number of each prompt for the seed, by default its place in the batch; give the place in the data set
        when the batch size may change.
    stop: strings that end a row (needs ``tokenizer``), or a function of the new tokens so far; the row keeps the
        shortest beginning that satisfies it.
    on_tokens: called with (row, tokens) once tokens are final: revealed, and with everything before them revealed.
    on_text: called with (row, text) in the same way (needs ``tokenizer``); the pieces of a row add up to its text.
    record_entropy: keep the entropy of every token's distribution when it was revealed (for `sbd.trace`).
    cache_length: slots of the cache per row; by default what prompt and new tokens need. With "compile" or "graphs" it
        is rounded up to a multiple of 64, and calls of the same length share what was compiled or captured.
    execution: "compile" compiles the passes after the first with torch.compile, "graphs" captures them as CUDA graphs.
        Both pay once for a batch size and cache length, and then serve further calls.

    Raises UserError, before any pass, for what cannot be decoded; warns if the model's configuration says that it was
    trained for something else.
    """
    decoder = SetBlock() if decoder is None else decoder
    sampling = Sampling(temperature, top_k, top_p, 0 if seed is None else seed)
    if seed is None and sampling.temperature > 0:
        sampling = replace(sampling, seed=int(torch.randint(2**31, ()).item()))
    fixed.check(model, execution)
    stream = None if on_text is None else TextStream(on_text, on_tokens, tokenizer)
    asked, forbidden = request.check(
        model,
        input_ids,
        decoder,
        max_new_tokens=max_new_tokens,
        eos_token_id=eos_token_id,
        attention_mask=attention_mask,
        sampling=sampling,
        num_samples=num_samples,
        sample_ids=sample_ids,
        stop=request.stop_test(stop, tokenizer),
        on_tokens=on_tokens if stream is None else stream,
        record_entropy=record_entropy,
        cache_length=cache_length,
    )
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            out = _execute(model, asked, decoder, forbidden, execution)
    finally:
        model.train(was_training)
    if stream is not None:
        stream.end()
    return out


def _execute(
    model: PreTrainedModel, asked: Request, decoder: Decoder, forbidden: list[int], execution: Execution
) -> Generation:
    rows = Rows(asked, request.margin(decoder))
    capacity = asked.cache_length or rows.capacity
    if execution == "eager":
        return _run(Engine(model, rows.batch, capacity, forbidden), rows, decoder)
    passes = fixed.take(model, rows.batch, capacity, execution)
    out = _run(Engine(model, rows.batch, capacity, forbidden, passes[1]), rows, decoder)
    fixed.keep(model, passes)
    return out


def _run(engine: Engine, rows: Rows, decoder: Decoder) -> Generation:
    if isinstance(decoder, Autoregressive):
        autoregressive.decode(engine, rows)
    elif isinstance(decoder, SetBlock):
        set_block.decode(engine, rows, decoder)
    elif isinstance(decoder, LongestPrefix):
        longest_prefix.decode(engine, rows, decoder)
    else:
        self_speculative.decode(engine, rows, decoder)
    engine.check()
    counts_prefill = isinstance(decoder, (Autoregressive, SelfSpeculative))
    return rows.generation(0 if counts_prefill else 1, engine.passes, engine.queries)
