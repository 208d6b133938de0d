"""The roofline of the paper (equations 15 to 17, figure 11): as printed, and with the true sizes of the models.

    time of an operation = max(operations / peak, bytes / bandwidth)
    speed-up(l, k)       = k time(1) / (time(2k) + (l - 1) time(k))          k tokens in l passes

The first of the l passes carries the finished previous block too, 2k tokens. The printed code calls its linear layers
with wrong sizes; `PRINTED` repeats them, so that both tables come out to the last printed digit.
"""

from __future__ import annotations

import argparse
import csv
import time as clock
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from sbd.equation_16 import predicted_gain
from sbd.errors import UserError
from sbd.files import replacing

KV_LENGTHS = tuple(2**power for power in (4, 8, 10, 12, 14, 16, 20, 22))
"""Tokens in the cache, of both tables."""


@dataclass(frozen=True)
class Hardware:
    """Peaks in operations per second, bandwidth in bytes per second, overhead in seconds per forward pass.

    number_bytes: bytes per number at that peak, such as 1 for FP8 and 4 for float32.
    """

    name: str
    linear_peak: float
    attention_peak: float
    bandwidth: float
    overhead: float = 0.0
    number_bytes: float = 1.0


@dataclass(frozen=True)
class Precision:
    """Bytes per number."""

    weight: float = 1
    activation: float = 1
    kv: float = 1


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder. ffn_matrices: 2 (up, down) or 3 (SwiGLU). vocabulary 0: no LM head is counted.

    kv_projection: output size of the K and of the V layer; None for the true one, kv_heads times head_dim.
    """

    name: str
    layers: int
    hidden: int
    ffn: int
    ffn_matrices: int
    heads: int
    head_dim: int
    kv_heads: int
    vocabulary: int = 0
    kv_projection: int | None = None

    @classmethod
    def of(cls, name: str, config: Mapping[str, Any], vocabulary: int) -> Shape:
        """From the keys of a Hugging Face Llama or Qwen3 configuration."""
        heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
        return cls(
            name,
            layers=int(config["num_hidden_layers"]),
            hidden=hidden,
            ffn=int(config["intermediate_size"]),
            ffn_matrices=3,
            heads=heads,
            head_dim=int(config.get("head_dim") or hidden // heads),
            kv_heads=int(config.get("num_key_value_heads") or heads),
            vocabulary=vocabulary,
        )

    def without_head(self) -> Shape:
        """The same without the LM head."""
        return replace(self, vocabulary=0)


PAPER_H100 = Hardware("H100 as in the paper", 1978e12, 989e12, 3.35 * 1024**4)
"""Figure 6: FP8 for linear layers, BF16 for attention; 3.35 TiB/s, although the data sheet says 3.35e12 bytes."""
H100 = Hardware("H100", 1979e12, 989.5e12, 3.35e12)
H200 = Hardware("H200", 1979e12, 989.5e12, 4.8e12)
B200 = Hardware("B200", 4500e12, 2250e12, 8.0e12)
"""Dense FP8 and BF16 peaks of the SXM versions, from the vendor's data sheets (which print the sparse ones)."""

PRINTED = Shape("as printed", 1, 4096, 4096 * (4 * 4096), 2, 32, 128, 8, kv_projection=32 * 8)
"""Figure 11: the feed-forward layers take hidden * ffn where ffn is meant, K and V take heads * kv_heads."""
PAPER_SHAPE = Shape("as meant by the paper", 1, 4096, 4 * 4096, 2, 32, 128, 8)
LLAMA = Shape("Llama-3.1-8B", 32, 4096, 14336, 3, 32, 128, 8, vocabulary=128256)
QWEN = Shape("Qwen-3-8B", 36, 4096, 12288, 3, 32, 128, 8, vocabulary=151936)


