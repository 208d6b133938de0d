"""The name of the machine behind a measured time."""

from __future__ import annotations

from pathlib import Path

import torch


def device_name(device: torch.device) -> str:
    """The GPU, or the processor as Linux names it: a time means nothing without it."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return device.type
    return f"{device.type}: {name}"
