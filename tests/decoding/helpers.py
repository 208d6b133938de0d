"""Tiny random models, and decoders that recompute everything at every pass: no cache, no batch, plain Python rules."""

import math
from itertools import repeat
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from sbd.decoding import Autoregressive, LongestPrefix, SelfSpeculative, SetBlock
from sbd.samplers import ConfidenceThreshold, CumulativeEntropy, EntropyBound, Factor

PAD, BOS, EOS, MASK = 0, 1, 2, 3
FORBIDDEN = (PAD, BOS, MASK)

LENGTHS = (5, 9, 2, 6)
ENDS = (EOS, 5, 9, 11, 14)
DECODERS = [
    Autoregressive(),
    SetBlock(4, EntropyBound(0.8)),
    SetBlock(4, EntropyBound(0.8), first_token="next_token"),
    SetBlock(4, EntropyBound(0.8), commit="separate"),
    SetBlock((2, 5), EntropyBound(0.8)),
    LongestPrefix(4, 0.4),
    SelfSpeculative(4, 2),
    SelfSpeculative(4, 0),
]


def tiny_model(architecture="llama", vocabulary=24, seed=0, scale=0.35) -> Any:
    """Two layers, hidden 32, grouped heads, float32; weights large enough that the most likely token keeps changing."""
    shape: dict[str, Any] = {
        "vocab_size": vocabulary,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
    }
    generator = torch.Generator().manual_seed(seed)
    model = (
        LlamaForCausalLM(LlamaConfig(**shape)) if architecture == "llama" else Qwen3ForCausalLM(Qwen3Config(**shape))
    )
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            size = 1.0 if "embed" in name or "lm_head" in name else scale
            parameter.data.normal_(0, size, generator=generator)
    model.config.mask_token_id = MASK
    model.config.sbd_objective = "sbd"  # so that no decoder but the one of SDLM warns
    return model.eval()


def by_row(out):
    return list(zip(out.tokens, out.forward_passes, out.revealed_at, out.finish_reasons, out.block_starts, strict=True))


