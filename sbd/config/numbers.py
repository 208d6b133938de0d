"""Numbers that several sections have."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, PositiveInt

Seed = Annotated[int, Field(ge=0, lt=2**63)]


def ascending(ends: tuple[int, int]) -> tuple[int, int]:
    """The two ends of a range, the low one first; ValueError where it is above the high one."""
    if ends[0] > ends[1]:
        raise ValueError(f"the low end of {list(ends)} is above the high end")
    return ends


BlockSizes = Annotated[tuple[PositiveInt, PositiveInt], AfterValidator(ascending)]
