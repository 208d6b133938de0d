"""Decoders on one GPU: a random Llama of one billion parameters in bf16, measured as `python -m sbd speed` does.

Text of random weights means nothing, so what matters is time: passes of 1, k and 2k tokens, and the wall-clock gain at
fixed numbers of passes per block (TopK reveals a fixed number of tokens per pass) against what equation 16 predicts.
With ``--graphs`` the layers of a pass are captured as CUDA graphs, one for each width, over a cache view of fixed
length.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sbd.decoding import SelfSpeculative, SetBlock
from sbd.decoding.engine import Engine
from sbd.samplers import EntropyBound, TopK
from sbd.speed import measure, pass_seconds, predicted_gain, write_csv

SHAPES: dict[str, dict[str, Any]] = {
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
    },
    "tiny": {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 512,
    },
}


def random_llama(shape: str, device: str, dtype: torch.dtype) -> Any:
    """Random weights, made on the device."""
    config = LlamaConfig(**SHAPES[shape], max_position_embeddings=8192, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    config.mask_token_id = 3
    with torch.device(device):
        model: Any = LlamaForCausalLM(config)
    return model.to(dtype).eval()


def graphed_seconds(model: Any, batch: int, width: int, context: int, repeats: int = 20) -> float:
    """Median seconds of one pass of ``width`` queries per row, replayed as a CUDA graph."""
    with torch.inference_mode():
        engine = Engine(model, batch, context + width, [])
        slots = torch.arange(width, device=model.device).expand(batch, -1) + context
        tokens = torch.ones_like(slots)
        rows = torch.arange(max(1, width // 2), device=model.device).expand(batch, -1)

        def once() -> torch.Tensor:
            return engine.logits(engine.forward(tokens, slots, slots + 1, context + width), rows)

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                once()
        torch.cuda.current_stream().wait_stream(side)
        eager = once().clone()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = once()
        seconds = []
        for _ in range(repeats):
            torch.cuda.synchronize()
            start = time.perf_counter()
            graph.replay()
            torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
        torch.testing.assert_close(captured, eager, rtol=2e-2, atol=2e-2)
        return statistics.median(seconds)


def main() -> None:
    """Write two tables: times per pass, and decoders side by side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/gpu_decode"))
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(0)
    cuda = options.device.startswith("cuda")
    model = random_llama(options.shape, options.device, torch.bfloat16 if cuda else torch.float32)

    passes = []
    for batch in options.batches:
        eager = {w: pass_seconds(model, batch, w, options.prompt) for w in (1, 8, 16, 32)}
        graphed = (
            {w: graphed_seconds(model, batch, w, options.prompt) for w in eager} if options.graphs and cuda else {}
        )
        for width, seconds in eager.items():
            passes.append(
                {
                    "batch": batch,
                    "width": width,
                    "context": options.prompt,
                    "ms_eager": round(1e3 * seconds, 4),
                    "ms_graph": round(1e3 * graphed[width], 4) if graphed else "",
                }
            )
            print(passes[-1], flush=True)
        for kind, times in (("eager", eager), ("graph", graphed)):
            if times:
                gain = predicted_gain(4, 16, times[1], times[16], times[32])
                print(f"batch {batch}, {kind}: equation 16 gives {gain:.2f} at 4 passes per block of 16", flush=True)
    write_csv(options.out / "passes.csv", passes)

    generator = torch.Generator().manual_seed(1)
    shape = (max(options.batches), options.prompt)
    prompts = torch.randint(4, model.config.vocab_size, shape, generator=generator).tolist()
    decoders = {
        "set_block_16_4_per_pass": SetBlock(16, TopK(4)),
        "set_block_16_gamma_0.1": SetBlock(16, EntropyBound(0.1)),
        "self_speculative_8": SelfSpeculative(8, 2),
    }
    rows = []
    for batch in options.batches:
        rows += measure(
            model, prompts[:batch], decoders, batch_sizes=[batch], max_new_tokens=options.new, repeats=options.repeats
        )
    write_csv(options.out / "decoders.csv", rows)
    for row in rows:
        print({key: row[key] for key in ("decoder", "batch", "tokens_per_second", "gain_measured", "gain_predicted")})
    if cuda:
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