def prompts(lengths, vocabulary=24, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [[BOS, *torch.randint(4, vocabulary, (n - 1,), generator=generator).tolist()] for n in lengths]


def left_padded(rows):
    width = max(map(len, rows))
    ids = torch.tensor([[PAD] * (width - len(row)) + row for row in rows])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
    return ids, mask


@torch.no_grad()
def logits_of(model, tokens, bidirectional_from=None):
    """Logits [len(tokens), vocab] without cache: causal, but from ``bidirectional_from`` on everything is seen."""
    n = len(tokens)
    allowed = torch.ones(n, n).tril().bool()
    if bidirectional_from is not None:
        allowed[bidirectional_from:] = True
    logits = model(input_ids=torch.tensor([tokens]), attention_mask=allowed[None, None], use_cache=False).logits[0]
    logits[:, list(FORBIDDEN)] = -math.inf
    return logits


def entropy_of(row):
    probabilities = torch.softmax(row.double(), -1).tolist()
    return -sum(p * math.log(p) for p in probabilities if p > 0)


def entropy_bound(entropies, gamma):
    """Indices that equation 8 reveals, for a dict of position -> entropy."""
    order = sorted(entropies, key=entropies.__getitem__)
    best = 1
    for s in range(1, len(order) + 1):
        if sum(entropies[i] for i in order[: s - 1]) <= gamma:
            best = s
    return order[:best]


def plain_rule(sampler):
    """The rule of a sampler in plain Python: logits by masked position -> the positions to reveal."""

    def chosen(rows):
        surest = {i: sorted(row.double().softmax(-1).tolist(), reverse=True) for i, row in rows.items()}
        entropies = {i: entropy_of(row) for i, row in rows.items()}
        by_confidence = sorted(rows, key=lambda i: -surest[i][0])
        numbers = range(1, len(rows) + 1)
        if isinstance(sampler, EntropyBound):
            order = {
                "entropy": sorted(rows, key=entropies.__getitem__),
                "confidence": by_confidence,
                "margin": sorted(rows, key=lambda i: surest[i][1] - surest[i][0]),
            }[sampler.order]
            found = [[entropies[i] for i in order[:n]] for n in numbers]
            return order[: max(n for n in numbers if n == 1 or sum(found[n - 1]) - max(found[n - 1]) <= sampler.gamma)]
        if isinstance(sampler, CumulativeEntropy):
            order = sorted(rows, key=entropies.__getitem__)
            return order[: max(n for n in numbers if n == 1 or sum(entropies[i] for i in order[:n]) <= sampler.gamma)]
        if isinstance(sampler, Factor):
            sure = [surest[i][0] for i in by_confidence]
            left = {n: (n + 1) * (1 - sure[n - 1] if sampler.form == "fast_dllm" else sure[n - 1]) for n in numbers}
            return by_confidence[: max(n for n in numbers if n == 1 or left[n] < sampler.factor)]
        if isinstance(sampler, ConfidenceThreshold):
            return [i for i in rows if surest[i][0] > sampler.threshold] or by_confidence[:1]
        return by_confidence[: sampler.count]

    return chosen


def solution_end(tokens, known, start, end_tokens, most):
    """Length of the solution if it is finished, given how many tokens are known from the left; else None."""
    for n in range(1, min(known - start, most) + 1):
        if tokens[start + n - 1] in end_tokens:
            return n
    return most if known - start >= most else None


def reference_autoregressive(model, prompt, most, end_tokens=()):
    tokens = list(prompt)
    while len(tokens) - len(prompt) < most:
        tokens.append(int(logits_of(model, tokens)[-1].argmax()))
        if tokens[-1] in end_tokens:
            break
    return tokens[len(prompt) :]


def reference_set_block(model, prompt, k, gamma: Any, most, end_tokens=(), first_token="masked", commit="fused"):
    """Tokens, number of passes, and pass of each token; k: the size of all blocks, or sizes one by one.

    gamma: of the entropy bound, or a function from logits by position to the positions to reveal.
    """
    start, clean, passes, revealed_at = len(prompt), list(prompt), 0, []
    sizes = repeat(k) if isinstance(k, int) else iter(k)
    bound = lambda rows: entropy_bound({i: entropy_of(row) for i, row in rows.items()}, gamma)  # noqa: E731
    reveal: Any = gamma if callable(gamma) else bound
    while True:
        k = next(sizes)
        if commit == "separate" and len(clean) > start:
            passes += 1
        block, at, first = [MASK] * k, [0] * k, True
        while MASK in block:
            passes += 1
            logits = logits_of(model, clean + block, bidirectional_from=len(clean))
            rows = {i: logits[len(clean) + i] for i in range(k)}
            if first_token == "next_token" and first:
                rows[0] = logits[len(clean) - 1]
            # What is behind the first end token, or the last token that may be there, is not asked for.
            ended = min(k, start + most - len(clean))
            ended = next((i for i in range(ended) if block[i] in end_tokens), ended)
            chosen = set(reveal({i: rows[i] for i in range(ended) if block[i] == MASK}))
            if first_token == "next_token" and first:
                chosen.add(0)
            first = False
            for i in chosen:
                block[i], at[i] = int(rows[i].argmax()), passes
            tokens = clean + block
            known = tokens.index(MASK, start) if MASK in tokens[start:] else len(tokens)
            end = solution_end(tokens, known, start, end_tokens, most)
            if end is not None:
                return tokens[start : start + end], passes, (revealed_at + at)[:end]
        clean, revealed_at = clean + block, revealed_at + at


def reference_longest_prefix(model, prompt, k, most, keep, end_tokens=()):
    """``keep`` maps a list of probabilities and one of entropies to the number of tokens to accept."""
    start, tokens, passes, revealed_at = len(prompt), list(prompt), 0, []
    while True:
        passes += 1
        logits = logits_of(model, tokens + [MASK] * (k - 1), bidirectional_from=len(tokens) - 1)[len(tokens) - 1 :]
        count = keep([float(row.softmax(-1).max()) for row in logits], [entropy_of(row) for row in logits])
        tokens += logits.argmax(-1).tolist()[:count]
        revealed_at += [passes] * count
        end = solution_end(tokens, len(tokens), start, end_tokens, most)
        if end is not None:
            return tokens[start : start + end], passes, revealed_at[:end]


def reference_self_speculative(model, prompt, k, branches, most, end_tokens=()):
    """Passes as laid out: one verifies the drafts, and drafts behind the likeliest numbers of accepted tokens."""

    def draft(known):
        rows = logits_of(model, known + [MASK] * k, bidirectional_from=len(known))[len(known) + 1 :]
        return rows.argmax(-1).tolist(), [float(row.softmax(-1).max()) for row in rows]

    start, known, passes = len(prompt), list(prompt), 1
    certain = int(logits_of(model, known)[-1].argmax())
    drafts, chances = draft(known)
    while True:
        tokens = [*known, certain]
        end = solution_end(tokens, len(tokens), start, end_tokens, most)
        if end is not None:
            return tokens[start : start + end], passes
        passes += 1
        candidates = [certain, *drafts]
        verdict = logits_of(model, known + candidates)[len(known) :].argmax(-1).tolist()
        accepted = 1
        while accepted < len(candidates) and verdict[accepted - 1] == candidates[accepted]:
            accepted += 1
        reach, likelihood = 1.0, {}
        for a in range(1, len(candidates) + 1):
            following = chances[a - 1] if a < len(candidates) else 0.0
            likelihood[a] = reach * (1 - following)
            reach *= following
        laid = sorted(likelihood, key=likelihood.__getitem__, reverse=True)[:branches]
        if len(candidates) == 1:
            laid = [1]
        known = known + candidates[:accepted]
        certain = verdict[accepted - 1]
        end = solution_end([*known, certain], len(known) + 1, start, end_tokens, most)
        if end is not None:
            return [*known, certain][start : start + end], passes
        drafts, chances = draft(known) if accepted in laid else ([], [])
