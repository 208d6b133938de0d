"""What is asked of a decoder, and the checks that need no pass of the model: every mistake gets one line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import index

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sbd.decoding.randomness import Sampling
from sbd.decoding.running_text import RunningText
from sbd.decoding.settings import Autoregressive, Decoder, LongestPrefix, SetBlock
from sbd.errors import UserError, UserNote
from sbd.integers import integer
from sbd.samplers import is_two_step

StopTest = Callable[[list[int]], bool]
TokenCallback = Callable[[int, list[int]], None]


@dataclass(frozen=True)
class Request:
    """What is asked, already checked. Prompts are aligned to the left: a token's slot is its position."""

    prompts: Tensor
    """[batch, prompt] on the device of the model; behind a row's length stands anything."""
    lengths: list[int]
    max_new_tokens: int
    end_tokens: list[int]
    mask_token: int
    sampling: Sampling
    samples: list[int]
    """Index of each row's sample, the only thing of the row that chance depends on."""
    stop: Callable[[], StopTest] | None = None
    """Makes the test of one row, which is asked with its new tokens so far, after each one."""
    on_tokens: TokenCallback | None = None
    record_entropy: bool = False
    cache_length: int | None = None
    """Slots of the cache per row; None for as many as are needed."""


def check(
    model: PreTrainedModel,
    input_ids: Tensor | Sequence[Sequence[int]],
    decoder: Decoder,
    *,
    max_new_tokens: int,
    eos_token_id: int | Sequence[int] | None,
    attention_mask: Tensor | None,
    sampling: Sampling,
    num_samples: int,
    sample_ids: Sequence[int] | None,
    stop: Callable[[], StopTest] | None,
    on_tokens: TokenCallback | None,
    record_entropy: bool,
    cache_length: int | None,
) -> tuple[Request, list[int]]:
    """The request, and the tokens never to generate; the arguments are those of ``generate``. Raises UserError."""
    if not isinstance(decoder, Decoder):
        names = "Autoregressive(), SetBlock(), LongestPrefix() or SelfSpeculative()"
        raise UserError(f"decoder must be {names}, not {decoder!r}")
    _check_model(model)
    max_new_tokens = _count("max_new_tokens", max_new_tokens)
    num_samples = _count("num_samples", num_samples)
    if cache_length is not None:
        cache_length = _count("cache_length", cache_length)
    end_tokens = _end_tokens(eos_token_id)
    prompts, lengths = _prompts(input_ids, attention_mask, model, end_tokens)
    numbers = list(range(len(lengths))) if sample_ids is None else _integers(sample_ids)
    if numbers is None:
        raise UserError(f"sample_ids must be a list of integers, one for each prompt, not {sample_ids!r}")
    if len(numbers) != len(lengths):
        raise UserError(f"sample_ids has {len(numbers)} entries for {len(lengths)} prompts; give one for each prompt")
    if end_tokens and not 0 <= min(end_tokens) <= max(end_tokens) < model.config.vocab_size:
        raise UserError(f"end tokens {end_tokens} are not all in the vocabulary of {model.config.vocab_size}")
    mask_token, forbidden = _forbidden(model, decoder, end_tokens)
    for number, prompt in enumerate(prompts.tolist()):
        if mask_token in prompt[: lengths[number]] and not isinstance(decoder, Autoregressive):
            raise UserError(f"prompt {number} contains the mask token (id {mask_token}); take it out of the text")
    _check_length(model, max(lengths), max_new_tokens, margin(decoder), cache_length)
    _check_sampler(model, decoder, forbidden)
    _warn_of_training(model, decoder)
    request = Request(
        prompts=prompts.repeat_interleave(num_samples, dim=0),
        lengths=[length for length in lengths for _ in range(num_samples)],
        max_new_tokens=max_new_tokens,
        end_tokens=end_tokens,
        mask_token=mask_token,
        sampling=sampling,
        samples=[number * num_samples + n for number in numbers for n in range(num_samples)],
        stop=stop,
        on_tokens=on_tokens,
        record_entropy=record_entropy,
        cache_length=cache_length,
    )
    return request, forbidden


def _count(name: str, value: object) -> int:
    count = integer(value, 1)
    if count is None:
        raise UserError(f"{name} must be an integer of 1 or more, not {value!r}")
    return count


def _integers(values: object) -> list[int] | None:
    """The integers of a list, array or tensor of one dimension; None if it is none or holds anything else."""
    try:
        return [index(value) for value in values]  # type: ignore[attr-defined]
    except TypeError:
        return None


def _end_tokens(eos_token_id: int | Sequence[int] | None) -> list[int]:
    found = [] if eos_token_id is None else _integers([eos_token_id]) or _integers(eos_token_id)
    if found is None:
        raise UserError(f"eos_token_id must be a token id, several, or None, not {eos_token_id!r}")
    return found


