"""The loop: it learns, resumes to the bit, stops on NaN, and its checkpoint is a plain Hugging Face folder."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from sbd import data, modeling, training
from sbd.batching import Noise
from sbd.errors import UserError
from sbd.training import TrainingSettings, learning_rate_at, train
from tests.conftest import random_model
from tests.test_data import PROBLEMS, write

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


@pytest.fixture(scope="module")
def rows(tokenizer, tmp_path_factory) -> data.PackedRows:
    folder = tmp_path_factory.mktemp("data")
    data.prepare([write(folder / "train.jsonl", PROBLEMS)], folder / "packed", tokenizer, 64, seed=0)
    return data.PackedRows(folder / "packed")


def run(rows: data.PackedRows, tokenizer, output: Path, settings=SETTINGS, noise=NOISE, architecture="llama") -> dict:
    model = random_model(architecture, tokenizer, initializer_range=0.05)
    return train(model, tokenizer, rows, output, settings, noise, validation=rows)


def weights(output: Path) -> dict[str, torch.Tensor]:
    return AutoModelForCausalLM.from_pretrained(output / "checkpoint").state_dict()


def metrics(output: Path) -> list[dict]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


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


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_killed_run_resumes_to_the_same_bits(rows, tokenizer, tmp_path: Path, architecture: str) -> None:
    run(rows, tokenizer, tmp_path / "whole", architecture=architecture)
    output = tmp_path / "killed"
    child = os.fork()
    if child == 0:
        run(rows, tokenizer, output, _slow(SETTINGS), architecture=architecture)
        os._exit(0)
    deadline = time.monotonic() + 60
    while not (output / "state" / "latest.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the run ended before it was killed"
    assert not (output / "checkpoint").exists()
    run(rows, tokenizer, output, architecture=architecture)
    whole, resumed = weights(tmp_path / "whole"), weights(output)
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    without_time = [[{**line, "seconds": 0} for line in metrics(tmp_path / name)] for name in ("whole", "killed")]
    assert without_time[0] == without_time[1]


def _slow(settings: TrainingSettings) -> TrainingSettings:
    """The same run, with each step slow enough to be killed between two checkpoints."""
    original = training.make_batch

    def delayed(*args, **kwargs):
        time.sleep(0.1)
        return original(*args, **kwargs)

    training.make_batch = delayed
    return settings


def test_accumulation_over_micro_batches_changes_nothing(rows, tokenizer, tmp_path: Path) -> None:
    run(rows, tokenizer, tmp_path / "two")
    run(rows, tokenizer, tmp_path / "one", dataclasses.replace(SETTINGS, micro_rows=4))
    two, one = weights(tmp_path / "two"), weights(tmp_path / "one")
    for name in two:
        torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-4)


def test_a_state_of_other_settings_is_not_resumed(rows, tokenizer, tmp_path: Path, capsys) -> None:
    state = tmp_path / "state" / "latest.pt"
    state.parent.mkdir()
    torch.save({"step": 7, "identity": {"other": 1}, "model": {}, "optimizer": {}}, state)
    run(rows, tokenizer, tmp_path)
    assert metrics(tmp_path)[0]["step"] == 1
    assert "other settings" in capsys.readouterr().err


def test_a_damaged_state_is_named(rows, tokenizer, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "latest.pt").write_bytes(b"PK\x03\x04 half a file")
    with pytest.raises(UserError, match=r"cannot read the saved state .*latest\.pt"):
        run(rows, tokenizer, tmp_path)


def test_nan_stops_with_one_line_and_no_checkpoint(rows, tokenizer, tmp_path: Path) -> None:
    model = random_model("llama", tokenizer)
    with torch.no_grad():
        next(model.parameters())[5] = float("nan")
    with pytest.raises(UserError, match="not finite at step 0") as error:
        train(model, tokenizer, rows, tmp_path, SETTINGS, NOISE)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "checkpoint").exists()


def test_learning_rate_warms_up_and_follows_a_cosine() -> None:
    settings = dataclasses.replace(SETTINGS, steps=110, warmup_steps=10, learning_rate=1.0, min_lr_ratio=0.2)
    rates = [learning_rate_at(step, settings) for step in range(111)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == pytest.approx(1.0)
    assert rates[60] == pytest.approx(0.6)
    assert rates[110] == pytest.approx(0.2)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_a_tokenizer_without_mask_token_is_refused(tokenizer, tmp_path: Path) -> None:
    model = random_model("llama", tokenizer)
    model.save_pretrained(tmp_path)
    bare = data.train_tokenizer(["a b c"], 300)
    bare.mask_token = None
    bare.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="no mask token"):
        modeling.load(tmp_path, device="cpu")


@pytest.mark.parametrize(("role", "message"), [("pad", "also the pad token"), ("eos", "also the eos token")])
def test_a_mask_token_with_another_role_is_refused(tokenizer, role: str, message: str) -> None:
    import copy

    other = copy.deepcopy(tokenizer)
    other.mask_token = getattr(tokenizer, f"{role}_token")
    with pytest.raises(UserError, match=message):
        random_model("llama", other)


def test_an_unknown_architecture_and_a_folder_without_model_are_named(tokenizer, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'gpt' is unknown; use one of"):
        modeling.create("gpt", {}, tokenizer, 0)
    with pytest.raises(UserError, match="cannot open a model"):
        modeling.load(tmp_path / "nothing")
