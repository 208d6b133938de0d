"""States: a run that is stopped, killed or finds one damaged goes on, to the bit where nothing else changed."""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from transformers import PreTrainedModel

from sbd import states, training
from sbd.errors import UserError
from sbd.interruption import Stopped
from sbd.metrics import TIMES
from sbd.states import state_steps
from sbd.training import TrainingSettings, learning_rate_at, train
from tests.conftest import random_model
from tests.training.helpers import NOISE, SETTINGS, Halt, halt, halted, metrics, run, wait_for, weights


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_a_killed_run_resumes_to_the_same_bits(rows, tokenizer, tmp_path: Path, architecture: str) -> None:
    run(rows, tokenizer, tmp_path / "whole", architecture=architecture)
    output = tmp_path / "killed"
    child = os.fork()
    if child == 0:
        run(rows, tokenizer, output, _slow(SETTINGS), architecture=architecture)
        os._exit(0)
    deadline = time.monotonic() + 60
    while not state_steps(output / "state") and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the run ended before it was killed"
    assert not (output / "checkpoint").exists()
    run(rows, tokenizer, output, architecture=architecture)
    whole, resumed = weights(tmp_path / "whole"), weights(output)
    assert whole.keys() == resumed.keys()
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)
    without_time = [
        [{**line, **dict.fromkeys(TIMES)} for line in metrics(tmp_path / name)] for name in ("whole", "killed")
    ]
    assert without_time[0] == without_time[1]


def _slow(settings: TrainingSettings) -> TrainingSettings:
    """The same run, with each step slow enough to be killed between two checkpoints."""
    original = training.make_batch

    def delayed(*args, **kwargs):
        time.sleep(0.1)
        return original(*args, **kwargs)

    training.make_batch = delayed
    return settings


def test_a_state_of_other_settings_is_not_resumed_but_can_be_adopted(rows, tokenizer, tmp_path, capsys, monkeypatch):
    halted(rows, tokenizer, tmp_path, monkeypatch, at=7)
    slower = dataclasses.replace(SETTINGS, learning_rate=1e-4)
    adopted = tmp_path.with_name(f"{tmp_path.name}-adopted")
    shutil.copytree(tmp_path, adopted)
    run(rows, tokenizer, tmp_path, slower)
    assert "step-00000005 in" in (said := capsys.readouterr().err)
    assert "belongs to other settings or data and is set aside in" in said
    assert state_steps(tmp_path / "state-of-other-settings") == [5]
    assert metrics(tmp_path)[0]["learning_rate"] == learning_rate_at(0, slower)
    model = random_model("llama", tokenizer, initializer_range=0.05)
    train(model, tokenizer, rows, adopted, slower, NOISE, adopt=True)
    rates = [line["learning_rate"] for line in metrics(adopted)]
    assert rates[4:6] == [learning_rate_at(4, SETTINGS), learning_rate_at(5, slower)]


def test_a_run_of_other_settings_is_interrupted_and_goes_on(rows, tokenizer, tmp_path, monkeypatch) -> None:
    """The states that it finds have higher numbers than its own, and are not kept instead of them."""
    halted(rows, tokenizer, tmp_path, monkeypatch, at=11)
    assert state_steps(tmp_path / "state") == [5, 10]
    slower = dataclasses.replace(SETTINGS, learning_rate=1e-4, checkpoint_every=2)
    for at, begun in ((5, 0), (9, 4)):
        assert halted(rows, tokenizer, tmp_path, monkeypatch, at=at, settings=slower) == begun
        assert state_steps(tmp_path / "state") == [at - 3, at - 1]
    run(rows, tokenizer, tmp_path, slower)
    assert metrics(tmp_path)[0]["learning_rate"] == learning_rate_at(0, slower)
    assert [line["step"] for line in metrics(tmp_path)] == list(range(1, 13))


def test_an_adopted_state_is_one_of_the_run_from_then_on(rows, tokenizer, tmp_path, monkeypatch) -> None:
    halted(rows, tokenizer, tmp_path, monkeypatch, at=11)
    slower = dataclasses.replace(SETTINGS, learning_rate=1e-4, checkpoint_every=4)
    model = random_model("llama", tokenizer, initializer_range=0.05)
    with monkeypatch.context() as patch:
        patch.setattr(training, "row_order", halt)
        with pytest.raises(Halt):
            train(model, tokenizer, rows, tmp_path, slower, NOISE, adopt=True)
    # Interrupted before it saved a state of its own, and started again without --adopt.
    run(rows, tokenizer, tmp_path, slower)
    rates = [line["learning_rate"] for line in metrics(tmp_path)]
    assert rates[9:11] == [learning_rate_at(9, SETTINGS), learning_rate_at(10, slower)]


