"""How much there is to compute and to hold: operations of a training step, and bytes on a GPU. Arithmetic only."""

from __future__ import annotations

from sbd.roofline import Shape


def layer_parameters(shape: Shape) -> int:
    """Weights of the products of one decoder layer (norms left out: a millionth)."""
    width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return shape.hidden * (2 * width + 2 * kv_width + shape.ffn_matrices * shape.ffn)


def parameters(shape: Shape, tied: bool = False) -> int:
    """All weights: layers, embedding and, unless tied to it, the LM head."""
    return shape.layers * layer_parameters(shape) + shape.vocabulary * shape.hidden * (1 if tied else 2)


def training_operations(shape: Shape, tokens: float, pairs: float, head_rows: float) -> float:
    """Forward and backward (twice the forward) of a training step.

    tokens: clean and noisy. pairs: query and key that attend, per layer. head_rows: tokens that predict something.
    """
    products = shape.layers * layer_parameters(shape) * tokens + shape.vocabulary * shape.hidden * head_rows
    attention = 2 * shape.layers * shape.heads * shape.head_dim * pairs
    return 3 * 2 * (products + attention)
