"""The losses: next-token prediction on the clean tokens, masked-token prediction on the noisy ones (paper eq. 14).

One forward pass over ``[clean | noisy]``; the rows that predict something are gathered before the language-model head,
and the cross-entropy runs over them in chunks that are recomputed in the backward pass, so that no more than
``chunk_size`` rows of logits exist at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from sbd.attention import block_mask, dense_mask
from sbd.batching import IGNORE, Batch

Normalization = Literal["tokens", "terms"]


class Losses(NamedTuple):
    """Sums of the token losses in nats (scalars, float32) and how many tokens they run over (integers)."""

    ntp: Tensor
    block: Tensor
    ntp_count: Tensor
    block_count: Tensor


def token_losses(hidden: Tensor, head: nn.Module, labels: Tensor, chunk_size: int = 4096) -> Tensor:
    """Cross-entropy in nats of each row, float32 ``[N]``, for ``hidden`` ``[N, width]`` and ``labels`` ``[N]``."""

    def of_chunk(rows: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(head(rows).float(), targets, reduction="none")

    if hidden.shape[0] <= chunk_size:
        return of_chunk(hidden, labels)
    pieces = zip(hidden.split(chunk_size), labels.split(chunk_size), strict=True)
    # One chunk's logits at a time: they are thrown away and computed again for the gradient.
    return torch.cat([_checkpointed(of_chunk, rows, targets) for rows, targets in pieces])


def _checkpointed(function: Callable[[Tensor, Tensor], Tensor], rows: Tensor, targets: Tensor) -> Tensor:
    out = checkpoint(function, rows, targets, use_reentrant=False)
    assert isinstance(out, Tensor)
    return out


class Objective(nn.Module):
    """A causal language model that returns its losses on a :class:`~sbd.batching.Batch`.

    It is the module that accelerate wraps: everything that touches parameters happens in its forward.
    A weight of 0 keeps the loss in the log and its gradient out of the model.
    """

    def __init__(
        self, model: PreTrainedModel, ntp_weight: float = 1.0, block_weight: float = 1.0, chunk_size: int = 4096
    ):
        super().__init__()
        self.model = model
        self.ntp_weight = ntp_weight
        self.block_weight = block_weight
        self.chunk_size = chunk_size

    def forward(self, batch: Batch) -> Losses:
        """Sums of both losses over the batch."""
        backend = self.model.config._attn_implementation
        # flash-attn finds the documents of a causal row by their positions, which begin at 0; it takes no mask.
        by_position = backend == "flash_attention_2"
        mask = block_mask if backend == "flex_attention" else dense_mask
        hidden = self.model.base_model(
            input_ids=batch.input_ids,
            attention_mask=None if by_position else mask(batch.layout),
            position_ids=batch.layout.position,
            use_cache=False,
        ).last_hidden_state
        ntp, ntp_count = self._sum(hidden, batch.ntp_labels, self.ntp_weight)
        block, block_count = self._sum(hidden, batch.block_labels, self.block_weight)
        return Losses(ntp, block, ntp_count, block_count)

    def _sum(self, hidden: Tensor, labels: Tensor, weight: float) -> tuple[Tensor, Tensor]:
        chosen = labels != IGNORE
        rows, targets = hidden[chosen], labels[chosen]
        head = self.model.get_output_embeddings()
        assert head is not None
        with torch.set_grad_enabled(torch.is_grad_enabled() and weight != 0):
            total = token_losses(rows, head, targets, self.chunk_size).sum()
        return total, chosen.sum()

    def total(self, losses: Losses, counts: tuple[float, float], normalization: Normalization = "tokens") -> Tensor:
        """The scalar to differentiate, given the token counts of the whole step (all ranks, all micro-batches).

        "tokens" divides both sums by the number of predicted tokens that carry weight, as one mean over concatenated
        labels does (paper, Code Block 7); "terms" makes each loss a mean of its own.
        """
        ntp_count, block_count = (max(count, 1.0) for count in counts)
        if normalization == "tokens":
            together = ntp_count * (self.ntp_weight != 0) + block_count * (self.block_weight != 0)
            ntp_count = block_count = max(together, 1.0)
        return self.ntp_weight * losses.ntp / ntp_count + self.block_weight * losses.block / block_count