def margin(decoder: Decoder) -> int:
    """Slots a row may need behind prompt and ``max_new_tokens``: what its last block overhangs, and junk behind it."""
    if isinstance(decoder, Autoregressive):
        return 1
    if isinstance(decoder, SetBlock):
        return 3 * decoder.sizes[1]
    if isinstance(decoder, LongestPrefix):
        return 3 * decoder.block_size
    return decoder.block_size * (3 + max(1, decoder.branches))


def _prompts(
    input_ids: Tensor | Sequence[Sequence[int]],
    attention_mask: Tensor | None,
    model: PreTrainedModel,
    end_tokens: list[int],
) -> tuple[Tensor, list[int]]:
    """Prompts [batch, prompt] aligned to the left, on the device of the model, and their lengths."""
    if attention_mask is not None and not isinstance(attention_mask, Tensor):
        raise UserError(f"attention_mask must be a tensor [batch, prompt], not {type(attention_mask).__name__}")
    if isinstance(input_ids, Tensor):
        if input_ids.dim() != 2 or input_ids.is_floating_point():
            raise UserError(
                f"input_ids must be integers of shape [batch, prompt], not {input_ids.dtype} {list(input_ids.shape)}"
            )
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if mask.shape != input_ids.shape:
            raise UserError(f"attention_mask {list(mask.shape)} and input_ids {list(input_ids.shape)} differ in shape")
        mask = mask.bool().to(input_ids.device)
        lists = [row[keep].tolist() for row, keep in zip(input_ids, mask, strict=True)]
        padding = _padding(lists, model, end_tokens) if attention_mask is None else None
        if padding is not None:
            raise UserError(
                f"input_ids has padding (token {padding}) but there is no attention_mask; pass the one of the "
                "tokenizer, or one of ones if it is text"
            )
    else:
        if attention_mask is not None:
            raise UserError("attention_mask goes with a padded tensor; for a list of prompts leave it out")
        lists = _lists(input_ids)
    if not lists:
        raise UserError("the batch is empty; give at least one prompt")
    for number, row in enumerate(lists):
        if not row:
            raise UserError(f"prompt {number} is empty; begin it with at least the start token")
        vocabulary = model.config.vocab_size
        if not 0 <= min(row) <= max(row) < vocabulary:
            raise UserError(
                f"prompt {number} has a token outside the vocabulary of {vocabulary}; is this its tokenizer?"
            )
    lengths = [len(row) for row in lists]
    width = max(lengths)
    padded = torch.tensor([row + [0] * (width - len(row)) for row in lists], dtype=torch.long, device=model.device)
    return padded, lengths


def _padding(prompts: list[list[int]], model: PreTrainedModel, end_tokens: list[int]) -> int | None:
    """The token that a batch of prompts of one width is plainly padded with, or None.

    A padding token that means nothing else gives itself away at any end of a prompt. Where it is the end or start
    token too, or the model has none and a tokenizer takes one of these, a prompt may well begin or end with it: that is
    padding if it is repeated, and not as often in every prompt, so that the prompts within are of unequal length.
    """
    config = model.config
    told = config.eos_token_id
    text = {config.bos_token_id, *end_tokens, *(told if isinstance(told, (list, tuple)) else [told])} - {None}
    pad = config.pad_token_id
    if pad is not None and pad not in text:
        return pad if any(pad in (row[0], row[-1]) for row in prompts if row) else None
    for token in sorted(text):
        for rows in (prompts, [row[::-1] for row in prompts]):
            runs = {next((n for n, other in enumerate(row) if other != token), len(row)) for row in rows}
            if len(runs) > 1 and max(runs) > 1:
                return token
    return None


def _lists(prompts: object) -> list[list[int]]:
    """A list of prompts, each a list of token ids."""
    how = "input_ids must be a list of prompts, each a list of token ids such as [[1, 5, 6]], or a tensor"
    if not isinstance(prompts, Iterable):
        raise UserError(f"{how}, not {type(prompts).__name__}")
    lists = []
    for number, prompt in enumerate(prompts):
        row = _integers(prompt)
        if row is None:
            raise UserError(f"{how}; entry {number} is of type {type(prompt).__name__}")
        lists.append(row)
    return lists


def _forbidden(model: PreTrainedModel, decoder: Decoder, end_tokens: list[int]) -> tuple[int, list[int]]:
    """The mask token (0 where none is needed and there is none) and all tokens that are never generated."""
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


