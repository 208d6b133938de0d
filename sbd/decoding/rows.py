"""The text of every row of a batch while it grows: what is revealed, when a row ends, and what is reported of it."""

from __future__ import annotations

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
    """Tokens of prompt and solution by position, and how far each row has come: in numpy, on the host.

    The device runs the model, the sampler and the choice of tokens; what was chosen is read when all of it is on its
    way (self-speculative decoding reads its verdict before). Around a small model a pass costs what the operations
    around it count, and one of numpy costs a fraction of one of torch.

    What is one number per row is a column, [batch, 1], so that it meets [batch, n] as it is. ``start``: the first new
    position; ``end``: where the row would end now, behind the first end token revealed so far, whatever is masked
    before it, or at its limit of new tokens; ``known``: every position before it is revealed; ``running``: not done.
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
        self.revealed_at = np.zeros((batch, self.capacity), dtype=np.int64)
        self.entropy = np.zeros((batch, self.capacity), dtype=np.float32) if request.record_entropy else None
        self.is_block_start = np.zeros((batch, self.capacity), dtype=bool)
        self.known = self.start
        self.end = self.start + request.max_new_tokens
        self.running = np.ones((batch, 1), dtype=bool)
        self.forward_passes = np.zeros((batch, 1), dtype=np.int64)
        self.end_tokens = set(request.end_tokens)
        self.pass_number = 0
        self._row = np.arange(batch)[:, None]
        self._texts: list[list[int]] = [[] for _ in range(batch)]
        """What is final of each row; kept only if it is tested or handed out."""
        self._tests = [] if request.stop is None else [request.stop() for _ in range(batch)]
        self._stopped: set[int] = set()

    def at(self, positions: np.ndarray) -> np.ndarray:
        """What stands at ``positions`` [batch, n]."""
        return self.sequence[self._row, positions]

    def start_blocks(self, positions: np.ndarray) -> None:
        """Note that a block of each row starts at ``positions`` [batch, 1]."""
        self.is_block_start[self._row, positions] = True

    def choose(self, logits: Tensor, positions: np.ndarray, row: np.ndarray | None = None) -> Tensor:
        """Tokens [batch, n], on the device, for absolute positions [batch, n].

        ``row`` [batch]: the row of each, where the first dimension of both is another one than that of the rows.
        """
        sampling = self.request.sampling
        if sampling.greedy:
            return logits.max(-1).indices  # that of argmax, which is slower in bf16 on a CPU
        samples, start = self.samples, self.start
        if row is not None:
            samples, start = samples[to_device(row, samples.device)], start[row]
        return sampling.choose(logits, samples, to_device(positions - start, logits.device))

    def reveal(
        self,
        positions: np.ndarray,
        tokens: np.ndarray,
        reveal: np.ndarray,
        entropies: Tensor | np.ndarray | None = None,
    ) -> bool:
        """Write ``tokens`` at ``positions`` (each [batch, n], no position twice in a row) where ``reveal`` is True.

        A position is revealed once. Returns whether there is any.
        """
        row, place = reveal.nonzero()
        at, found = positions[row, place], tokens[row, place]
        self.sequence[row, at] = found
        self.revealed_at[row, at] = self.pass_number
        if self.entropy is not None and entropies is not None:
            recorded = entropies if isinstance(entropies, np.ndarray) else to_host(entropies)
            self.entropy[row, at] = recorded[row, place]
        if not self.end_tokens.isdisjoint(chosen := found.tolist()):
            for number, token in enumerate(chosen):
                if token in self.end_tokens:
                    self.end[row[number]] = min(self.end[row[number], 0], at[number] + 1)
        return len(row) > 0

    def advance(self, known: np.ndarray) -> None:
        """End of a pass: positions before ``known`` [batch, 1] are revealed."""
        self.forward_passes += self.running
        self.known = known
        self.running = self.running & (known < self.end)
        if self._tests or self.request.on_tokens:
            self._follow()

    def _follow(self) -> None:
        """Test the stop condition on the tokens that became final, and hand them out."""
        finals = np.minimum(self.known, self.end)[:, 0].tolist()
        for row, end in enumerate(finals):
            text, start = self._texts[row], self.request.lengths[row]
            seen = len(text)
            if row in self._stopped or end - start <= seen:
                continue
            for token in self.sequence[row, start + seen : end].tolist():
                text.append(token)
                if self._tests and self._tests[row](text):
                    self._stopped.add(row)
                    self.end[row] = start + len(text)
                    self.running[row] = False
                    break
            if self.request.on_tokens:
                self.request.on_tokens(row, text[seen:])

    def generation(self, prefill_passes: int, model_passes: int, model_queries: int) -> Generation:
        """The result."""
        spans = [slice(start, end) for start, end in zip(self.request.lengths, self.end[:, 0].tolist(), strict=True)]

        def cut(values: np.ndarray) -> list[list]:
            return [row[span].tolist() for row, span in zip(values, spans, strict=True)]

        tokens = cut(self.sequence)
        reasons: list[Literal["eos", "stop", "length"]] = [
            "stop" if row in self._stopped else "eos" if found[-1] in self.request.end_tokens else "length"
            for row, found in enumerate(tokens)
        ]
        return Generation(
            tokens=tokens,
            forward_passes=self.forward_passes[:, 0].tolist(),
            prefill_passes=[prefill_passes] * self.batch,
            revealed_at=cut(self.revealed_at),
            finish_reasons=reasons,
            block_starts=[
                row[span].nonzero()[0].tolist() for row, span in zip(self.is_block_start, spans, strict=True)
            ],
            entropies=None if self.entropy is None else cut(self.entropy),
            model_passes=model_passes,
            model_queries=model_queries,
        )


def to_device(values: np.ndarray, device: torch.device) -> Tensor:
    """A tensor of ``values``; on a CPU it is the same memory.

    A GPU need not be waited for: from memory that is not pinned, ``values`` are copied aside before this returns.
    """
    return torch.from_numpy(values).to(device, non_blocking=device.type == "cuda")


def to_host(values: Tensor) -> np.ndarray:
    """An array of ``values``, for which a GPU is waited for; on a CPU it is the same memory."""
    return (values if values.is_cpu else values.cpu()).numpy()