def test_another_way_of_execution_goes_on_from_the_same_state(rows, tokenizer, tmp_path, monkeypatch) -> None:
    halted(rows, tokenizer, tmp_path / "here", monkeypatch, at=7)
    other = dataclasses.replace(SETTINGS, micro_rows=4, log_every=2, checkpoint_every=3, activation_checkpointing=True)
    run(rows, tokenizer, tmp_path / "here", other)
    assert [line["step"] for line in metrics(tmp_path / "here")] == [1, 2, 3, 4, 5, 6, 8, 10, 12]
    run(rows, tokenizer, tmp_path / "whole")
    ours, theirs = weights(tmp_path / "here"), weights(tmp_path / "whole")
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing"])
def test_a_damaged_shard_costs_one_interval_and_is_named(
    rows, tokenizer, tmp_path, capsys, monkeypatch, damage
) -> None:
    settings = dataclasses.replace(SETTINGS, checkpoint_every=3)
    run(rows, tokenizer, tmp_path / "whole", settings)
    halted(rows, tokenizer, tmp_path / "here", monkeypatch, at=11, settings=settings)
    state = tmp_path / "here/state"
    assert state_steps(state) == [6, 9]
    [shard] = (state / "step-00000009").glob("*.distcp")
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    if damage == "missing":
        shard.unlink()
    else:
        shard.write_bytes(content if damage == "flipped" else content[:1000])
    capsys.readouterr()
    run(rows, tokenizer, tmp_path / "here", settings)
    said = [line for line in capsys.readouterr().err.splitlines() if "step" in line and "train:" not in line]
    assert len(said) == 2
    assert str(shard) in said[0]
    assert "the state before it is used" in said[0]
    assert said[1] == "going on from step 6"
    ours, theirs = weights(tmp_path / "here"), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_a_sound_state_is_kept_until_a_newer_one_is_sound(rows, tokenizer, tmp_path, monkeypatch) -> None:
    """The newest state is damaged, and the run is interrupted twice: while it writes that state again, and after."""
    settings = dataclasses.replace(SETTINGS, checkpoint_every=3)
    state = tmp_path / "state"
    halted(rows, tokenizer, tmp_path, monkeypatch, at=11, settings=settings)
    next((state / "step-00000009").glob("*.distcp")).unlink()

    def unsealed(states, written, folder, about) -> None:
        written.result()  # An interruption ends the writing too; here it would go on beside the next run.
        raise Halt

    with monkeypatch.context() as patch:
        patch.setattr(states.States, "_seal", unsealed)
        with pytest.raises(UserError, match="state of step 9 could not be written"):
            run(rows, tokenizer, tmp_path, settings)
    assert state_steps(state) == [6]
    assert halted(rows, tokenizer, tmp_path, monkeypatch, at=10, settings=settings) == 6
    assert state_steps(state) == [6, 9]
    run(rows, tokenizer, tmp_path, settings)
    run(rows, tokenizer, tmp_path / "whole", settings)
    ours, theirs = weights(tmp_path), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_when_every_state_is_damaged_that_is_said_and_nothing_is_trained(
    rows, tokenizer, tmp_path, monkeypatch
) -> None:
    halted(rows, tokenizer, tmp_path, monkeypatch, at=7)
    [shard] = (tmp_path / "state/step-00000005").glob("*.distcp")
    shard.write_bytes(b"PK\x03\x04 half a file")
    with pytest.raises(
        UserError, match=r"cannot read the saved state: .*distcp is damaged .*; delete .* to train from"
    ):
        run(rows, tokenizer, tmp_path)


