"""The front door: check everything that can be checked before a pass runs, then decode."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sbd.decoding import autoregressive, longest_prefix, self_speculative, set_block
from sbd.decoding.engine import Engine
from sbd.decoding.randomness import Sampling
from sbd.decoding.rows import Generation, Request, Rows, StopTest, TokenCallback
from sbd.decoding.settings import Autoregressive, Decoder, LongestPrefix, SelfSpeculative, SetBlock
from sbd.errors import UserError


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

    input_ids: [batch, prompt] padded on either side with ``attention_mask`` [batch, prompt], or a list of unequal prompts.
    decoder: ``SetBlock()`` if None. eos_token_id: one id, several, or None to run to ``max_new_tokens``.
    temperature: 0 is greedy. seed: the same seed gives the same text of a row at any batch size, for its sample id.
    num_samples: samples per prompt; the rows of the result are those of prompt 0, then of prompt 1, and so on.
    sample_ids: number of each prompt for the seed, by default its place in the batch; give the place in the data set when
        the batch size may change.
    stop: strings that end a row (needs ``tokenizer``), or a function of the new tokens so far; the row keeps the shortest
        beginning that satisfies it.
    on_tokens: called with (row, tokens) once tokens are final: revealed, and with everything before them revealed.
    record_entropy: keep the entropy of every token's distribution when it was revealed (for `sbd.trace`).
    cache_length: slots of the cache per row; by default what prompt and new tokens need.

    Raises UserError, before any pass, for what cannot be decoded; warns if the model's configuration says that it was
    trained for something else.
    """
    decoder = SetBlock() if decoder is None else decoder
    if not isinstance(decoder, Decoder):
        raise UserError(f"decoder must be Autoregressive(), SetBlock(), LongestPrefix() or SelfSpeculative(), not {decoder!r}")
    prompts, lengths = _prompts(input_ids, attention_mask, model)
    if not isinstance(max_new_tokens, int) or max_new_tokens < 1:
        raise UserError(f"max_new_tokens must be an integer of 1 or more, not {max_new_tokens!r}")
    if num_samples < 1:
        raise UserError(f"num_samples must be 1 or more, not {num_samples}")
    if seed is None:
        seed = int(torch.randint(2**31, ()).item()) if temperature > 0 else 0
    sampling = Sampling(temperature, top_k, top_p, seed)
    if sample_ids is None:
        sample_ids = range(len(lengths))
    if len(sample_ids) != len(lengths):
        raise UserError(f"sample_ids has {len(sample_ids)} entries for {len(lengths)} prompts; give one for each prompt")
    samples = [sample * num_samples + n for sample in sample_ids for n in range(num_samples)]
    end_tokens = _end_tokens(eos_token_id)
    mask_token, forbidden = _forbidden(model, decoder, end_tokens)
    request = Request(
        prompts=prompts.repeat_interleave(num_samples, dim=0),
        lengths=[length for length in lengths for _ in range(num_samples)],
        max_new_tokens=max_new_tokens,
        end_tokens=end_tokens,
        mask_token=mask_token,
        sampling=sampling,
        samples=samples,
        stop=_stop_test(stop, tokenizer),
        on_tokens=on_tokens,
        record_entropy=record_entropy,
    )
    margin = _margin(decoder)
    _check_length(model, max(lengths), max_new_tokens, margin, cache_length)
    _check_sampler(model, decoder)
    _warn_of_training(model, decoder)
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            return _run(model, request, decoder, margin, forbidden)
    finally:
        model.train(was_training)


def _run(model: PreTrainedModel, request: Request, decoder: Decoder, margin: int, forbidden: list[int]) -> Generation:
    rows = Rows(request, margin)
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


def _prompts(
    input_ids: Tensor | Sequence[Sequence[int]], attention_mask: Tensor | None, model: PreTrainedModel
) -> tuple[Tensor, list[int]]:
    """Prompts [batch, prompt] aligned to the left, on the device of the model, and their lengths."""
    if isinstance(input_ids, Tensor):
        if input_ids.dim() != 2 or input_ids.is_floating_point():
            raise UserError(f"input_ids must be integers of shape [batch, prompt], not {input_ids.dtype} {list(input_ids.shape)}")
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if mask.shape != input_ids.shape:
            raise UserError(f"attention_mask {list(mask.shape)} and input_ids {list(input_ids.shape)} differ in shape")
        mask = mask.bool().to(input_ids.device)
        lists = [row[keep].tolist() for row, keep in zip(input_ids, mask, strict=True)]
        pad = model.config.pad_token_id
        if attention_mask is None and pad is not None and any(row[0] == pad or row[-1] == pad for row in lists if row):
            raise UserError("input_ids has padding at the end of a row but there is no attention_mask; pass the tokenizer's")
    else:
        lists = [list(row) for row in input_ids]
        if attention_mask is not None:
            raise UserError("attention_mask goes with a padded tensor; for a list of prompts leave it out")
    if not lists:
        raise UserError("the batch is empty; give at least one prompt")
    for number, row in enumerate(lists):
        if not row:
            raise UserError(f"prompt {number} is empty; begin it with at least the start token")
        vocabulary = model.config.vocab_size
        if not 0 <= min(row) <= max(row) < vocabulary:
            raise UserError(f"prompt {number} has a token outside the vocabulary of {vocabulary}; is this its tokenizer?")
    lengths = [len(row) for row in lists]
    width = max(lengths)
    padded = torch.tensor([row + [0] * (width - len(row)) for row in lists], device=model.device)
    return padded, lengths


