"""One decoder layer with the true widths and vocabulary of Llama-3.1-8B: a training step on a CPU, and its peak memory.

2 x 2,048 tokens, that is one row of 2,048 clean tokens with a noisy copy of each, through the objective that trains the
8B models: gathered rows, chunked logits, the layer computed again for its gradients. Weights, gradients, both moments
of AdamW and what the layer hands on are bf16; products and attention are made in float32, a slice of the weight at a
time, since most CPUs have no bf16 product. The moments exist before the step that is measured. Gradients of a weight
that several products share are added into its one gradient, never held twice.

    python benchmarks/true_widths.py [--tokens 2048] [--limit-gb 12]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from transformers import LlamaConfig, LlamaForCausalLM

from sbd.batching import Document, Noise, make_batch
from sbd.objectives import Objective

SLICE = 2048
"""Rows of a weight that are float32 at a time."""
CHUNK = 256
"""Rows of logits at a time: on 128,256 entries, an eighth of a GiB."""


class _Product(torch.autograd.Function):
    """``x @ w.T`` in float32 for a bf16 weight, given as ``dtype``; ``w.grad`` must be there, for the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight = w  # what is saved for a recomputed pass is detached, and has no gradient to add to
        rows, out = x.float(), torch.empty(*x.shape[:-1], len(w), dtype=dtype)
        for first in range(0, len(w), SLICE):
            out[..., first : first + SLICE] = rows @ w[first : first + SLICE].float().T
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override] # by its decorator
        [x], w = ctx.saved_tensors, ctx.weight
        rows, [grad] = x.float().flatten(0, -2), grads
        grad = grad.flatten(0, -2)
        grad_x = torch.zeros_like(rows)
        for first in range(0, len(w), SLICE):
            part = grad[:, first : first + SLICE].float()
            grad_x.addmm_(part, w[first : first + SLICE].float())
            w.grad[first : first + SLICE] += part.T @ rows
        return grad_x.view_as(x).to(x.dtype), None, None


def main() -> None:
    """Make the model, measure a step, print a line of JSON; more memory than the limit is an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--limit-gb", type=float, default=12.0)
    options = parser.parse_args()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=1,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        dtype=torch.bfloat16,
    )
    with torch.device("meta"):
        model: Any = LlamaForCausalLM(config)
    model = model.to_empty(device="cpu").to(torch.bfloat16)
    for name, parameter in model.named_parameters():
        # Filled in slices: the initialisation of a whole embedding takes a float32 copy of it.
        for part in parameter.data.split(SLICE):
            part.fill_(1.0) if "norm" in name else part.copy_(torch.randn(part.shape) * 0.02)
    model.model.rotary_emb = type(model.model.rotary_emb)(config)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.weight.grad = torch.zeros_like(module.weight)
            dtype = torch.float32 if name.endswith(("q_proj", "k_proj", "v_proj", "lm_head")) else torch.bfloat16
            module.forward = lambda x, w=module.weight, d=dtype: _Product.apply(x, w, d)  # type: ignore[method-assign]
    model.activation_checkpointing_enable({"use_reentrant": False})
    objective = Objective(model, chunk_size=CHUNK).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for parameter in model.parameters():
        optimizer.state[parameter] = {
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    tokens = np.random.default_rng(0).integers(10, 128000, options.tokens)
    noise = Noise(block_size=(16, 16), prompt_loss=True)
    # The first step whose mask rate leaves no block without a mask: such blocks are not in the row.
    batches = (make_batch([[Document(tokens, 0, 0)]], n, noise, mask_id=2, pad_id=3, eos_id=1) for n in range(1000))
    batch = next(found for found in batches if found.input_ids.shape[1] == 2 * options.tokens)
    counts = (float((batch.ntp_labels >= 0).sum()), float((batch.block_labels >= 0).sum()))
    before = model.lm_head.weight[:4].clone()
    begun = time.perf_counter()
    losses = objective(batch)
    objective.total(losses, counts).backward()
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False))
    optimizer.step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    result = {
        "parameters": model.num_parameters(),
        "positions": batch.input_ids.shape[1],
        "predicted": [int(value) for value in counts],
        "ntp_loss": float(losses.ntp.detach()) / counts[0],
        "block_loss": float(losses.block.detach()) / counts[1],
        "gradient_norm": norm,
        "changed": bool((model.lm_head.weight[:4] != before).any()),
        "seconds": round(time.perf_counter() - begun, 1),
        "threads": torch.get_num_threads(),
        "processors": os.cpu_count(),
        "peak_gb": round(peak, 2),
    }
    print(json.dumps(result))
    if peak > options.limit_gb:
        raise SystemExit(f"peak memory {peak:.1f} GB is over {options.limit_gb:g} GB")


if __name__ == "__main__":
    main()
