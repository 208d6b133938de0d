"""Masked-token loss on held-out text by slot of the block and by the share of the block that is masked.

The paper reports neither. A set block is decoded from all masked to few masked, so the two together say where a model
that predicts several tokens at once is weak: early passes (high share), or late slots (far from the clean text).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sbd.attention import CLEAN, dense_mask
from sbd.batching import IGNORE, Batch, Noise, make_batch
from sbd.data import PackedRows, iterate_batches
from sbd.objectives import token_losses


@torch.inference_mode()
def by_slot_and_rate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    rows: PackedRows,
    block_size: int,
    draws: int = 4,
    seed: int = 0,
    batch_rows: int = 8,
) -> Iterator[dict[str, float | int]]:
    """One row per slot (position, from 1) and number of masked slots that occur: mean loss in nats and token count.

    Blocks are laid over the solutions as at decoding, each with a mask rate of its own; ``draws`` sets of masks for
    every document. mask_rate is the share of the block that is masked. Tokens behind the end of a document, with which
    its last block is filled up, are masked as at decoding but not counted.
    """
    noise = Noise("sbd", (block_size, block_size), mask_rate="block", seed=seed)
    special = {"mask_id": tokenizer.mask_token_id, "pad_id": tokenizer.pad_token_id, "eos_id": tokenizer.eos_token_id}
    sums = torch.zeros(2, block_size + 1, block_size + 1, dtype=torch.float64)
    for draw in range(draws):
        for documents in iterate_batches(rows, batch_rows):  # type: ignore[arg-type]
            # The draw is the step of the corruption, which is a pure function of (seed, step, sample).
            batch = make_batch(documents, draw, noise, **special).to(model.device)  # type: ignore[arg-type]
            hidden = model.base_model(
                input_ids=batch.input_ids,
                attention_mask=dense_mask(batch.layout),
                position_ids=batch.layout.position,
                use_cache=False,
            ).last_hidden_state
            position, masked, counted = places(batch)
            head = model.get_output_embeddings()
            assert head is not None
            losses = token_losses(hidden[counted], head, batch.block_labels[counted])
            cells = (position[counted].cpu(), masked[counted].cpu())
            sums[0].index_put_(cells, losses.double().cpu(), accumulate=True)
            sums[1].index_put_(cells, torch.ones(len(losses), dtype=torch.float64), accumulate=True)
    for slot, count in sums[1].nonzero().tolist():
        total, tokens = sums[:, slot, count].tolist()
        yield {
            "block_size": block_size,
            "position": slot,
            "mask_rate": count / block_size,
            "loss": total / tokens,
            "count": int(tokens),
        }


def places(batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """For every token ``[B, S]``: its slot from 1, how many slots of its block are masked, and whether it counts."""
    document, position, start = batch.layout
    slot = position - start + 1
    noisy, masked = start != CLEAN, batch.block_labels != IGNORE
    same_block = (document[:, :, None] == document[:, None, :]) & (start[:, :, None] == start[:, None, :])
    count = (same_block & masked[:, None, :]).sum(-1)
    # The document ends where its clean tokens do.
    clean_here = (document[:, :, None] == document[:, None, :]) & ~noisy[:, None, :]
    length = clean_here.sum(-1)
    return slot, count, masked & noisy & (position < length)
