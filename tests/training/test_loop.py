"""The loop: it learns, stops on NaN, and its checkpoint is a plain Hugging Face folder."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from sbd import modeling, training
from sbd.errors import UserError
from sbd.states import state_steps
from sbd.training import learning_rate_at, train
from tests.conftest import random_model
from tests.training.helpers import NOISE, SETTINGS, metrics, run, weights


def test_both_losses_fall_and_the_checkpoint_opens(rows, tokenizer, tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, steps=60, learning_rate=1e-2)
    summary = run(rows, tokenizer, tmp_path, settings)
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == list(range(1, 61))
    assert lines[-1]["ntp_loss"] < 0.5 * lines[0]["ntp_loss"]
    assert lines[-1]["block_loss"] < 0.6 * lines[0]["block_loss"]
    assert summary["validation"]["ntp_loss"] == pytest.approx(lines[-1]["ntp_loss"], rel=0.5)
    assert json.loads((tmp_path / "checkpoint" / "training.json").read_text())["steps"] == 60
    assert AutoTokenizer.from_pretrained(tmp_path / "checkpoint").mask_token_id == tokenizer.mask_token_id
    model, _ = modeling.load(tmp_path / "checkpoint", device="cpu")
    assert model.config.mask_token_id == tokenizer.mask_token_id
    assert not (tmp_path / "state").exists()


def test_a_checkpoint_in_bf16_opens_as_such_and_training_kept_float32(rows, tokenizer, tmp_path: Path) -> None:
    run(rows, tokenizer, tmp_path / "half", dataclasses.replace(SETTINGS, checkpoint_precision="bf16"))
    run(rows, tokenizer, tmp_path / "full")
    half, full = weights(tmp_path / "half"), weights(tmp_path / "full")
    assert half.keys() == full.keys()
    for name in full:
        assert half[name].dtype == torch.bfloat16
        assert torch.equal(half[name], full[name].bfloat16())


def test_one_process_trains_in_one_precision_after_the_other(rows, tokenizer, tmp_path: Path) -> None:
    said = [
        run(rows, tokenizer, tmp_path / str(number), dataclasses.replace(SETTINGS, steps=2, precision=precision))[
            "precision"
        ]
        for number, precision in enumerate(("bf16", "fp32", "bf16"))
    ]
    assert said == ["bf16", "no", "bf16"]


def test_accumulation_over_micro_batches_changes_nothing(rows, tokenizer, tmp_path: Path) -> None:
    run(rows, tokenizer, tmp_path / "two")
    run(rows, tokenizer, tmp_path / "one", dataclasses.replace(SETTINGS, micro_rows=4))
    two, one = weights(tmp_path / "two"), weights(tmp_path / "one")
    for name in two:
        torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-4)


def test_a_spike_of_the_loss_stops_before_the_update_with_the_state_saved(rows, tokenizer, tmp_path) -> None:
    settings = dataclasses.replace(SETTINGS, spike_factor=1.0, steps=40, learning_rate=0.5, warmup_steps=1)
    with pytest.raises(
        UserError, match=r"the loss .* of step \d+ is over 1 times its running mean .* --adopt"
    ) as error:
        run(rows, tokenizer, tmp_path, settings)
    step = int(str(error.value).split("of step ")[1].split()[0])
    assert state_steps(tmp_path / "state")[-1] == step
    assert [line["step"] for line in metrics(tmp_path)] == list(range(1, step + 1))
    # The same command stops at once at the same place; the advice leads past it.
    with pytest.raises(UserError, match=f"of step {step} is over"):
        run(rows, tokenizer, tmp_path, settings)
    advised = dataclasses.replace(settings, learning_rate=1e-4, spike_factor=1.5)
    train(random_model("llama", tokenizer), tokenizer, rows, tmp_path, advised, NOISE, adopt=True)
    assert [line["step"] for line in metrics(tmp_path)] == list(range(1, 41))
    assert metrics(tmp_path)[step]["learning_rate"] == learning_rate_at(step, advised)


def test_nan_stops_with_one_line_and_no_checkpoint(rows, tokenizer, tmp_path: Path) -> None:
    model = random_model("llama", tokenizer)
    with torch.no_grad():
        next(model.parameters())[5] = float("nan")
    with pytest.raises(UserError, match="not finite at step 0") as error:
        train(model, tokenizer, rows, tmp_path, SETTINGS, NOISE)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "checkpoint").exists()
    assert state_steps(tmp_path / "state") == [0]


@pytest.mark.parametrize("at", [8, 10])  # between two states, and where one was just saved
def test_after_nan_the_advice_leads_past_the_step(rows, tokenizer, tmp_path: Path, monkeypatch, at: int) -> None:
    original = training.learning_rate_at

    def diverging(step, settings):
        return 1e30 if step == at - 1 and settings.learning_rate == SETTINGS.learning_rate else original(step, settings)

    monkeypatch.setattr(training, "learning_rate_at", diverging)
    for _ in range(2):  # the same command stops at once at the same place
        with pytest.raises(UserError, match=f"not finite at step {at} .*--adopt.* goes back to the state before it"):
            run(rows, tokenizer, tmp_path)
        assert state_steps(tmp_path / "state") == [5, at]
    advised = dataclasses.replace(SETTINGS, learning_rate=1e-4)
    train(random_model("llama", tokenizer), tokenizer, rows, tmp_path, advised, NOISE, adopt=True)
    lines = metrics(tmp_path)
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert [line["learning_rate"] for line in lines[4:6]] == [original(4, SETTINGS), original(5, advised)]


def test_learning_rate_warms_up_and_follows_a_cosine() -> None:
    settings = dataclasses.replace(SETTINGS, steps=110, warmup_steps=10, learning_rate=1.0, min_lr_ratio=0.2)
    rates = [learning_rate_at(step, settings) for step in range(111)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == pytest.approx(1.0)
    assert rates[60] == pytest.approx(0.6)
    assert rates[110] == pytest.approx(0.2)
    assert rates[10:] == sorted(rates[10:], reverse=True)
