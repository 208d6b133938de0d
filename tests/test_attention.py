"""The training mask against the three rules written out token by token, and what it implies for the logits."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch.nn import functional as F

from sbd import attention
from sbd.attention import CLEAN, Layout, dense_mask, doubled_layout, training_mask
from sbd.errors import UserError


def brute_force(length: int, block_size: int, documents: list[int]) -> torch.Tensor:
    """Figure 9 with the grid restarting at each document, from its prose."""
    starts = []
    for i in range(length):
        starts.append(i if i == 0 or documents[i] != documents[i - 1] else starts[-1])
    mask = torch.zeros(2 * length, 2 * length, dtype=torch.bool)
    for q in range(2 * length):
        for k in range(2 * length):
            iq, ik = q % length, k % length
            block_q, block_k = (iq - starts[iq]) // block_size, (ik - starts[ik]) // block_size
            if starts[iq] != starts[ik]:
                continue
            if q < length and k < length:
                mask[q, k] = ik <= iq
            elif q >= length and k >= length:
                mask[q, k] = block_q == block_k
            elif q >= length and k < length:
                mask[q, k] = block_q > block_k
    return mask


PACKINGS = {1: [0], 7: [0, 0, 0, 1, 1, 2, 2], 13: [3] * 5 + [1] * 8, 24: [0] * 17 + [1] + [0] * 6, 33: [0] * 33}


@pytest.mark.parametrize("block_size", range(2, 17))
@pytest.mark.parametrize("length", PACKINGS)
def test_training_mask_equals_the_three_rules(length: int, block_size: int) -> None:
    documents = PACKINGS[length]
    assert torch.equal(
        training_mask(length, block_size, torch.tensor(documents)), brute_force(length, block_size, documents)
    )
    assert torch.equal(training_mask(length, block_size), brute_force(length, block_size, [0] * length))


def test_grid_restarts_where_document_ids_come_back() -> None:
    # The same id twice, with another document between: two documents, not one.
    assert not training_mask(3, 2, torch.tensor([0, 1, 0]))[2, 0]


@pytest.mark.parametrize(("length", "block_size", "ids"), [(4, 0, None), (4, 2, torch.zeros(3, dtype=torch.long))])
def test_bad_arguments_are_named(length: int, block_size: int, ids: torch.Tensor | None) -> None:
    with pytest.raises(UserError, match=r"block size|document_ids"):
        training_mask(length, block_size, ids)


def doubled_logits(model, layout: Layout, clean: torch.Tensor, noisy: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model(
            input_ids=torch.cat([clean, noisy], dim=1), attention_mask=dense_mask(layout), position_ids=layout.position
        ).logits


def test_clean_half_is_a_plain_causal_forward(model) -> None:
    generator = torch.Generator().manual_seed(0)
    clean, noisy = torch.randint(4, 300, (2, 1, 21), generator=generator)
    logits = doubled_logits(model, doubled_layout(21, 5), clean, noisy)
    with torch.no_grad():
        plain = model(input_ids=clean).logits
    torch.testing.assert_close(logits[:, :21], plain, atol=1e-4, rtol=1e-4)


def test_what_a_change_of_one_token_can_reach(model) -> None:
    length, block_size = 12, 4
    generator = torch.Generator().manual_seed(1)
    clean, noisy = torch.randint(4, 300, (2, 1, length), generator=generator)
    layout = doubled_layout(length, block_size)
    before = doubled_logits(model, layout, clean, noisy)
    for changed in range(length):
        other = noisy.clone()
        other[0, changed] = 3
        after = doubled_logits(model, layout, clean, other)
        assert torch.equal(before[:, :length], after[:, :length]), "a noisy token reached the clean half"
        reached = (before != after).any(-1)[0, length:]
        assert reached.nonzero().flatten().tolist() == [
            i for i in range(length) if i // block_size == changed // block_size
        ]
        other = clean.clone()
        other[0, changed] = 3
        after = doubled_logits(model, layout, other, noisy)
        reached = (before != after).any(-1)[0, length:]
        assert reached.nonzero().flatten().tolist() == [
            i for i in range(length) if i // block_size > changed // block_size
        ]


def test_padding_rows_are_not_empty() -> None:
    layout = Layout(torch.tensor([[0, -1, -1]]), torch.tensor([[0, 0, 0]]), torch.tensor([[CLEAN] * 3]))
    mask = dense_mask(layout)[0, 0]
    assert mask.any(dim=-1).all()
    assert not mask[0, 1:].any()
    assert not mask[1:, 0].any()


@pytest.mark.skipif(shutil.which("g++") is None, reason="compiling FlexAttention on a CPU needs g++")
def test_flex_attention_gives_the_outputs_of_the_dense_mask() -> None:
    # Compiled once on a CPU, which has no backward of FlexAttention; gradients are compared on a GPU.
    from torch.nn.attention.flex_attention import flex_attention

    flex = torch.compile(flex_attention)
    generator = torch.Generator().manual_seed(2)
    for block_size, ids in ((3, [0] * 40), (16, [0] * 11 + [1] * 29)):
        layout = doubled_layout(40, block_size, torch.tensor(ids))
        query, key, value = torch.randn(3, 1, 2, 80, 16, generator=generator)
        dense = F.scaled_dot_product_attention(query, key, value, attn_mask=dense_mask(layout))
        torch.testing.assert_close(flex(query, key, value, block_mask=attention.block_mask(layout)), dense)
