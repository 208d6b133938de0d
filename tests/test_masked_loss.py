"""Masked-token loss by slot and mask rate, against one forward pass per block, written out."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sbd import corruption, data
from sbd.data import PackedRows
from sbd.masked_loss import by_slot_and_rate
from tests.conftest import TEXTS

BLOCK, DRAWS, SEED = 4, 2, 5


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, tokenizer: PreTrainedTokenizerBase) -> PackedRows:
    folder = tmp_path_factory.mktemp("rows")
    problems = [dict(zip(("prompt", "solution"), text.split("\n"), strict=True)) for text in TEXTS[:7]]
    (folder / "problems.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    data.prepare([folder / "problems.jsonl"], folder / "out", tokenizer, sequence_length=90, seed=0)
    return PackedRows(folder / "out")


def brute_force(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: PackedRows) -> dict:
    """Loss and count by (slot, masked slots): each block alone behind its document's clean tokens."""
    found: dict[tuple[int, int], list[float]] = {}
    mask, eos = int(tokenizer.mask_token_id), int(tokenizer.eos_token_id)  # type: ignore[arg-type]
    for draw in range(DRAWS):
        for document in (document for index in range(len(rows)) for document in rows[index]):
            tokens, first = document.tokens.tolist(), document.prompt_length
            blocks = math.ceil((len(tokens) - first) / BLOCK)
            masked = corruption.mask_positions(SEED, draw, document.sample, blocks, BLOCK, "block")
            for block in range(blocks):
                start = first + block * BLOCK
                clean = (tokens[start:] + [eos] * BLOCK)[:BLOCK]
                noisy = np.where(masked[block], mask, clean).tolist()
                length = start + BLOCK
                seen = torch.ones(length, length).tril().bool()
                seen[start:, start:] = True
                with torch.no_grad():
                    logits = model(
                        input_ids=torch.tensor([tokens[:start] + noisy]), attention_mask=seen[None, None]
                    ).logits[0, start:]
                losses = -logits.log_softmax(-1)[torch.arange(BLOCK), torch.tensor(clean)]
                for slot in range(BLOCK):
                    if masked[block, slot] and start + slot < len(tokens):
                        found.setdefault((slot + 1, int(masked[block].sum())), []).append(float(losses[slot]))
    return found


def test_it_is_the_mean_over_blocks_decoded_alone(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: PackedRows
) -> None:
    assert any(len(rows[index]) > 1 for index in range(len(rows))), "documents must share a row"
    lines = list(by_slot_and_rate(model, tokenizer, rows, BLOCK, DRAWS, SEED, batch_rows=2))
    expected = brute_force(model, tokenizer, rows)
    assert {(line["position"], line["mask_rate"] * BLOCK) for line in lines} == set(expected)
    assert len(expected) > 8
    for line in lines:
        losses = expected[int(line["position"]), int(line["mask_rate"] * BLOCK)]
        assert line["count"] == len(losses)
        assert line["loss"] == pytest.approx(np.mean(losses), rel=1e-4)


def test_it_does_not_depend_on_the_batch(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: PackedRows
) -> None:
    one, other = (list(by_slot_and_rate(model, tokenizer, rows, BLOCK, 1, SEED, batch_rows=n)) for n in (1, 3))
    assert [line["count"] for line in one] == [line["count"] for line in other]
    assert [line["loss"] for line in one] == pytest.approx([line["loss"] for line in other], rel=1e-4)
