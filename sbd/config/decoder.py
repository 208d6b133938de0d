"""Decoders and their samplers."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from sbd.config.numbers import ascending
from sbd.selection import Name, Strict


def _unlimited(value: Any) -> Any:
    return math.inf if value == "unlimited" else value


Gamma = Annotated[float, Field(ge=0, allow_inf_nan=True), BeforeValidator(_unlimited)]
BlockSize = PositiveInt | tuple[PositiveInt, PositiveInt]


class SamplerConfig(Strict):
    """Which masked tokens a pass reveals; see sbd.samplers."""

    rule: Literal["entropy_bound", "cumulative_entropy", "factor", "confidence_threshold", "top_k"] = "entropy_bound"
    gamma: Gamma | None = None
    order: Literal["entropy", "confidence", "margin"] = "entropy"
    factor: PositiveFloat | None = None
    threshold: float | None = Field(None, ge=0, le=1)
    count: PositiveInt | None = None
    form: Literal["fast_dllm", "printed"] = "fast_dllm"

    @model_validator(mode="after")
    def _parameter_of_the_rule(self) -> SamplerConfig:
        wanted = {"factor": "factor", "confidence_threshold": "threshold", "top_k": "count"}.get(self.rule, "gamma")
        for name in ("gamma", "factor", "threshold", "count"):
            if (getattr(self, name) is not None) != (name == wanted):
                raise ValueError(f"the rule {self.rule} takes {wanted} and no other number")
        return self


class DecoderConfig(Strict):
    """How text is generated; see sbd.decoding. per_benchmark: samplers in place of `sampler` on some benchmarks."""

    kind: Literal["autoregressive", "set_block", "longest_prefix", "self_speculative"]
    block_size: BlockSize | None = None
    branches: int | None = Field(None, ge=0)
    sampler: SamplerConfig | None = None
    first_token: Literal["masked", "next_token"] = "masked"
    commit: Literal["fused", "separate"] = "fused"
    threshold: float | None = Field(None, ge=0, le=1)
    confidence: Literal["probability", "entropy"] = "probability"
    rule: Literal["each", "product"] = "each"
    per_benchmark: dict[Name, SamplerConfig] = {}
    label: str | None = None

    @model_validator(mode="after")
    def _what_the_kind_needs(self) -> DecoderConfig:
        needs = {
            "autoregressive": (),
            "set_block": ("block_size", "sampler"),
            "longest_prefix": ("block_size", "threshold"),
            "self_speculative": ("block_size",),
        }[self.kind]
        missing = [name for name in needs if getattr(self, name) is None]
        if missing:
            raise ValueError(f"the decoder kind {self.kind} needs {' and '.join(missing)}")
        if isinstance(self.block_size, tuple):
            if self.kind != "set_block":
                raise ValueError(f"the decoder kind {self.kind} takes one block_size, not {list(self.block_size)}")
            ascending(self.block_size)
        elif self.block_size is not None and (self.branches or 0) > self.block_size:
            raise ValueError(f"branches {self.branches} is above block_size {self.block_size}")
        if self.per_benchmark and self.sampler is None:
            raise ValueError("per_benchmark replaces sampler, and there is none")
        return self
