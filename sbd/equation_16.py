"""Equation 16 of the paper: the gain in time that fewer, wider passes give."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Passes:
    """How many passes ran, and how many positions of all rows went through the layers in them."""

    count: float
    queries: float


def predicted_gain(forwards_per_block: float, k: int, time_1: float, time_k: float, time_2k: float) -> float:
    """Equation 16: k time(1) / (time(2k) + (l - 1) time(k)) for l forward passes per block of k tokens."""
    return k * time_1 / (time_2k + (forwards_per_block - 1) * time_k)


def counted_gain(
    reference: Passes,
    passes: Passes,
    rows: int,
    k: int,
    time_row: float,
    time_1: float,
    time_k: float,
    time_2k: float,
) -> float:
    """Equation 16 with counted passes in place of l passes a block of which one commits.

    In a batch rows start blocks at different times and end apart, and a pass is as wide as the rows that still run make
    it. Both decoders give the same number of tokens: the autoregressive one in ``reference``, the other in ``passes``.
    A pass of one token costs ``time_row`` in one row and ``time_1`` in all ``rows``; one of k tokens in all of them
    ``time_k``, and of 2k ``time_2k``. Passes of another width cost what lies on the line through these two.
    """
    narrow = _on_line(reference, (1, time_row), (rows, time_1))
    wide = _on_line(passes, (rows * k, time_k), (2 * rows * k, time_2k))
    return narrow / wide


def _on_line(passes: Passes, one: tuple[int, float], other: tuple[int, float]) -> float:
    """Time of passes of which one of so many positions takes so long."""
    (width, time), (wider, longer) = one, other
    slope = (longer - time) / (wider - width) if wider > width else 0.0
    return passes.count * time + (passes.queries - passes.count * width) * slope
