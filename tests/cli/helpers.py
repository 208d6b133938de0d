"""A small experiment, and how its steps are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from sbd.cli import main

ROOT = Path(__file__).parents[2]
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
RUN = {"steps": 2, "batch_rows": 2, "micro_rows": 2, "learning_rate": 0.003, "warmup_steps": 1}
EXPERIMENT: dict[str, Any] = {
    "scale": "mini",
    "tokenizer": {"vocab_size": 400},
    "data": {
        "sequence_length": 400,
        "sources": {"words": {"generator": "tiny_gsm", "train": 12, "validation": 2, "test": 2}},
    },
    "models": {"llama": {"architecture": "llama", "shape": SHAPE}},
    "runs": {
        "base": {"objective": "ntp", **RUN},
        "sbd": {"objective": "sbd", "parent": "base", **RUN},
    },
    "decoders": {
        "ntp": {"kind": "autoregressive"},
        "eb": {"kind": "set_block", "block_size": 4, "sampler": {"gamma": 0.1}},
    },
    "benchmarks": {
        "words": {"task": str(ROOT / "experiments/tasks/tiny_gsm.yaml"), "source": "words", "max_new_tokens": 8},
        "long": {"task": str(ROOT / "experiments/tasks/tiny_gsm.yaml"), "source": "words", "max_new_tokens": 600},
        "no_task": {"task": "experiments/tasks/none.yaml", "source": "words", "max_new_tokens": 8},
    },
    "evaluations": [{"runs": ["sbd"], "decoders": ["ntp", "eb"], "benchmarks": ["words"]}],
    "table1": {"rows": [{"run": "sbd", "decoder": "eb"}]},
    "pareto": {"curves": {"SBD": [{"run": "sbd", "decoder": "eb"}]}},
}
TRAIN = ("train", "--model", "llama", "--run")
EVALUATE = ("evaluate", "--model", "llama", "--run", "sbd", "--decoder", "eb", "--benchmark")


def write(**changes: Any) -> None:
    Path("mini.yaml").write_text(yaml.safe_dump({**EXPERIMENT, **changes}, sort_keys=False), encoding="utf-8")


def sbd(*arguments: str) -> int:
    return main([arguments[0], "--experiment", "mini.yaml", *arguments[1:]])


def problems_file(split: str) -> Path:
    return Path(f"results/mini/data/words/{split}.jsonl")
