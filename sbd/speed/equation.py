"""Equation 16 of the paper: the gain in time that fewer, wider passes give."""

from __future__ import annotations


def predicted_gain(forwards_per_block: float, k: int, time_1: float, time_k: float, time_2k: float) -> float:
    """Equation 16: k time(1) / (time(2k) + (l - 1) time(k)) for l forward passes per block of k tokens."""
    return k * time_1 / (time_2k + (forwards_per_block - 1) * time_k)


def counted_gain(
    reference_passes: float,
    passes: float,
    queries: float,
    full: int,
    time_1: float,
    time_k: float,
    time_2k: float,
) -> float:
    """Equation 16 with counted passes in place of l passes a block of which one commits.

    In a batch rows start blocks at different times, and a pass is as wide as the rows that commit in it make it. Both
    decoders give the same number of tokens: the autoregressive one in ``reference_passes``, the other in ``passes``, in
    which ``queries`` positions go through the layers. A pass of ``full`` positions (k of every row) costs ``time_k``,
    one of twice as many ``time_2k``, and one of another width what lies on the line through these two.
    """
    return reference_passes * time_1 / (passes * time_k + (queries / full - passes) * (time_2k - time_k))
