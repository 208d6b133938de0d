"""The text of every row of a batch while it grows: what is revealed, when a row ends, and what is reported of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

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
    """Tokens of prompt and solution by position, and how far each row has come. All state lives on the device.

    What is one number per row is a column, [batch, 1], so that it meets [batch, n] as it is: the loop around a small
    model costs what its operations count. ``start``: the first new position; ``end``: where the row would end now,
    behind the first end token revealed so far, whatever is masked before it, or at its limit of new tokens; ``known``:
    every position before it is revealed; ``running``: not done.
    """

    def __init__(self, request: Request, margin: int):
        device = request.prompts.device
        self.request = request
        batch, width = request.prompts.shape
        self.batch = batch
        self.capacity = max(request.lengths) + request.max_new_tokens + margin
        self.start = torch.tensor(request.lengths, device=device)[:, None]
        self.samples = torch.tensor(request.samples, device=device)
        column = torch.arange(self.capacity, device=device)
        self.sequence = torch.full((batch, self.capacity), request.mask_token, dtype=torch.long, device=device)
        self.sequence[:, :width] = torch.where(column[:width] < self.start, request.prompts, self.sequence[:, :width])
        self.revealed_at = torch.zeros((batch, self.capacity), dtype=torch.long, device=device)
        self.entropy = torch.zeros((batch, self.capacity), device=device) if request.record_entropy else None
        self.is_block_start = torch.zeros((batch, self.capacity), dtype=torch.bool, device=device)
        self.known = self.start
        self.end = self.start + request.max_new_tokens
        self.running = torch.ones_like(self.start, dtype=torch.bool)
        self.forward_passes = torch.zeros_like(self.start)
        self.end_tokens = torch.tensor(request.end_tokens, dtype=torch.long, device=device)
        self.pass_number = 0
        self._texts: list[list[int]] = [[] for _ in range(batch)]
        """What is final of each row, on the host; kept only if it is tested or handed out."""
        self._tests = [] if request.stop is None else [request.stop() for _ in range(batch)]
        self._stopped: set[int] = set()

    def choose(self, logits: Tensor, positions: Tensor) -> Tensor:
        """Tokens [batch, n] for absolute positions [batch, n]."""
        sampling = self.request.sampling
        return sampling.choose(logits, self.samples, positions if sampling.greedy else positions - self.start)

    def reveal(
        self,
        positions: Tensor,
        tokens: Tensor,
        reveal: Tensor,
        filled: Tensor | None = None,
        entropies: Tensor | None = None,
    ) -> None:
        """Write ``tokens`` at ``positions`` (each [batch, n], no position twice in a row) where ``reveal`` is True.

        A position is revealed once. filled: what stands at the positions now, if the caller has it.
        """
        filled = self.sequence.gather(1, positions) if filled is None else filled
        self.sequence.scatter_(1, positions, torch.where(reveal, tokens, filled))
        self.revealed_at.scatter_add_(1, positions, reveal * self.pass_number)
        if self.end_tokens.numel():
            ends = self._is_end(tokens).logical_and_(reveal)
            behind = torch.where(ends, positions + 1, self.capacity)
            self.end = torch.minimum(self.end, behind.amin(1, keepdim=True))
        if self.entropy is not None and entropies is not None:
            self.entropy.scatter_(1, positions, torch.where(reveal, entropies, self.entropy.gather(1, positions)))

    def _is_end(self, tokens: Tensor) -> Tensor:
        """Which of ``tokens`` [batch, n] are end tokens."""
        if len(self.request.end_tokens) == 1:
            return tokens == self.request.end_tokens[0]
        return (tokens[..., None] == self.end_tokens).any(-1)

    def advance(self, known: Tensor, width: int) -> None:
        """End of a pass: positions before ``known`` [batch, 1] are revealed, at most ``width`` more than before."""
        self.forward_passes += self.running
        before, self.known = self.known, known
        self.running = self.running & (known < self.end)
        if self._tests or self.request.on_tokens:
            self._follow(before, width)

    def _follow(self, before: Tensor, width: int) -> None:
        """Test the stop condition on the tokens that became final, and hand them out (reads these to the host).

        before [batch, 1]: what was known before this pass; at most ``width`` tokens from there on are new.
        """
        window = before + torch.arange(width, device=before.device)
        tokens = self.sequence.gather(1, window.clamp(max=self.capacity - 1))
        final = torch.minimum(self.known, self.end)
        for row, (end, *found) in enumerate(torch.cat([final, tokens], 1).tolist()):
            text, start = self._texts[row], self.request.lengths[row]
            seen = len(text)
            if row in self._stopped or end - start <= seen:
                continue
            for token in found[: end - start - seen]:
                text.append(token)
                if self._tests and self._tests[row](text):
                    self._stopped.add(row)
                    self.end[row] = start + len(text)
                    self.running[row] = False
                    break
            if self.request.on_tokens:
                self.request.on_tokens(row, text[seen:])

    def generation(self, prefill_passes: int, model_passes: int, model_queries: int) -> Generation:
        """The result, read to the host once."""
        ends = self.end[:, 0].tolist()
        spans = [slice(start, end) for start, end in zip(self.request.lengths, ends, strict=True)]

        def cut(values: Tensor) -> list[list]:
            return [row[span].tolist() for row, span in zip(values.cpu(), spans, strict=True)]

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
                row[span].nonzero()[:, 0].tolist() for row, span in zip(self.is_block_start.cpu(), spans, strict=True)
            ],
            entropies=None if self.entropy is None else cut(self.entropy),
            model_passes=model_passes,
            model_queries=model_queries,
        )
