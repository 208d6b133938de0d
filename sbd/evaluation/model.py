"""The model class of lm-eval: log-likelihoods by next-token prediction, generation by any decoder."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from transformers import PreTrainedModel, PreTrainedTokenizerBase

import sbd
from sbd import conversations
from sbd.data import encode_prompt
from sbd.errors import UserError
from sbd.evaluation.decoders import make_decoder
from sbd.evaluation.partial import Partial
from sbd.progress import progress

_GENERATION_KEYS = {"until", "max_gen_toks", "max_new_tokens", "do_sample", "temperature", "top_p", "top_k", "seed"}
_LOGIT_ELEMENTS = 2**25
"""Elements of [rows, vocab] in float32 held at once for log-likelihoods: 128 MB."""


@dataclasses.dataclass(frozen=True)
class GenerationSettings:
    """The generation arguments of a request, understood and checked. temperature 0 is greedy."""

    until: tuple[str, ...] = ()
    max_new_tokens: int = 256
    temperature: float = 0.0
    top_p: float | None = None
    top_k: int | None = None
    seed: int = 0

    @staticmethod
    def of(arguments: Mapping[str, Any], default_tokens: int, default_seed: int) -> GenerationSettings:
        """From lm-eval's generation_kwargs; an argument that would be ignored is refused."""
        unknown = sorted(set(arguments) - _GENERATION_KEYS)
        if unknown:
            known = ", ".join(sorted(_GENERATION_KEYS))
            raise UserError(f"generation_kwargs has {', '.join(unknown)}, which nothing would use; known are {known}")
        until = arguments.get("until") or ()
        until = (until,) if isinstance(until, str) else tuple(until)
        tokens = arguments.get("max_gen_toks", arguments.get("max_new_tokens", default_tokens))
        temperature = float(arguments.get("temperature") or 0.0)
        if arguments.get("do_sample") is False:
            temperature = 0.0
        elif arguments.get("do_sample") and arguments.get("temperature") is None:
            temperature = 1.0
        top_p, top_k = arguments.get("top_p"), arguments.get("top_k")
        return GenerationSettings(
            until=tuple(string for string in until if string),
            max_new_tokens=int(tokens),
            temperature=temperature,
            top_p=top_p if temperature > 0 else None,
            top_k=top_k if temperature > 0 else None,
            seed=int(arguments.get("seed", default_seed)),
        )


