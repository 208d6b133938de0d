"""The text of every row of a batch while it grows: what is revealed, when a row ends, and what is reported of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from sbd.decoding.request import Request


@dataclass
class Generation:
    """What was generated, per row, and what it took.

    Counts run to the end of a row's solution. Autoregressive and self-speculative decoding count the prefill as their
    first pass, since it decides the first token, and have 0 in ``prefill_passes``; the block decoders count it apart.
    """

    tokens: list[list[int]]
    """The new tokens, up to and including the first end token, at most ``max_new_tokens``."""
    forward_passes: list[int]
    prefill_passes: list[int]
    revealed_at: list[list[int]]
    """For each new token the number of the pass that revealed it, from 1."""
    finish_reasons: list[Literal["eos", "stop", "length"]]
    block_starts: list[list[int]] = field(default_factory=list)
    """Index of the new token at which each block of the row starts; empty for decoders without blocks."""
    entropies: list[list[float]] | None = None
    """Entropy in nats of each new token's distribution in the pass that revealed it, if it was recorded."""
    model_passes: int = 0
    """Passes the model ran for the whole batch, prefill included."""
    model_queries: int = 0
    """Positions that went through the layers in these passes, of all rows, the prefill apart: what passes cost."""

    @property
    def total_passes(self) -> list[int]:
        """Passes per row with the prefill."""
        return [forward + prefill for forward, prefill in zip(self.forward_passes, self.prefill_passes, strict=True)]

    @property
    def tokens_per_forward(self) -> float:
        """New tokens of all rows over their forward passes: the speed-up in passes over one token per pass."""
        return sum(map(len, self.tokens)) / sum(self.forward_passes)


class Rows:
    """Tokens of prompt and solution by position, and how far each row has come, on the host.

    The device runs the model, the sampler and the choice of tokens; what was chosen is read when all of it is on its
    way (self-speculative decoding reads its verdict before). What happens to a row is told row by row, in plain Python:
    around a small model a pass costs what the operations around it count, and there are few rows.

    ``start`` [batch, 1] is the first new position. ``end``: where a row would end now, behind the first end token
    revealed so far, whatever is masked before it, or at its limit of new tokens. ``is_running``: whether it goes on.
    """

    def __init__(self, request: Request, margin: int):
        self.request = request
        batch, width = request.prompts.shape
        self.batch = batch
        self.capacity = max(request.lengths) + request.max_new_tokens + margin
        self.start = np.array(request.lengths)[:, None]
        # Chance takes their lower 32 bits.
        self.samples = torch.tensor([n & 0xFFFFFFFF for n in request.samples], device=request.prompts.device)
        self.sequence = np.full((batch, self.capacity), request.mask_token)
        given = np.arange(width) < self.start
        self.sequence[:, :width][given] = to_host(request.prompts)[given]
        self.revealed_at = [[0] * self.capacity for _ in range(batch)]
        self.entropy = np.zeros((batch, self.capacity), dtype=np.float32) if request.record_entropy else None
        self.is_block_start = np.zeros((batch, self.capacity), dtype=bool)
        self.end = [length + request.max_new_tokens for length in request.lengths]
        self.is_running = [True] * batch
        self.forward_passes = [0] * batch
        self.end_tokens = set(request.end_tokens)
        self.pass_number = 0
        self._is_followed = request.stop is not None or request.on_tokens is not None
        self._texts: list[list[int]] = [[] for _ in range(batch)]
        """What is final of each row; kept only if it is tested or handed out."""
        self._tests = [] if request.stop is None else [request.stop() for _ in range(batch)]
        self._stopped: set[int] = set()

    def start_block(self, row: int, position: int) -> None:
        """Note that a block of a row starts there."""
        self.is_block_start[row, position] = True

    def choose(
        self, logits: Tensor, positions: np.ndarray | Sequence[Sequence[int]], row: Sequence[int] | np.ndarray
    ) -> Tensor:
        """Tokens [n, m], on the device, for absolute positions [n, m] of the rows ``row`` [n]."""
        sampling = self.request.sampling
        if sampling.greedy:
            return most_likely(logits)
        number = to_device(np.asarray(row), logits.device)
        new = to_device(np.asarray(positions) - self.start[row], logits.device)
        return sampling.choose(logits, self.samples[number], new)

    def reveal(self, row: int, position: int, token: int, entropy: float | None = None) -> None:
        """Write a token where a mask stands, once."""
        self.sequence[row, position] = token
        self.revealed_at[row][position] = self.pass_number
        if self.entropy is not None and entropy is not None:
            self.entropy[row, position] = entropy
        if token in self.end_tokens:
            self.end[row] = min(self.end[row], position + 1)

    def advance(self, row: int, known: int) -> None:
        """End of a pass for a row that runs: its positions before ``known`` are revealed."""
        self.forward_passes[row] += 1
        self.is_running[row] = known < self.end[row]
        if self._is_followed:
            self._follow(row, min(known, self.end[row]))

    def _follow(self, row: int, end: int) -> None:
        """Test the stop condition on the tokens of a row that became final, and hand them out."""
        text, start = self._texts[row], self.request.lengths[row]
        seen = len(text)
        if end - start <= seen:
            return
        for token in self.sequence[row, start + seen : end].tolist():
            text.append(token)
            if self._tests and self._tests[row](text):
                self._stopped.add(row)
                self.end[row] = start + len(text)
                self.is_running[row] = False
                break
        if self.request.on_tokens:
            self.request.on_tokens(row, text[seen:])

    def generation(self, prefill_passes: int, model_passes: int, model_queries: int) -> Generation:
        """The result."""
        spans = [slice(start, end) for start, end in zip(self.request.lengths, self.end, strict=True)]

        def cut(values: np.ndarray) -> list[list]:
            return [row[span].tolist() for row, span in zip(values, spans, strict=True)]

        tokens = cut(self.sequence)
        reasons: list[Literal["eos", "stop", "length"]] = [
            "stop" if row in self._stopped else "eos" if found[-1] in self.request.end_tokens else "length"
            for row, found in enumerate(tokens)
        ]
        return Generation(
            tokens=tokens,
            forward_passes=list(self.forward_passes),
            prefill_passes=[prefill_passes] * self.batch,
            revealed_at=[row[span] for row, span in zip(self.revealed_at, spans, strict=True)],
            finish_reasons=reasons,
            block_starts=[
                row[span].nonzero()[0].tolist() for row, span in zip(self.is_block_start, spans, strict=True)
            ],
            entropies=None if self.entropy is None else cut(self.entropy),
            model_passes=model_passes,
            model_queries=model_queries,
        )


def most_likely(logits: Tensor) -> Tensor:
    """Tokens [n, m] of logits [n, m, vocab]; of equals the first."""
    if logits.is_cpu:
        return torch.from_numpy(logits.float().numpy().argmax(-1))  # a fraction of what torch takes
    return logits.max(-1).indices


def to_device(values: np.ndarray, device: torch.device) -> Tensor:
    """A tensor of ``values``; on a CPU it is the same memory.

    A GPU need not be waited for: from memory that is not pinned, ``values`` are copied aside before this returns.
    """
    tensor = torch.from_numpy(values)
    return tensor if device.type == "cpu" else tensor.to(device, non_blocking=device.type == "cuda")


def to_host(values: Tensor) -> np.ndarray:
    """An array of ``values``, for which a GPU is waited for; on a CPU it is the same memory."""
    return (values if values.is_cpu else values.cpu()).numpy()