@dataclass(frozen=True)
class Roofline:
    """A model on a machine; its numbers are those of the machine's peak by default: FP8 for the presets."""

    shape: Shape
    hardware: Hardware
    numbers: Precision | None = None

    @property
    def precision(self) -> Precision:
        """Bytes per number of weights, activations, keys and values."""
        size = self.hardware.number_bytes
        return self.numbers or Precision(size, size, size)

    def linear(self, rows: int, inputs: int, outputs: int) -> float:
        """Seconds of a linear layer over ``rows`` tokens."""
        moved = inputs * outputs * self.precision.weight + rows * (inputs + outputs) * self.precision.activation
        return max(2 * rows * inputs * outputs / self.hardware.linear_peak, moved / self.hardware.bandwidth)

    def attention(self, batch: int, queries: int, cached: int) -> float:
        """Seconds of one layer's fused attention: Q, K, V and the output move once."""
        shape, keys = self.shape, cached + queries
        done = 4 * batch * shape.heads * queries * keys * shape.head_dim
        moved = 2 * batch * queries * shape.heads * shape.head_dim * self.precision.activation
        moved += 2 * batch * keys * shape.kv_heads * shape.head_dim * self.precision.kv
        return max(done / self.hardware.attention_peak, moved / self.hardware.bandwidth)

    def forward(self, batch: int, queries: int, cached: int, head_rows: int | None = None) -> float:
        """Seconds of a forward pass of ``queries`` tokens per row over ``cached`` tokens; logits for ``head_rows``."""
        shape, rows = self.shape, batch * queries
        width = shape.heads * shape.head_dim
        kv_width = shape.kv_projection or shape.kv_heads * shape.head_dim
        layer = self.attention(batch, queries, cached)
        layer += self.linear(rows, shape.hidden, width) + self.linear(rows, width, shape.hidden)
        layer += 2 * self.linear(rows, shape.hidden, kv_width)
        layer += (shape.ffn_matrices - 1) * self.linear(rows, shape.hidden, shape.ffn)
        layer += self.linear(rows, shape.ffn, shape.hidden)
        total = shape.layers * layer + self.hardware.overhead
        if shape.vocabulary:
            total += self.linear(batch * (head_rows or queries), shape.hidden, shape.vocabulary)
        return total

    def slowdown(self, batch: int, block_size: int, cached: int) -> float:
        """Time of a pass over a block against that of one token."""
        return self.forward(batch, block_size, cached) / self.forward(batch, 1, cached)

    def speed_up(self, batch: int, block_size: int, cached: int, nfe_speed_up: float) -> float:
        """Wall-clock speed-up of blocks of k tokens in l = k / nfe_speed_up passes (equations 16 and 17).

        Logits are needed for the k masks only, also in the first pass with its 2k tokens.
        """
        time_1, time_k = self.forward(batch, 1, cached), self.forward(batch, block_size, cached)
        time_2k = self.forward(batch, 2 * block_size, cached, head_rows=block_size)
        return predicted_gain(block_size / nfe_speed_up, block_size, time_1, time_k, time_2k)


def table3(roofline: Roofline) -> Iterator[dict[str, Any]]:
    """The 224 cells of table 3: slow-down of one pass over a block."""
    for batch in (1, 4, 8, 16):
        for cached in KV_LENGTHS:
            for block in (1, 2, 4, 8, 16, 32, 64):
                cell = {"batch_size": batch, "kv_cache_length": cached, "block_size": block}
                yield cell | {"slowdown": roofline.slowdown(batch, block, cached)}


def table4(roofline: Roofline) -> Iterator[dict[str, Any]]:
    """The 288 cells of table 4: wall-clock speed-up for a speed-up in forward passes."""
    for nfe in (2, 4, 8):
        for batch in (1, 4, 8):
            for cached in KV_LENGTHS:
                for block in (8, 16, 32, 64):
                    cell = {"nfe_speedup": nfe, "batch_size": batch, "kv_cache_length": cached, "block_size": block}
                    yield cell | {"speedup": roofline.speed_up(batch, block, cached, nfe)}


def measure(device: str = "cpu", repeats: int = 5, size: int | None = None) -> Hardware:
    """Peak of a large matrix product and bandwidth of a read-only sum on this machine, each the best of ``repeats``.

    float32 on a CPU with torch's current number of threads, bfloat16 on a GPU. The overhead per pass is not measured.
    size: side of the square matrices; the default fits the device.
    """
    import torch

    on_gpu = device.startswith("cuda")
    side = size or (8192 if on_gpu else 1024)
    dtype = torch.bfloat16 if on_gpu else torch.float32

    def best(work: Any) -> float:
        seconds = []
        for _ in range(repeats + 1):
            if on_gpu:
                torch.cuda.synchronize(device)
            start = clock.perf_counter()
            work()
            if on_gpu:
                torch.cuda.synchronize(device)
            seconds.append(clock.perf_counter() - start)
        return min(seconds[1:])

    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    peak = 2 * side**3 / best(lambda: left @ right)
    # A vector far larger than any cache, since weights are read once per pass.
    vector = torch.ones(64 * side * side, device=device, dtype=dtype)
    bandwidth = vector.numel() * vector.element_size() / best(vector.sum)
    name = f"this machine ({device}, {str(dtype).removeprefix('torch.')})"
    return Hardware(name, peak, peak, bandwidth, number_bytes=left.element_size())


def write_hardware(path: str | Path, machines: Sequence[Hardware]) -> None:
    """A CSV file, one machine a line."""
    with replacing(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as handle:
        writer = csv.DictWriter(handle, [field.name for field in fields(Hardware)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(machine) for machine in machines)


def read_hardware(path: str | Path) -> list[Hardware]:
    """What `write_hardware` wrote. Raises UserError."""
    try:
        with open(path, encoding="utf-8", newline="") as handle:
            rows = list(csv.DictReader(handle))
        if lost := {field.name for field in fields(Hardware)} - set(rows[0] if rows else ()):
            raise ValueError(f"no {', '.join(sorted(lost))}")
        return [Hardware(row.pop("name"), **{name: float(value) for name, value in row.items()}) for row in rows]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"{path}: not a file of machines ({error}); run `python -m sbd.roofline --output {path}`"
        ) from None


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line: measure this machine and write it down."""
    parser = argparse.ArgumentParser(description="Measure peak and bandwidth of this machine for the roofline.")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=1, help="of torch on a CPU")
    parser.add_argument("--output", required=True, type=Path, help="CSV file")
    options = parser.parse_args(arguments)
    import torch

    torch.set_num_threads(options.threads)
    write_hardware(options.output, [measure(options.device)])


if __name__ == "__main__":
    main()