def _end_tokens(eos_token_id: int | Sequence[int] | None) -> list[int]:
    if eos_token_id is None:
        return []
    return [eos_token_id] if isinstance(eos_token_id, int) else list(eos_token_id)


def _forbidden(model: PreTrainedModel, decoder: Decoder, end_tokens: list[int]) -> tuple[int, list[int]]:
    """The mask token (-1 if there is none and none is needed) and all tokens that are never generated."""
    config = model.config
    mask_token = getattr(config, "mask_token_id", None)
    if mask_token is None and not isinstance(decoder, Autoregressive):
        raise UserError(
            f"{type(decoder).__name__} needs a mask token but the model has none; train it with `python -m sbd train`, "
            "or decode with Autoregressive()"
        )
    if mask_token is not None and not 0 <= mask_token < config.vocab_size:
        raise UserError(f"mask_token_id {mask_token} of the model is outside its vocabulary of {config.vocab_size}")
    if mask_token is not None and mask_token in end_tokens:
        raise UserError(f"token {mask_token} is the mask token and cannot be an end token as well")
    candidates = {mask_token, config.pad_token_id, config.bos_token_id} - {None} - set(end_tokens)
    special = sorted(token for token in candidates if token is not None and 0 <= token < config.vocab_size)
    return (0 if mask_token is None else mask_token), special


def _stop_test(
    stop: Sequence[str] | StopTest | None, tokenizer: PreTrainedTokenizerBase | None
) -> Callable[[list[int]], bool] | None:
    if stop is None or callable(stop):
        return stop
    strings = [stop] if isinstance(stop, str) else list(stop)
    if not strings:
        return None
    if not all(isinstance(string, str) and string for string in strings):
        raise UserError(f"stop must hold strings that are not empty, not {strings!r}")
    if tokenizer is None:
        raise UserError("stop strings need the tokenizer; pass tokenizer=..., or a function of the tokens as stop")
    decode = tokenizer.decode

    def holds(tokens: list[int]) -> bool:
        text = decode(tokens)
        return any(string in text for string in strings)  # type: ignore[operator]

    return holds


def _check_length(model: PreTrainedModel, prompt: int, new: int, margin: int, cache_length: int | None) -> None:
    most = getattr(model.config, "max_position_embeddings", None)
    if most is not None and prompt + new > most:
        raise UserError(
            f"a prompt of {prompt} and {new} new tokens exceed the {most} positions of the model; "
            f"shorten the prompt or ask for at most {max(0, most - prompt)} tokens"
        )
    if cache_length is not None and prompt + new + margin > cache_length:
        raise UserError(
            f"a prompt of {prompt} tokens, {new} new ones and {margin} slots of work exceed the cache of {cache_length}; "
            "make the cache longer, or the prompt, max_new_tokens or block_size smaller"
        )


def _check_sampler(model: PreTrainedModel, decoder: Decoder) -> None:
    """Try the sampler once on made-up logits, so that one that reveals nothing is found before any pass."""
    if not isinstance(decoder, SetBlock):
        return
    k = decoder.sizes[1]
    logits = torch.linspace(-3, 3, 7 * k, device=model.device).reshape(1, k, 7)
    masked = torch.ones((1, k), dtype=torch.bool, device=model.device)
    reveal = decoder.sampler(logits, masked)
    if not isinstance(reveal, Tensor) or reveal.shape != masked.shape or reveal.dtype != torch.bool:
        raise UserError(f"the sampler {decoder.sampler!r} must return a bool tensor of shape [batch, k]")
    if not bool(reveal.any()):
        raise UserError(f"the sampler {decoder.sampler!r} revealed nothing in a block of masks; it must reveal at least one")


def _warn_of_training(model: PreTrainedModel, decoder: Decoder) -> None:
    objective = getattr(model.config, "sbd_objective", None)
    if objective is not None and objective not in decoder.trained_by:
        warnings.warn(
            f"{type(decoder).__name__} is for models trained with {' or '.join(decoder.trained_by)}; "
            f"this one was trained with {objective}, so expect poor text",
            stacklevel=3,
        )
