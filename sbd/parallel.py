"""A model spread over the ranks of one node: FSDP2, a decoder layer at a time.

Parameters, gradients and optimiser state are split; a layer is gathered when it is needed. Master weights stay as they
were loaded (float32); with bf16 the gathered copies and the products are bf16, and gradients are added in float32.
"""

from __future__ import annotations

from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from sbd.objectives import Objective


def shard(objective: Objective, accelerator: Accelerator) -> nn.Module:
    """Split ``objective`` over all ranks, in place; the optimiser is made after it."""
    mesh = init_device_mesh(accelerator.device.type, (accelerator.num_processes,))
    bf16 = accelerator.mixed_precision == "bf16"
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bf16 else MixedPrecisionPolicy()
    layers: Any = objective.model.base_model.layers
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(objective, mesh=mesh, mp_policy=policy)
    return objective


def whole(value: Tensor | float | None) -> float:
    """A number from a tensor that may be split over ranks; all ranks call it."""
    return float(value.full_tensor() if isinstance(value, DTensor) else value)  # type: ignore[arg-type]


def gathered(model: PreTrainedModel, precision: str) -> dict[str, Tensor]:
    """The weights of a split model, complete on the first rank's CPU and empty elsewhere; all ranks call it."""
    dtype = torch.bfloat16 if precision == "bf16" else None
    weights: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        tensor = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
        if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            weights[name] = tensor.detach().to("cpu", dtype)
        del tensor
    return weights
