"""Whole numbers that users give: those of Python and of numpy, and not True, which Python counts as 1."""

from __future__ import annotations

from numbers import Integral


def integer(value: object, least: int | None = None) -> int | None:
    """``value`` as an int; None if it is no integer, or below ``least``."""
    if not isinstance(value, Integral) or isinstance(value, bool) or (least is not None and value < least):
        return None
    return int(value)