@pytest.mark.parametrize("content", ["{}", "[]", '{"step": 5, "ranks": "one"}'])
def test_a_seal_of_another_shape_is_named_and_nothing_is_lost(rows, tokenizer, tmp_path, monkeypatch, content) -> None:
    halted(rows, tokenizer, tmp_path, monkeypatch, at=7)
    seal = tmp_path / "state/step-00000005/rank-0.json"
    seal.write_text(content)
    with pytest.raises(UserError, match=r"step-00000005/rank-0\.json is no seal .*; delete .*step-00000005: the same"):
        run(rows, tokenizer, tmp_path)
    assert seal.is_file()


@pytest.mark.parametrize("line", ["{}", "[]", "3", '{"step": "two"}', '{"step": null}'])
def test_a_line_of_metrics_of_another_shape_is_dropped(rows, tokenizer, tmp_path, monkeypatch, line) -> None:
    halted(rows, tokenizer, tmp_path, monkeypatch, at=7)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write(line + "\n")
    run(rows, tokenizer, tmp_path)
    assert [found["step"] for found in metrics(tmp_path)] == list(range(1, 13))


def test_a_state_that_was_being_written_does_not_count(rows, tokenizer, tmp_path, monkeypatch) -> None:
    halted(rows, tokenizer, tmp_path, monkeypatch, at=11)
    (tmp_path / "state/step-00000010/rank-0.json").unlink()
    assert state_steps(tmp_path / "state") == [5]
    run(rows, tokenizer, tmp_path)
    assert json.loads((tmp_path / "checkpoint/training.json").read_text())["steps"] == 12
    assert [line["step"] for line in metrics(tmp_path)] == list(range(1, 13))


def test_a_full_disk_is_one_line_that_names_what_was_lost(rows, tokenizer, tmp_path, monkeypatch) -> None:
    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(states, "_checksum", full)
    with pytest.raises(UserError, match=r"state of step 5 could not be written .*No space left.*make room") as error:
        run(rows, tokenizer, tmp_path)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "checkpoint").exists()


def test_a_state_over_the_limit_of_file_sizes_is_one_line(rows, tokenizer, tmp_path) -> None:
    """As on a full disk, torch itself fails here, in the middle of a file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
    try:
        with pytest.raises(UserError, match=r"state of step 5 could not be written .*make room") as error:
            run(rows, tokenizer, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(error.value)
    assert state_steps(tmp_path / "state") == []


def test_a_disk_that_is_full_at_the_end_is_one_line_and_the_state_is_kept(
    rows, tokenizer, tmp_path, monkeypatch
) -> None:
    def full(model, folder, **kwargs):
        folder.mkdir()
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    with monkeypatch.context() as patch:
        patch.setattr(PreTrainedModel, "save_pretrained", full)
        with pytest.raises(UserError, match=r"checkpoint could not be written .*No space left.*make room") as error:
            run(rows, tokenizer, tmp_path)
    assert "\n" not in str(error.value)
    assert list(tmp_path.glob("*checkpoint*")) == []
    wait_for(lambda: state_steps(tmp_path / "state") == [5, 10])
    run(rows, tokenizer, tmp_path)
    assert (tmp_path / "checkpoint/training.json").is_file()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_saves_the_step_and_the_same_command_goes_on(rows, tokenizer, tmp_path, monkeypatch, number) -> None:
    original = training.learning_rate_at

    def interrupted(step, settings):
        if step == 7:
            os.kill(os.getpid(), number)
        return original(step, settings)

    run(rows, tokenizer, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(training, "learning_rate_at", interrupted)
        with pytest.raises(Stopped, match=f"stopped by {number.name} after step [89] of 12"):
            run(rows, tokenizer, tmp_path / "here")
    # The signal came within step 8 and is seen at the next count.
    assert state_steps(tmp_path / "here/state") == [5, 9]
    assert signal.getsignal(number) == signal.SIG_DFL
    run(rows, tokenizer, tmp_path / "here")
    ours, theirs = weights(tmp_path / "here"), weights(tmp_path / "whole")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("torn", ['{"step": 7, "ntp_lo', ""])
def test_a_torn_line_of_the_log_does_not_keep_a_run_from_going_on(rows, tokenizer, tmp_path, monkeypatch, torn) -> None:
    halted(rows, tokenizer, tmp_path, monkeypatch, at=7)
    with open(tmp_path / "metrics.jsonl", "a") as lines:
        lines.write(torn or "\n")
    run(rows, tokenizer, tmp_path)
    assert [line["step"] for line in metrics(tmp_path)] == list(range(1, 13))