class SBDLM(TemplateLM):
    """A model of this project for lm-eval. ``statistics`` holds one dict per request of the last ``generate_until``.

    pretrained: a loaded model (then give the tokenizer) or the path of a checkpoint. decoder: a decoder of sbd, or a
    mapping as in an experiment file; autoregressive by default. generate: the function that decodes, for tests.
    thinking: what chat templates are told. partial: where finished batches are kept, and found again. label: what the
    progress is called.
    """

    def __init__(
        self,
        pretrained: PreTrainedModel | str | Path,
        tokenizer: PreTrainedTokenizerBase | None = None,
        decoder: Any = None,
        batch_size: int | str = 1,
        device: str | None = "auto",
        dtype: torch.dtype | None = None,
        max_gen_toks: int = 256,
        seed: int = 0,
        generate: Callable[..., Any] | None = None,
        max_batch_size: int | None = None,
        thinking: bool = False,
        partial: Partial | None = None,
        label: str = "generate",
    ):
        super().__init__()
        if isinstance(pretrained, (str, Path)):
            model, tokenizer = sbd.load(str(pretrained), dtype=dtype, device=device or "auto")
        else:
            model = pretrained
        if tokenizer is None:
            raise UserError("a loaded model needs its tokenizer; pass tokenizer=...")
        self.model: Any = model
        self.tokenizer: Any = tokenizer
        self.decoder = make_decoder({"kind": "autoregressive"} if decoder is None else decoder)
        self.batch_size = positive("batch_size", batch_size)
        self.max_gen_toks = positive("max_gen_toks", max_gen_toks)
        self.seed = seed
        self.thinking = thinking
        self.partial = partial
        self.label = label
        self.statistics: list[dict[str, Any]] = []
        self._generate = generate or sbd.generate
        self._device = self.model.device

    @property
    def eot_token_id(self) -> int:
        """The end token."""
        return self.tokenizer.eos_token_id

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text without context: BOS, or EOS where there is none."""
        bos = self.tokenizer.bos_token_id
        return self.eot_token_id if bos is None else bos

    @property
    def max_length(self) -> int:
        """Positions of the model."""
        return int(self.model.config.max_position_embeddings)

    @property
    def tokenizer_name(self) -> str:
        """Name of the tokenizer, for lm-eval's request cache."""
        return str(self.tokenizer.name_or_path).replace("/", "__")

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """A chat as the prompt text that the tokenizer's template makes of it, as documents are in training.

        Without ``add_generation_prompt`` the last message is the beginning of the answer.
        """
        begun = "" if add_generation_prompt else chat_history[-1]["content"]
        history = chat_history if add_generation_prompt else chat_history[:-1]
        return conversations.render(self.tokenizer, history, self.thinking) + begun

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """Token ids of a text, with exactly one BOS in front unless ``add_special_tokens`` is False."""
        if add_special_tokens is False:
            return self.tokenizer(string, add_special_tokens=False)["input_ids"]
        return encode_prompt(self.tokenizer, string)

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """After a newline the two are cut into tokens apart, as documents are in training; else as lm-eval does it."""
        if context.endswith("\n"):
            return self.tok_encode(context), self.tok_encode(continuation, add_special_tokens=False)
        return super()._encode_pair(context, continuation)

    @torch.inference_mode()
    def _loglikelihood_tokens(self, requests: list[Any], **kwargs: Any) -> list[tuple[float, bool]]:
        """Log-probability of each continuation after its context, and whether greedy decoding would give it.

        Rows are padded on the right: a causal model does not see what follows, so padding changes nothing.
        """
        for pair, context, continuation in requests:
            size = len(context) + len(continuation)
            if size - 1 > self.max_length:
                raise UserError(
                    f"a text of {size} tokens exceeds the {self.max_length} positions of the model"
                    f" (it begins {(pair or ('',))[0][:40]!r}); nothing is cut off, so shorten it"
                )
        order = sorted(range(len(requests)), key=lambda i: -len(requests[i][1]) - len(requests[i][2]))
        results: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        batches = range(0, len(order), self.batch_size)
        bar = progress(len(batches), self.label, unit="batch", disable=kwargs.get("disable_tqdm", False))
        for start in batches:
            rows = order[start : start + self.batch_size]
            texts = [requests[row][1] + requests[row][2] for row in rows]
            width = max(map(len, texts)) - 1
            inputs = torch.tensor([text[:-1] + [0] * (width + 1 - len(text)) for text in texts], device=self._device)
            hidden = self.model.model(input_ids=inputs).last_hidden_state
            for row, text, states in zip(rows, texts, hidden, strict=True):
                first = len(requests[row][1]) - 1
                results[row] = self._score(states[first : len(text) - 1], text[first + 1 :])
            bar.update()
        bar.close()
        return results

    def _score(self, states: torch.Tensor, targets: list[int]) -> tuple[float, bool]:
        """Sum of log-probabilities of ``targets`` [n] under hidden states [n, hidden], in chunks of rows."""
        total, greedy = 0.0, True
        step = max(1, _LOGIT_ELEMENTS // self.model.config.vocab_size)
        labels = torch.tensor(targets, device=states.device)
        for part, wanted in zip(states.split(step), labels.split(step), strict=True):
            logits = self.model.lm_head(part).float()
            chosen = logits.log_softmax(-1).gather(-1, wanted[:, None])
            total += float(chosen.double().sum())
            greedy = greedy and bool((logits.argmax(-1) == wanted).all())
        return total, greedy

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """Log-likelihood of whole texts; one longer than the model is scored in windows, every token once."""
        windows, counts = [], []
        for text in (str(request.arguments[0]) for request in requests):
            tokens = self.tok_encode(text, add_special_tokens=False)
            pairs = get_rolling_token_windows(
                token_list=tokens, prefix_token=self.prefix_token_id, max_seq_len=self.max_length, context_len=1
            )
            parts = [(None, *make_disjoint_window(pair)) for pair in pairs]
            windows += parts
            counts.append(len(parts))
        scores = iter(self._loglikelihood_tokens(windows, disable_tqdm=disable_tqdm))
        return [sum(next(scores)[0] for _ in range(count)) for count in counts]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Continue every context up to a stop string (which is cut off), the end token, or the limit of tokens.

        The text of a request depends on its place in the list, for the seed, but not on the batch it is in.
        """
        arguments: list[Any] = [request.args for request in requests]
        texts = [context for context, _ in arguments]
        prompts = [self.tok_encode(context) for context in texts]
        settings = [GenerationSettings.of(given, self.max_gen_toks, self.seed) for _, given in arguments]
        self._check_lengths(prompts, settings)
        self.statistics = [{} for _ in requests]
        groups: dict[GenerationSettings, list[int]] = {}
        for index, setting in enumerate(settings):
            groups.setdefault(setting, []).append(index)
        for index, statistic in (self.partial.begin(texts) if self.partial else {}).items():
            self.statistics[index] = statistic
        bar = progress(len(requests), self.label, unit="problem", disable=disable_tqdm)
        with bar:
            for setting, members in groups.items():
                members.sort(key=lambda i: (-len(prompts[i]), i))
                for start in range(0, len(members), self.batch_size):
                    rows = members[start : start + self.batch_size]
                    if not all(self.statistics[row] for row in rows):
                        self._generate_batch(rows, texts, prompts, setting)
                        if self.partial:
                            self.partial.add({row: self.statistics[row] for row in rows})
                    done = [s for s in self.statistics if s]
                    passes = sum(s["forward_passes"] for s in done) or 1
                    speed = f"{sum(s['tokens'] for s in done) / passes:.2f} tokens per forward"
                    bar.set_postfix_str(speed, refresh=False)  # or a log gets a line for every batch
                    bar.update(len(rows))
        return [statistic["text"] for statistic in self.statistics]

    def _generate_batch(
        self, rows: list[int], texts: list[str], prompts: list[list[int]], setting: GenerationSettings
    ) -> None:
        started = time.perf_counter()
        out = self._generate(
            self.model,
            [prompts[row] for row in rows],
            decoder=self.decoder,
            max_new_tokens=setting.max_new_tokens,
            eos_token_id=self.eot_token_id,
            temperature=setting.temperature,
            seed=setting.seed,
            top_p=setting.top_p,
            top_k=setting.top_k,
            stop=list(setting.until) or None,
            tokenizer=self.tokenizer,
            sample_ids=rows,
        )
        seconds = (time.perf_counter() - started) / len(rows)
        for place, row in enumerate(rows):
            tokens = out.tokens[place]
            ended = bool(tokens) and tokens[-1] == self.eot_token_id
            whole = self.tokenizer.decode(tokens[:-1] if ended else tokens)
            text = cut_at_stop(whole, setting.until)
            self.statistics[row] = {
                "text": text,
                "tokens": len(tokens),
                "token_ids": list(tokens),
                "forward_passes": out.forward_passes[place],
                "prefill_passes": out.prefill_passes[place],
                "revealed_at": list(out.revealed_at[place]),
                "seconds": seconds,
                "truncated": not ended and text == whole and len(tokens) >= setting.max_new_tokens,
                "prompt_ids": prompts[row],
                "prompt": texts[row],
            }

    def _check_lengths(self, prompts: list[list[int]], settings: list[GenerationSettings]) -> None:
        """Before anything is generated: lm-eval would cut a long prompt on its left without a word."""
        for number, (prompt, setting) in enumerate(zip(prompts, settings, strict=True), 1):
            if len(prompt) + setting.max_new_tokens > self.max_length:
                raise UserError(
                    f"prompt {number} has {len(prompt)} tokens; with {setting.max_new_tokens} new ones that exceeds"
                    f" the {self.max_length} positions of the model. Lower max_new_tokens of the benchmark or"
                    " leave the prompt out"
                )


register_model("sbd")(SBDLM)


def cut_at_stop(text: str, until: Sequence[str]) -> str:
    """``text`` up to the first stop string in it."""
    ends = [place for string in until if (place := text.find(string)) >= 0]
    return text[: min(ends)] if ends else text


def positive(name: str, value: Any) -> int:
    """``value`` as an int of 1 or more, or a UserError that names it."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = 0
    if number < 1:
        raise UserError(f"{name} must be a whole number of 1 or more, not {value!r}")
    return number