def stop_test(
    stop: Sequence[str] | StopTest | None, tokenizer: PreTrainedTokenizerBase | None
) -> Callable[[], StopTest] | None:
    """What makes the test of a row's new tokens that ends it, from stop strings or a test as it is."""
    if stop is None:
        return None
    if callable(stop):
        return lambda: lambda tokens: stop(list(tokens))  # a copy: the list goes on growing
    if not isinstance(stop, Iterable):
        raise UserError(f"stop must be a string, several, or a function of the new tokens, not {stop!r}")
    strings = [stop] if isinstance(stop, str) else list(stop)
    if not strings:
        return None
    if not all(isinstance(string, str) and string for string in strings):
        raise UserError(f"stop must hold strings that are not empty, not {strings!r}")
    if tokenizer is None:
        raise UserError("stop strings need the tokenizer; pass tokenizer=..., or a function of the tokens as stop")
    decode = tokenizer.decode
    reach = max(map(len, strings)) - 1

    def of_a_row() -> StopTest:
        running = RunningText(decode, reach)

        def holds(tokens: list[int]) -> bool:
            # Shorter beginnings hold none, so one that is there now ends in what is not settled.
            _, before, text = running.add(tokens[len(running.tokens) :])
            return any(string in before + text for string in strings)

        return holds

    return of_a_row


def _check_model(model: PreTrainedModel) -> None:
    """Whether the engine can run it: its layers apart from its LM head, whose logits are the last word."""
    config = getattr(model, "config", None)
    if not (hasattr(model, "model") and hasattr(model, "lm_head") and hasattr(config, "num_key_value_heads")):
        raise UserError(
            f"{type(model).__name__} cannot be decoded: it must be a causal language model laid out as Llama is, with "
            "its layers in .model and its head in .lm_head; load one with AutoModelForCausalLM"
        )
    for name, plain in (("final_logit_softcapping", None), ("logits_scaling", 1), ("logit_scale", 1)):
        value = getattr(config, name, plain)
        if value != plain:
            raise UserError(
                f"{type(model).__name__} cannot be decoded: its logits go through {name} ({value}), which is not done"
            )


def _check_length(model: PreTrainedModel, prompt: int, new: int, margin: int, cache_length: int | None) -> None:
    most = getattr(model.config, "max_position_embeddings", None)
    if most is not None and prompt + new > most:
        raise UserError(
            f"a prompt of {prompt} and {new} new tokens exceed the {most} positions of the model; "
            f"shorten the prompt or ask for at most {max(0, most - prompt)} tokens"
        )
    # Passes say which slots are seen by masks that know of no window.
    window, kinds = getattr(model.config, "sliding_window", None), getattr(model.config, "layer_types", None)
    slides = kinds is None or any("sliding" in kind for kind in kinds)
    if window is not None and slides and prompt + new + margin > window:
        raise UserError(
            f"a prompt of {prompt}, {new} new tokens and {margin} slots of work exceed the sliding window of {window}, "
            "which decoding does not know; shorten the prompt or ask for fewer tokens"
        )
    if cache_length is not None and prompt + new + margin > cache_length:
        raise UserError(
            f"a prompt of {prompt}, {new} new tokens and {margin} slots of work exceed the cache of {cache_length}; "
            "make cache_length larger, or the prompt, max_new_tokens or block_size smaller"
        )


def _check_sampler(model: PreTrainedModel, decoder: Decoder, forbidden: list[int]) -> None:
    """Try a sampler of one's own once on made-up logits, so that one that reveals nothing is found before any pass.

    They are those of one block of one row, as a pass would give them: of the vocabulary of the model, in its dtype, and
    -inf for forbidden tokens. No token is likely, which asks most of a sampler with a threshold.
    """
    if not isinstance(decoder, SetBlock) or is_two_step(decoder.sampler):
        return  # those of sbd.samplers reveal one or more
    k = decoder.sizes[1]
    logits = torch.linspace(-3, 3, model.config.vocab_size, dtype=model.dtype, device=model.device)
    logits = logits.repeat(1, k, 1)
    logits[..., forbidden] = -torch.inf
    masked = torch.ones((1, k), dtype=torch.bool, device=model.device)
    with torch.inference_mode():
        reveal = decoder.sampler(logits, masked)
    if not isinstance(reveal, Tensor) or reveal.shape != masked.shape or reveal.dtype != torch.bool:
        raise UserError(f"the sampler {decoder.sampler!r} must return a bool tensor of shape [batch, k]")
    if not bool(reveal.any()):
        raise UserError(
            f"the sampler {decoder.sampler!r} reveals nothing in a block of masks; it must reveal one or more"
        )


def _warn_of_training(model: PreTrainedModel, decoder: Decoder) -> None:
    objective = getattr(model.config, "sbd_objective", None)
    if objective in decoder.trained_by or (objective is None and isinstance(decoder, Autoregressive)):
        return
    found = (
        "nothing says what this one was trained with" if objective is None else f"this one was trained with {objective}"
    )
    warnings.warn(
        f"{type(decoder).__name__} is for models trained with {' or '.join(decoder.trained_by)}; "
        f"{found}, so expect poor text",
        UserNote,
        stacklevel=4,
    )
