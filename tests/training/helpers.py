"""A training of a few steps on word problems, run whole or stopped on the way."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from sbd import data, training
from sbd.batching import Noise
from sbd.states import KEPT, state_steps
from sbd.training import TrainingSettings, train
from tests.conftest import random_model

SETTINGS = TrainingSettings(
    steps=12,
    batch_rows=4,
    micro_rows=2,
    learning_rate=3e-3,
    warmup_steps=3,
    precision="fp32",
    checkpoint_every=5,
    log_every=1,
)


NOISE = Noise(kind="sbd", block_size=(2, 6))


def run(rows: data.PackedRows, tokenizer, output: Path, settings=SETTINGS, noise=NOISE, architecture="llama") -> dict:
    model = random_model(architecture, tokenizer, initializer_range=0.05)
    return train(model, tokenizer, rows, output, settings, noise, validation=rows)


def weights(output: Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(output / "checkpoint", dtype="auto").state_dict()


def metrics(output: Path) -> list[dict]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


class Halt(Exception):
    """What stops a training in the middle, as a crash would."""


def halted(rows, tokenizer, output: Path, monkeypatch, at: int, settings=SETTINGS) -> int:
    """Run until ``at`` steps are begun, with the states of before; returns where it began."""
    original = training.learning_rate_at
    begun: list[int] = []

    def limited(step, settings):
        begun.append(step)
        if step == at:
            raise Halt
        return original(step, settings)

    with monkeypatch.context() as patch:
        patch.setattr(training, "learning_rate_at", limited)
        with pytest.raises(Halt):
            run(rows, tokenizer, output, settings)
    wait_for(lambda: len(state_steps(output / "state")) == min(KEPT, (at - 1) // settings.checkpoint_every))
    return begun[0]


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def halt(*args, **kwargs):
    raise Halt
