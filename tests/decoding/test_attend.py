"""Attention of a pass against the same written out: repeated heads, and rows of different width in one line."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sbd.decoding.attend import Heads, Ragged, attention

HEADS = Heads(6, 2, 8)


def of(batch, count, view, dtype=torch.float32):
    """Queries, keys, values, and which of the slots each query sees, the first one in any case."""
    generator = torch.Generator().manual_seed(batch + count)
    queries = torch.randn(batch, count, HEADS.queries, HEADS.width, generator=generator).to(dtype)
    keys, values = (torch.randn(batch, view, HEADS.keys, HEADS.width, generator=generator).to(dtype) for _ in range(2))
    seen = torch.rand(batch, 1, count, view, generator=generator) < 0.7
    seen[..., 0] = True
    return queries, keys, values, seen


def added(seen, dtype=torch.float32):
    return torch.where(seen, 0.0, -torch.inf).to(dtype)


def written_out(queries, keys, values, seen):
    group = HEADS.queries // HEADS.keys
    scores = torch.einsum("bqhd,bkhd->bhqk", queries.float(), keys.float().repeat_interleave(group, 2))
    scores = (scores / HEADS.width**0.5).masked_fill(~seen, -torch.inf)
    return torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), values.float().repeat_interleave(group, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("sees", ["all", "causal", "each", "row"])
@pytest.mark.parametrize(("batch", "count"), [(1, 1), (3, 1), (1, 4), (3, 4), (2, 17)])
def test_grouped_heads_attend_like_repeated_ones(batch, count, sees, dtype):
    """With no mask, token-causally, with a mask for each query, and with one for each row."""
    view = count if sees == "causal" else 7
    queries, keys, values, seen = of(batch, count, view, dtype)
    if sees == "row":
        seen = seen[:, :, :1]
    mask = None if sees in ("all", "causal") else added(seen, dtype)
    if sees == "all":
        seen = torch.ones_like(seen)
    if sees == "causal":
        seen = torch.ones(count, view).tril().bool()
    ours = attention(HEADS, mask, count if sees == "causal" else 0, count, queries)(queries, keys, values)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(
        ours.float(), written_out(queries, keys, values, seen), rtol=max(1e-4, tolerance), atol=tolerance
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("prompt", [1, 20])
def test_a_group_behind_prompts_has_a_mask_and_the_prompts_none(prompt, dtype):
    queries, keys, values, seen = of(3, prompt + 4, prompt + 4, dtype)
    seen = seen[:, :, :1].repeat(1, 1, prompt + 4, 1)
    mask = added(seen[:, :, :1], dtype)
    seen[:, :, :prompt] = torch.ones(prompt, prompt + 4).tril().bool()
    ours = attention(HEADS, mask, prompt, prompt + 4, queries)(queries, keys, values)
    expected = written_out(queries, keys, values, seen)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(ours.float(), expected, rtol=max(1e-4, tolerance), atol=tolerance)


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=5).filter(any))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("view", [9, 3100])
def test_rows_of_any_width_in_one_line_attend_each_by_itself(view, dtype, widths):
    """In groups, and row by row where keys in view are many."""
    queries, keys, values, seen = of(len(widths), max(widths), view, dtype)
    ragged = Ragged(widths, HEADS, view, dtype)
    assert ragged.is_row_by_row == (view > 9)
    line = torch.cat([row[:width] for row, width in zip(queries, widths, strict=True)])
    masks = torch.cat([row[0, :width] for row, width in zip(seen, widths, strict=True)])
    ours = ragged.attention(added(ragged.grouped(masks), dtype)[:, None])(line[None], keys, values)
    expected = written_out(queries, keys, values, seen)
    expected = torch.cat([row[:width] for row, width in zip(expected, widths, strict=True)])
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(ours[0].float(), expected, rtol=max(1e-4, tolerance), atol=tolerance)


@pytest.mark.parametrize(
    ("widths", "size", "groups"),
    [([16, 8, 8, 8], 8, 5), ([16, 16, 16, 8], 8, 7), ([24, 24, 20], 24, 3), ([0, 5, 0], 5, 1), ([4, 1], 4, 2)],
)
def test_groups_are_of_the_size_that_takes_least(widths, size, groups):
    ragged = Ragged(widths, HEADS, 9, torch.float32)
    assert (ragged.size, ragged.groups) == (size, groups)
