"""Training steps of a random 0.5B Llama on one GPU: is the compiled attention right, and what does a step cost?

1. FlexAttention against the dense mask: hidden states and gradients, several block sizes, packed documents.
2. NTP and SBD, 2 rows of 8,192 clean tokens: tokens per second, MFU, peak memory, seconds of the first steps, and how
   many graphs are compiled after the warm-up while the block size changes (goal: none).

--cpu runs the same code on few tokens of a small model, without compiling: a check of this script, not a measurement.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from sbd.attention import block_mask, dense_mask
from sbd.batching import Batch, Document, Noise, make_batch
from sbd.corruption import block_size_at
from sbd.metrics import PEAKS, count
from sbd.objectives import Objective
from sbd.roofline import Shape
from sbd.workload import training_operations

MASK, PAD, EOS = 3, 2, 1


def llama(layers: int, hidden: int, vocabulary: int, attention: str, device: str) -> LlamaForCausalLM:
    """A random float32 model."""
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        num_key_value_heads=max(1, hidden // 256),
        max_position_embeddings=16384,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model: Any = LlamaForCausalLM(config)
    model = model.to(device)
    model.set_attn_implementation(attention)
    return model


def packed_rows(rows: int, length: int, vocabulary: int, seed: int) -> list[list[Document]]:
    """Rows full of documents of very different lengths, a quarter of each of them prompt."""
    random = np.random.default_rng(seed)
    packed, sample = [], 0
    for _ in range(rows):
        row, left = [], length
        while left > 16:
            size = min(left, int(random.integers(16, max(17, length // 2))))
            row.append(Document(random.integers(4, vocabulary, size), size // 4, sample))
            left, sample = left - size, sample + 1
        packed.append(row)
    return packed


def compiled_graphs() -> int:
    """Graphs that torch.compile has made since the process began, recompilations counted."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def check_attention(device: str, length: int, block_sizes: list[int], compiled: bool) -> list[dict[str, Any]]:
    """Largest difference of hidden states and gradients, relative to the largest value, in float32."""
    from torch.nn.attention.flex_attention import flex_attention
    from torch.nn.functional import scaled_dot_product_attention

    flex: Any = torch.compile(flex_attention) if compiled else flex_attention
    found = []
    for size in block_sizes:
        noise = Noise(block_size=(size, size))
        batch = make_batch(
            packed_rows(2, length, 1000, size), 0, noise, mask_id=MASK, pad_id=PAD, eos_id=EOS, multiple=128
        )
        layout = batch.to(device).layout
        shape = (2, 4, batch.input_ids.shape[1], 64)
        torch.manual_seed(size)
        inputs = [torch.randn(shape, device=device, requires_grad=device == "cuda") for _ in range(3)]
        weight = torch.randn(shape, device=device)

        def both(output: Tensor, inputs: list[Tensor] = inputs, weight: Tensor = weight) -> list[Tensor]:
            # On a CPU FlexAttention has no backward pass.
            grads = torch.autograd.grad((output * weight).sum(), inputs) if output.requires_grad else ()
            return [output.detach(), *grads]

        dense = both(scaled_dot_product_attention(*inputs, attn_mask=dense_mask(layout)))
        sparse = both(flex(*inputs, block_mask=block_mask(layout)))
        differences = [float((a - b).abs().max() / a.abs().max()) for a, b in zip(dense, sparse, strict=True)]
        found.append(
            {
                "block_size": size,
                "tokens": shape[2],
                "output": differences[0],
                "gradient": max(differences[1:], default=0.0),
            }
        )
        print(found[-1], flush=True)
    return found


def train(
    kind: str, device: str, rows: int, length: int, steps: int, warmup: int, sizes: dict[str, int]
) -> dict[str, Any]:
    """Steps on changing rows and block sizes; the warm-up is timed apart."""
    attention = "flex_attention" if device == "cuda" else "sdpa"
    model = llama(**sizes, attention=attention, device=device)
    model.activation_checkpointing_enable({"use_reentrant": False})
    objective = Objective(model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda" or None)
    noise = Noise(kind=kind)  # type: ignore[arg-type]
    shape = Shape.of(kind, model.config.to_dict(), sizes["vocabulary"])
    seconds: list[float] = []
    graphs: list[int] = []
    clean = operations = 0.0
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    for step in range(warmup + steps):
        documents = packed_rows(rows, length, sizes["vocabulary"], step)
        batch: Batch = make_batch(documents, step, noise, mask_id=MASK, pad_id=PAD, eos_id=EOS, multiple=2048)
        ntp, block, clean_tokens, tokens, pairs = (int(value) for value in count(batch))
        begun = time.perf_counter()
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            losses = objective(batch.to(device))
        objective.total(losses, (ntp, block)).backward()
        optimizer.step()
        optimizer.zero_grad()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun)
        graphs.append(compiled_graphs())
        if step >= warmup:
            clean += clean_tokens
            operations += training_operations(shape, tokens, pairs, ntp + block)
    spent = sum(seconds[warmup:])
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    peak = next((hardware.attention_peak for key, hardware in PEAKS.items() if key in name), None)
    result = {
        "objective": kind,
        "device": name,
        "torch": torch.__version__,
        "parameters": model.num_parameters(),
        "rows": rows,
        "length": length,
        "block_sizes": [block_size_at(noise.seed, step, *noise.block_size) for step in range(warmup + steps)],
        "warmup_seconds": [round(value, 2) for value in seconds[:warmup]],
        "seconds_per_step": round(spent / steps, 4),
        "clean_tokens_per_second": round(clean / spent, 1),
        "mfu": operations / spent / peak if peak else None,
        "peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else None,
        "graphs_after_warmup": graphs[-1] - graphs[warmup - 1],
    }
    print(json.dumps(result), flush=True)
    return result


def main() -> None:
    """Run both parts and write ``gpu_train.json``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cpu", action="store_true", help="few tokens on the CPU: whether the script runs")
    options = parser.parse_args()
    small = options.cpu
    device = "cpu" if small else "cuda"
    torch.backends.cuda.matmul.allow_tf32 = False
    result: dict[str, Any] = {
        "attention": check_attention(
            device, 128 if small else 1024, [2, 7, 16] if small else [2, 3, 7, 12, 16], not small
        ),
    }
    sizes = (
        {"layers": 2, "hidden": 64, "vocabulary": 512}
        if small
        else {"layers": 24, "hidden": 1280, "vocabulary": 128256}
    )
    rows, length, steps, warmup = (2, 128, 2, 2) if small else (2, 8192, 12, 6)
    result["training"] = [train(kind, device, rows, length, steps, warmup, sizes) for kind in ("ntp", "sbd")]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu_train.json").write_text(json.dumps(result, indent=2) + "\n")
    worst = max(max(line["output"], line["gradient"]) for line in result["attention"])
    if worst > (1e-4 if small else 5e-3):
        raise SystemExit(f"attention differs by {worst:.2g} of its largest value")


if __name__ == "__main__":
    main()
