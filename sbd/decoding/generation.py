"""The front door: check the request, then decode."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sbd.decoding import autoregressive, longest_prefix, request, self_speculative, set_block
from sbd.decoding.engine import Engine
from sbd.decoding.randomness import Sampling
from sbd.decoding.request import Request, StopTest, TokenCallback
from sbd.decoding.rows import Generation, Rows
from sbd.decoding.settings import Autoregressive, Decoder, LongestPrefix, SelfSpeculative, SetBlock


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
    record_entropy: bool = False,
    cache_length: int | None = None,
) -> Generation:
    """Continue every prompt of a batch with the given decoder.

    input_ids: [batch, prompt] padded on either side with ``attention_mask`` [batch, prompt], or a list of unequal
    prompts. decoder: ``SetBlock()`` if None. eos_token_id: one id, several, or None to run to ``max_new_tokens``.
    temperature: 0 is greedy. seed: the same seed gives the same text of a row at any batch size, for its sample id.
    num_samples: samples per prompt; the rows of the result are those of prompt 0, then of prompt 1, and so on.
    sample_ids: number of each prompt for the seed, by default its place in the batch; give the place in the data set
    when
        the batch size may change.
    stop: strings that end a row (needs ``tokenizer``), or a function of the new tokens so far; the row keeps the
    shortest
        beginning that satisfies it.
    on_tokens: called with (row, tokens) once tokens are final: revealed, and with everything before them revealed.
    record_entropy: keep the entropy of every token's distribution when it was revealed (for `sbd.trace`).
    cache_length: slots of the cache per row; by default what prompt and new tokens need.

    Raises UserError, before any pass, for what cannot be decoded; warns if the model's configuration says that it was
    trained for something else.
    """
    decoder = SetBlock() if decoder is None else decoder
    if seed is None:
        seed = int(torch.randint(2**31, ()).item()) if temperature > 0 else 0
    asked, forbidden = request.check(
        model,
        input_ids,
        decoder,
        max_new_tokens=max_new_tokens,
        eos_token_id=eos_token_id,
        attention_mask=attention_mask,
        sampling=Sampling(temperature, top_k, top_p, seed),
        num_samples=num_samples,
        sample_ids=sample_ids,
        stop=request.stop_test(stop, tokenizer),
        on_tokens=on_tokens,
        record_entropy=record_entropy,
        cache_length=cache_length,
    )
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            return _run(model, asked, decoder, forbidden)
    finally:
        model.train(was_training)


def _run(model: PreTrainedModel, asked: Request, decoder: Decoder, forbidden: list[int]) -> Generation:
    rows = Rows(asked, request.margin(decoder))
    engine = Engine(model, rows.batch, rows.capacity, forbidden)
    if isinstance(decoder, Autoregressive):
        autoregressive.decode(engine, rows)
    elif isinstance(decoder, SetBlock):
        set_block.decode(engine, rows, decoder)
    elif isinstance(decoder, LongestPrefix):
        longest_prefix.decode(engine, rows, decoder)
    else:
        self_speculative.decode(engine, rows, decoder)
    counts_prefill = isinstance(decoder, (Autoregressive, SelfSpeculative))
    return rows.generation(prefill_passes=0 if counts_prefill else 1, model_passes=engine.passes)


def _margin(decoder: Decoder) -> int:
    """Slots a row may need behind prompt and ``max_new_tokens``: the overhang of the last block, and junk behind it."""
    if isinstance(decoder, Autoregressive):
        return 1
    if isinstance(decoder, SetBlock):
        return 3 * decoder.sizes[1]
    if isinstance(decoder, LongestPrefix):
        return 3 * decoder.block_size
    return decoder.block_size * (3 + max(1, decoder.branches))
