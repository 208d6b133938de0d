"""flash-attn where it fits: a prefill, and a block, or a token, whose queries all see the same beginning of their row.

Only passes that need no mask of their own: those that commit a block, or lay a tree of drafts, go through SDPA. An
optional dependency (the extra ``flash``); without it, or where it cannot be imported, or on a CPU or in float32,
everything goes through SDPA.
"""

from __future__ import annotations

import warnings
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from sbd.errors import UserNote

_WIDEST_HEAD = 256


@cache
def _library() -> Any:
    try:
        return import_module("flash_attn")
    except Exception as error:  # built for another torch or CUDA it raises whatever its loading comes upon
        if not (isinstance(error, ModuleNotFoundError) and error.name == "flash_attn"):
            said = " ".join(str(error).split())
            warnings.warn(
                f"flash-attn is installed but cannot be imported ({said}), so attention goes through SDPA; "
                "install it for this torch and CUDA",
                UserNote,
                stacklevel=2,
            )
        return None


def fits(model: PreTrainedModel, head_dim: int) -> bool:
    """Whether passes of this model may use it."""
    half = model.dtype in (torch.float16, torch.bfloat16)
    return model.device.type == "cuda" and half and head_dim <= _WIDEST_HEAD and _library() is not None


def attend(queries: Tensor, keys: Tensor, values: Tensor, causal: bool, lengths: Tensor | None) -> Tensor:
    """Queries [batch, query, heads, head_dim] over keys and values [batch, view, kv_heads, head_dim].

    lengths [batch]: how many keys of a row its queries see; None for all of them (or, if ``causal``, those before).
    """
    if lengths is None:
        return _library().flash_attn_func(queries, keys, values, causal=causal)
    return _library().flash_attn_with_kvcache(queries, keys, values, cache_seqlens=lengths.to(torch.int32))
