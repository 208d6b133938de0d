"""The machine that an experiment is planned for."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from sbd.selection import Strict

GPU_MEMORY_GIB = {"H100": 80.0, "H200": 139.0, "B200": 178.0}
"""About what the SXM versions show; they are sold as 80, 141 and 180 GB."""


class HardwareConfig(Strict):
    """What `plan` reckons with; the options of the command come before it. Prices in the currency of your bill.

    memory_gib: of a GPU; that of its kind if left out.
    """

    gpu: Literal["H100", "H200", "B200"] = "H100"
    memory_gib: PositiveFloat = 80
    mfu: float = Field(default=0.4, gt=0, le=1)
    price: float = Field(default=0, ge=0, description="of an hour of one GPU")
    document_tokens: PositiveInt = Field(default=8192, description="mean length of a training document, for attention")
    answer_share: float = Field(
        default=0.8, gt=0, le=1, description="length of the longest answer of a batch, as a share of the limit"
    )

    @model_validator(mode="before")
    @classmethod
    def _memory_of_the_kind(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "memory_gib" in given or given.get("gpu") not in GPU_MEMORY_GIB:
            return given
        return {**given, "memory_gib": GPU_MEMORY_GIB[given["gpu"]]}
