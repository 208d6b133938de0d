"""Losses against dense cross-entropy written out in the test, labels against the printed figure, gradients included."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from sbd.attention import CLEAN
from sbd.batching import IGNORE, Batch, Document, Noise, make_batch
from sbd.objectives import Objective, token_losses
from tests.live_memory import LiveMemory

SPECIAL = {"mask_id": 3, "pad_id": 2, "eos_id": 1}


def documents(seed: int, shapes: list[tuple[int, int]]) -> list[Document]:
    random = np.random.default_rng(seed)
    return [
        Document(np.append(random.integers(4, 300, length - 1), 1), prompt, 10 * seed + index)
        for index, (length, prompt) in enumerate(shapes)
    ]


ROWS = [documents(1, [(13, 4), (9, 3)]), documents(2, [(17, 6)])]


def batch_of(rows=ROWS, step: int = 0, **noise) -> Batch:
    return make_batch(rows, step, Noise(**noise), **SPECIAL)


def test_labels_of_the_clean_part_are_shifted_and_skip_prompts() -> None:
    batch = batch_of(kind="ntp")
    for row, members in zip(range(2), ROWS, strict=True):
        expected, tokens = [], []
        for member in members:
            following = [*member.tokens[1:].tolist(), IGNORE]
            expected += [label if i + 1 >= member.prompt_length else IGNORE for i, label in enumerate(following)]
            tokens += member.tokens.tolist()
        padding = batch.input_ids.shape[1] - len(tokens)
        assert batch.ntp_labels[row].tolist() == expected + [IGNORE] * padding
        assert batch.input_ids[row].tolist() == tokens + [SPECIAL["pad_id"]] * padding


@pytest.mark.parametrize("prompt_loss", [False, True])
def test_noisy_slots_predict_their_own_token_where_masked(prompt_loss: bool) -> None:
    seen = set()
    for step in range(20):
        batch = batch_of(step=step, kind="sbd", block_size=(5, 5), prompt_loss=prompt_loss)
        document, position, start = batch.layout
        for row, members in enumerate(ROWS):
            for slot in (start[row] != CLEAN).nonzero().flatten().tolist():
                member = members[int(document[row, slot])]
                first = 0 if prompt_loss else member.prompt_length
                place = int(position[row, slot])
                own = int(member.tokens[place]) if place < len(member.tokens) else SPECIAL["eos_id"]
                masked = int(batch.input_ids[row, slot]) == SPECIAL["mask_id"]
                assert int(batch.block_labels[row, slot]) == (own if masked else IGNORE)
                assert masked or int(batch.input_ids[row, slot]) == own
                assert int(start[row, slot]) == first + (place - first) // 5 * 5
                seen.add((row, int(document[row, slot]), place, masked))
    # Over the steps every slot was seen masked and unmasked, in whole blocks, past the end of the text too.
    for row, members in enumerate(ROWS):
        for index, member in enumerate(members):
            first = 0 if prompt_loss else member.prompt_length
            slots = -(-(len(member.tokens) - first) // 5) * 5
            assert {(row, index, first + i, masked) for i in range(slots) for masked in (True, False)} <= seen


def test_blocks_without_a_masked_slot_are_left_out() -> None:
    for step in range(30):
        batch = batch_of(step=step, kind="sbd", block_size=(2, 2))
        noisy = batch.layout.block_start != CLEAN
        for row in range(2):
            starts = batch.layout.block_start[row][noisy[row]] + 1000 * batch.layout.document[row][noisy[row]]
            for start in starts.unique():
                assert (batch.block_labels[row][noisy[row]][starts == start] != IGNORE).any()


def test_sdlm_blocks_start_with_a_known_token_and_predict_the_next_ones() -> None:
    batch = batch_of(kind="sdlm", block_size=(4, 4), sdlm_repeats=2.0)
    document, position, start = batch.layout
    for row, members in enumerate(ROWS):
        slots = (start[row] != CLEAN).nonzero().flatten().tolist()
        assert slots
        for slot in slots:
            member = members[int(document[row, slot])]
            place, anchor = int(position[row, slot]), int(start[row, slot])
            assert 0 <= place - anchor < 4
            assert member.prompt_length - 1 <= anchor < len(member.tokens) - 1
            assert int(batch.input_ids[row, slot]) == (member.tokens[anchor] if place == anchor else SPECIAL["mask_id"])
            following = int(member.tokens[place + 1]) if place + 1 < len(member.tokens) else IGNORE
            assert int(batch.block_labels[row, slot]) == following


def dense_losses(model, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Equation 14 with the logits of every token at once, and a mask written from the rules."""
    document, position, start = (values.tolist() for values in batch.layout)
    size, length = batch.input_ids.shape
    mask = torch.zeros(size, 1, length, length, dtype=torch.bool)
    for b in range(size):
        for q in range(length):
            for k in range(length):
                if document[b][q] != document[b][k]:
                    continue
                if start[b][q] == CLEAN:
                    mask[b, 0, q, k] = start[b][k] == CLEAN and position[b][k] <= position[b][q]
                elif start[b][k] == CLEAN:
                    mask[b, 0, q, k] = position[b][k] < start[b][q]
                else:
                    mask[b, 0, q, k] = start[b][k] == start[b][q]
    logits = model(input_ids=batch.input_ids, attention_mask=mask, position_ids=batch.layout.position).logits.double()
    logits = logits.transpose(1, 2)
    ntp, block = (
        F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")
        for labels in (batch.ntp_labels, batch.block_labels)
    )
    return ntp, block


