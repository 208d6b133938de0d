"""Decoders of a Llama with random weights, measured as `python -m sbd speed` does: wall-clock against equation 16.

Text of random weights means nothing, so what matters is time: passes of 1, k and 2k tokens, and the gain at a fixed
number of passes per block (TopK reveals a fixed number of tokens per pass) beside the gain that equation 16 predicts.
Writes one CSV file, a row for each execution, batch size and decoder. Usage:
python benchmarks/random_llama.py --shape 135m --dtype float32 --output results/135m_float32.csv
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from sbd.decoding import SelfSpeculative, SetBlock
from sbd.samplers import EntropyBound, TopK
from sbd.speed import measure, write_csv

SHAPES: dict[str, dict[str, Any]] = {
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
        "tie_word_embeddings": True,
    },
    "135m": {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49_152,
        "tie_word_embeddings": True,
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
DECODERS = {
    "set_block_16_2_per_pass": SetBlock(16, TopK(2)),
    "set_block_16_4_per_pass": SetBlock(16, TopK(4)),
    "set_block_16_8_per_pass": SetBlock(16, TopK(8)),
    "set_block_16_gamma_0.1": SetBlock(16, EntropyBound(0.1)),
    "self_speculative_8": SelfSpeculative(8, 2),
}


def random_llama(shape: str, device: str, dtype: torch.dtype) -> Any:
    """Random weights, made on the device."""
    config = LlamaConfig(**SHAPES[shape], max_position_embeddings=8192, pad_token_id=0, bos_token_id=1, eos_token_id=2)
    config.mask_token_id, config.sbd_objective = 3, "sbd"
    with torch.device(device):
        model: Any = LlamaForCausalLM(config)
    return model.to(dtype).eval()


def main() -> None:
    """Measure, print the gains, write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--shape", choices=SHAPES, default="1b")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, help="of torch on a CPU")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: the processor's, for one thread")
    parser.add_argument("--executions", nargs="+", choices=("eager", "compile", "graphs"), default=["eager"])
    parser.add_argument("--decoders", nargs="+", choices=DECODERS, default=list(DECODERS))
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3, help="of which the medians are written")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = random_llama(options.shape, options.device, getattr(torch, options.dtype))
    parameters = sum(parameter.numel() for parameter in model.parameters())
    generator = torch.Generator().manual_seed(1)
    shape = (max(options.batches), options.prompt)
    prompts = torch.randint(4, model.config.vocab_size, shape, generator=generator).tolist()
    rows = []
    for execution in options.executions:
        for batch in options.batches:
            found = measure(
                model,
                prompts[:batch],
                {name: DECODERS[name] for name in options.decoders},
                batch_sizes=[batch],
                max_new_tokens=options.new,
                repeats=options.repeats,
                hugging_face=execution == "eager",
                clock=options.clock,
                execution=execution,
            )
            about = {"shape": options.shape, "parameters": parameters, "prompt": options.prompt, "new": options.new}
            rows += [{**about, **row} for row in found]
            for row in found:
                keys = ("decoder", "batch", "tokens_per_second", "ms_per_pass", "gain_decoding", "gain_predicted")
                print(execution, {key: row[key] for key in keys}, flush=True)
            write_csv(options.output, rows)
    if model.device.type == "cuda":
        print(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
