"""Training runs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from sbd.config.numbers import BlockSizes, Seed
from sbd.selection import Name, Strict

Beta = Annotated[float, Field(ge=0, lt=1)]


class RunConfig(Strict):
    """One training run; see sbd.training.TrainingSettings and sbd.batching.Noise. Rows hold clean tokens.

    models: those it is trained for, all if left out. repeats: the run that this one is a repetition of, with another
    seed; whatever the file does not say is as in that run.
    gpus: ranks of the run, each on a GPU; 0 is one process on what there is. micro_rows "auto": as many rows per pass
    of a rank as `plan` finds room for on its GPU.
    """

    parent: Name | None = None
    models: list[Name] | None = None
    repeats: Name | None = None
    objective: Literal["ntp", "sbd", "sdlm"]
    steps: PositiveInt
    batch_rows: PositiveInt
    micro_rows: PositiveInt | Literal["auto"]
    learning_rate: PositiveFloat
    warmup_steps: int = Field(ge=1)
    min_lr_ratio: float = Field(0.1, ge=0, le=1)
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: float = Field(0.1, ge=0)
    max_grad_norm: PositiveFloat = 1.0
    ntp_weight: float = Field(1.0, ge=0)
    block_weight: float = Field(1.0, ge=0)
    normalization: Literal["tokens", "terms"] = "tokens"
    block_size: BlockSizes = (2, 16)
    mask_rate: Literal["sequence", "block"] = "sequence"
    prompt_loss: bool = False
    sdlm_repeats: PositiveFloat = 1.0
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    seed: Seed = 0
    data_seed: Seed = Field(0, description="order of the data; equal for runs that are compared")
    checkpoint_every: PositiveInt = 500
    log_every: PositiveInt = 10
    spike_factor: float | None = Field(None, gt=1)
    gpus: int = Field(0, ge=0)
    sharded: bool = False
    activation_checkpointing: bool = False
    attention: Literal["sdpa", "flex_attention", "flash_attention_2"] | None = None
    pad_multiple: PositiveInt = 1
    checkpoint_precision: Literal["fp32", "bf16"] = "fp32"
    label: str | None = None

    @model_validator(mode="after")
    def _ranks_share_the_batch(self) -> RunConfig:
        if self.gpus and self.batch_rows % self.gpus:
            raise ValueError(f"batch_rows {self.batch_rows} is not a multiple of gpus {self.gpus}; change one of them")
        if not self.ntp_weight and (self.objective == "ntp" or not self.block_weight):
            raise ValueError("every loss has weight 0, so there is nothing to train; raise ntp_weight or block_weight")
        if self.attention == "flash_attention_2" and (self.objective != "ntp" or self.micro_rows not in (1, "auto")):
            raise ValueError(
                "flash_attention_2 knows causal rows only: it needs objective ntp and micro_rows 1 or auto"
            )
        return self
