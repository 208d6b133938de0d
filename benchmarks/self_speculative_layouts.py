"""Which tree of drafts is fastest: self-speculative decoding of a trained model over block sizes and branches.

Branches 0 drafts and verifies in turns; as many branches as the block is long is the full tree; between them the
likeliest branches are kept. All give the same text. Tokens per forward stand beside the positions that a pass costs.
Usage: python benchmarks/self_speculative_layouts.py CHECKPOINT PROBLEMS.jsonl --output layouts.csv
"""

import argparse
from pathlib import Path

import torch

import sbd
from sbd.data import encode_prompt, read_problems
from sbd.speed import measure, write_csv


def main() -> None:
    """Measure, print, write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("problems", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--blocks", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--branches", type=int, nargs="+", default=[0, 1, 2, 4, 8, 16])
    parser.add_argument("--new", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model, tokenizer = sbd.load(options.checkpoint)
    layouts = {
        f"block {k}, branches {branches}": sbd.SelfSpeculative(k, branches)
        for k in options.blocks
        for branches in options.branches
        if branches <= k
    }
    rows = measure(
        model,
        [encode_prompt(tokenizer, problem["prompt"]) for problem in read_problems(options.problems, options.count)],
        layouts,
        options.batches,
        options.new,
        tokenizer.eos_token_id,  # type: ignore[arg-type]
        options.repeats,
        hugging_face=False,
        clock=options.clock,
    )
    write_csv(options.output, rows)
    for row in rows:
        keys = ("batch", "decoder", "tokens_per_second", "tokens_per_forward", "queries_per_pass", "gain_measured")
        print({key: row[key] for key in keys})


if __name__ == "__main__":
    main()
