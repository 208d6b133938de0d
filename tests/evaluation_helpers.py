"""What the tests of evaluations share: requests, a stub with scripted answers, and problems of each task."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from lm_eval.api.instance import Instance

import sbd
from sbd import evaluation, records
from sbd.problems import gsm8k, split

TASKS = Path(__file__).parents[1] / "experiments" / "tasks"
PROMPTS = [
    "Mia has 3 apples.\n",
    "Tom has 12 apples and buys 4 more.\n",
    "Tom\n",
    "Mia has 1 and 2 and 3.\n",
    "5 more.\n",
]
KEY = {"scale": "tiny", "model": "m", "run": "r", "decoder": "d", "benchmark": "b"}


def requests(kind: Any, arguments: list[tuple]) -> list[Instance]:
    return [Instance(request_type=kind, doc={}, arguments=given, idx=0) for given in arguments]


def generating(prompts: list[str], **settings: Any) -> list[Instance]:
    return requests("generate_until", [(prompt, {"until": [], "max_gen_toks": 8, **settings}) for prompt in prompts])


def jsonl(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def tiny_stub(tokenizer: Any, positions: int = 4096) -> Any:
    """Stands for a model where only its texts matter."""
    config = SimpleNamespace(max_position_embeddings=positions, vocab_size=len(tokenizer))
    return SimpleNamespace(config=config, device=torch.device("cpu"), dtype=torch.float32)


def scripted(answers: Mapping[int, Any]) -> Callable[..., Any]:
    """A decoder that says what it is told, two tokens per pass. ``answers``: request number -> tokens."""

    def generate(model: Any, prompts: list[list[int]], sample_ids: list[int], **_: Any) -> Any:
        tokens = [answers[sample] for sample in sample_ids]
        return SimpleNamespace(
            tokens=tokens,
            forward_passes=[(len(row) + 1) // 2 for row in tokens],
            prefill_passes=[1] * len(tokens),
            revealed_at=[[1 + i // 2 for i in range(len(row))] for row in tokens],
        )

    return generate


def evaluate_texts(
    texts: list[str], problems: list[dict], task: str, folder: Path, tokenizer: Any, monkeypatch: Any, **more: Any
) -> records.Record:
    """A whole evaluation of a model that answers with ``texts``."""
    answers = {
        number: [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        for number, text in enumerate(texts)
    }
    monkeypatch.setitem(vars(sbd), "generate", scripted(answers))
    return evaluation.evaluate(
        (tiny_stub(tokenizer), tokenizer),
        TASKS / f"{task}.yaml",
        jsonl(folder / "test.jsonl", problems),
        {"kind": "set_block", "block_size": 4, "sampler": {"gamma": 0.1}},
        folder / "out",
        {**KEY, "benchmark": task},
        batch_size=3,
        **{"max_new_tokens": 400, **more},
    )


def gsm8k_problems() -> list[dict]:
    rows = [
        {"question": "Two and three?", "answer": "2+3=<<2+3=5>>5\n#### 5"},
        {"question": "A house?", "answer": "So\n\nit costs 70,000\n#### 70,000"},
        {"question": "Below?", "answer": "It is cold.\n#### -4"},
    ]
    return gsm8k.convert(rows)


def problems_of(task: str) -> list[dict]:
    return gsm8k_problems() if task == "gsm8k" else split(task, 7, train=0, validation=0, test=7)["test"]