def gradients(model) -> list[torch.Tensor]:
    return [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]


@pytest.mark.parametrize("chunk_size", [4096, 3])
@pytest.mark.parametrize("kind", ["sbd", "sdlm"])
def test_gathered_and_chunked_losses_equal_dense_cross_entropy(model, kind, chunk_size: int) -> None:
    batch = batch_of(step=3, kind=kind, block_size=(4, 4))
    ours, reference = copy.deepcopy(model), copy.deepcopy(model)
    objective = Objective(ours, ntp_weight=0.7, block_weight=1.3, chunk_size=chunk_size)
    losses = objective(batch)
    counts = (float(losses.ntp_count), float(losses.block_count))
    assert counts == (float((batch.ntp_labels != IGNORE).sum()), float((batch.block_labels != IGNORE).sum()))
    objective.total(losses, counts).backward()
    ntp, block = dense_losses(reference, batch)
    ((0.7 * ntp + 1.3 * block) / sum(counts)).backward()
    torch.testing.assert_close(losses.ntp.double(), ntp, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(losses.block.double(), block, rtol=1e-5, atol=1e-4)
    for mine, theirs in zip(gradients(ours), gradients(reference), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=2e-5)


def test_ntp_weight_alone_is_ordinary_causal_training(model) -> None:
    (row,) = rows = [documents(5, [(19, 1)])]
    batch = make_batch(rows, 0, Noise(kind="sbd", prompt_loss=True), **SPECIAL)
    ours, reference = copy.deepcopy(model), copy.deepcopy(model)
    objective = Objective(ours, ntp_weight=1.0, block_weight=0.0)
    losses = objective(batch)
    objective.total(losses, (float(losses.ntp_count), float(losses.block_count))).backward()
    tokens = torch.from_numpy(row[0].tokens)[None]
    loss = reference(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.testing.assert_close(losses.ntp / losses.ntp_count, loss, rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(gradients(ours), gradients(reference), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


def test_a_weight_of_zero_is_logged_and_not_trained(model) -> None:
    batch = batch_of(step=3)
    both, block_only = copy.deepcopy(model), copy.deepcopy(model)
    with_ntp, without_ntp = Objective(both)(batch), Objective(block_only, ntp_weight=0.0)(batch)
    assert without_ntp.ntp.item() == pytest.approx(with_ntp.ntp.item())
    Objective(block_only, ntp_weight=0.0).total(without_ntp, (30.0, 20.0)).backward()
    (with_ntp.block / 20).backward()
    for mine, theirs in zip(gradients(block_only), gradients(both), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("normalization", ["tokens", "terms"])
def test_accumulated_small_batches_equal_one_large_one(model, normalization) -> None:
    together, apart = copy.deepcopy(model), copy.deepcopy(model)
    large = batch_of(step=5, block_size=(3, 3))
    counts = (float((large.ntp_labels >= 0).sum()), float((large.block_labels >= 0).sum()))
    objective = Objective(together)
    objective.total(objective(large), counts, normalization).backward()
    objective = Objective(apart)
    for row in ROWS:
        small = make_batch([row], 5, Noise(block_size=(3, 3)), **SPECIAL)
        objective.total(objective(small), counts, normalization).backward()
    for mine, theirs in zip(gradients(apart), gradients(together), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


def test_token_losses_of_nothing_is_nothing() -> None:
    head = torch.nn.Linear(4, 8)
    assert token_losses(torch.zeros(0, 4), head, torch.zeros(0, dtype=torch.long)).shape == (0,)


def test_flex_attention_gives_a_model_the_losses_of_the_dense_mask(model) -> None:
    """The block mask on its way through the objective and transformers: packed documents, grouped heads, padding."""
    other = copy.deepcopy(model)
    other.set_attn_implementation("flex_attention")
    batch = make_batch(ROWS, 2, Noise(block_size=(4, 4)), **SPECIAL, multiple=32)
    # Without compiling; and without gradients, which FlexAttention has none of on a CPU.
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        dense, flex = Objective(model)(batch), Objective(other)(batch)
    assert dense.ntp_count == flex.ntp_count > 0
    torch.testing.assert_close(flex.ntp, dense.ntp, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(flex.block, dense.block, rtol=1e-5, atol=1e-4)


def test_the_loss_of_a_large_vocabulary_holds_one_chunk_of_logits() -> None:
    """In bf16 with 151,936 tokens, forward and backward: at most the 12 bytes a logit that the plan reckons with."""
    vocabulary, chunk, rows, width = 151936, 4, 18, 8
    generator = torch.Generator().manual_seed(0)
    head = torch.nn.Linear(width, vocabulary, bias=False, dtype=torch.bfloat16)
    hidden = torch.randn(rows, width, generator=generator).bfloat16().requires_grad_()
    labels = torch.randint(vocabulary, (rows,), generator=generator)
    weights = 2 * 2 * head.weight.nbytes  # their gradient, and that of a chunk which is added to it
    with LiveMemory() as memory:
        token_losses(hidden, head, labels, chunk).sum().backward()
    assert memory.peak < 12 * chunk * vocabulary + weights
    assert memory.peak > 4 * chunk * vocabulary
