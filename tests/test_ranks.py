"""Two processes with gloo: FSDP2 and data parallel against one process, and resumed on another number of ranks.

The corruption and the rows of a step are the same on any number of ranks; what differs is the order in which float32
numbers are added. Losses agree to 1e-4, gradients to 1e-4 of their largest entry, and weights after twelve steps to
1e-3, or 1e-4 where they are near zero. On the same number of ranks a resumed run is equal to the bit.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import json
import os
import shutil
import signal
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam
from torch.distributed.tensor import DTensor

from sbd import data, parallel, training
from sbd.batching import make_batch
from sbd.interruption import Stopped
from sbd.metrics import TIMES
from sbd.objectives import Objective
from sbd.states import States, state_steps
from tests.conftest import random_model
from tests.test_data import PROBLEMS, write
from tests.training.helpers import NOISE, SETTINGS, Halt, metrics, run, wait_for, weights

SHARDED = dataclasses.replace(SETTINGS, micro_rows=1, sharded=True, activation_checkpointing=True)


@pytest.fixture(scope="module")
def rows(tokenizer, tmp_path_factory) -> data.PackedRows:
    folder = tmp_path_factory.mktemp("data")
    data.prepare([write(folder / "train.jsonl", PROBLEMS)], folder / "packed", tokenizer, 64, seed=0)
    return data.PackedRows(folder / "packed")


def on_two_ranks(function: Callable[[int], object]) -> None:
    """Call ``function(rank)`` in two forked processes that know of each other; an error of either is one of ours."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    children = []
    for rank in range(2):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
                os.environ |= {name: str(value) for name, value in names.items()}
                os.environ |= {"MASTER_ADDR": "127.0.0.1", "ACCELERATE_USE_CPU": "true", "GLOO_SOCKET_IFNAME": "lo"}
                for state in (AcceleratorState, PartialState, GradientState):
                    state._reset_state()
                function(rank)
                torch.distributed.destroy_process_group()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        children.append(child)
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    assert not failed, "a rank failed; its error stands above"


def close(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], rtol=1e-3, atol=1e-4)


def equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(("architecture", "sharded"), [("llama", True), ("qwen3", True), ("llama", False)])
def test_losses_and_weights_are_those_of_one_process(rows, tokenizer, tmp_path: Path, architecture, sharded) -> None:
    """Packed rows, two micro-batches per rank and step."""
    settings = dataclasses.replace(SHARDED, sharded=sharded)
    on_two_ranks(lambda rank: run(rows, tokenizer, tmp_path / "two", settings, architecture=architecture))
    plain = dataclasses.replace(SETTINGS, micro_rows=1)  # four micro-batches where two ranks have two each
    run(rows, tokenizer, tmp_path / "one", plain, architecture=architecture)
    two, one = metrics(tmp_path / "two"), metrics(tmp_path / "one")
    assert len(two) == len(one) == SETTINGS.steps
    for ours, theirs in zip(two, one, strict=True):
        for key in ours.keys() - set(TIMES):
            assert ours[key] == pytest.approx(theirs[key], rel=1e-4), (key, ours["step"])
    close(weights(tmp_path / "two"), weights(tmp_path / "one"))
    summaries = [json.loads((tmp_path / name / "checkpoint/training.json").read_text()) for name in ("two", "one")]
    assert [summary["processes"] for summary in summaries] == [2, 1]
    assert summaries[0]["parameters"] == summaries[1]["parameters"]
    for key, value in summaries[1]["validation"].items():
        assert summaries[0]["validation"][key] == pytest.approx(value, rel=1e-4)


def test_gradients_are_those_of_one_process(rows, tokenizer, tmp_path: Path) -> None:
    special = {"mask_id": tokenizer.mask_token_id, "pad_id": tokenizer.pad_token_id, "eos_id": tokenizer.eos_token_id}

    def gradients(rank: int, ranks: int) -> dict[str, torch.Tensor]:
        accelerator = Accelerator()
        model = random_model("llama", tokenizer, tie_word_embeddings=False).train()
        objective = Objective(model)
        module = parallel.shard(objective, accelerator) if ranks > 1 else objective
        for row in range(rank, 4, ranks):
            losses = module(make_batch([rows[row]], 3, NOISE, **special))
            (objective.total(losses, (100.0, 50.0)) * ranks).backward()
        found: dict[str, Any] = {name: parameter.grad for name, parameter in model.named_parameters()}
        return {name: grad.full_tensor() if isinstance(grad, DTensor) else grad for name, grad in found.items()}

    def child(rank: int) -> None:
        found = gradients(rank, 2)
        if rank == 0:
            torch.save(found, tmp_path / "gradients.pt")

    on_two_ranks(child)
    ours, theirs = torch.load(tmp_path / "gradients.pt"), gradients(0, 1)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert float((ours[name] - theirs[name]).abs().max()) < 1e-4 * float(theirs[name].abs().max()), name


def test_a_sharded_model_keeps_no_whole_gradients_between_micro_batches(rows, tokenizer, tmp_path: Path) -> None:
    """After every pass each rank holds its share of the gradients alone, as the plan counts them."""

    def child(rank: int) -> None:
        backward, kept = Accelerator.backward, []

        def watched(self: Accelerator, loss: torch.Tensor, **given: Any) -> None:
            backward(self, loss, **given)
            held = [found for found in gc.get_objects() if type(found) is FSDPParam]
            assert held
            kept.append(any(found.unsharded_accumulated_grad is not None for found in held))
            assert all(isinstance(found.sharded_param.grad, DTensor) for found in held)

        Accelerator.backward = watched  # type: ignore[method-assign]
        run(rows, tokenizer, tmp_path, dataclasses.replace(SHARDED, steps=2))
        assert kept == [False] * 4  # two micro-batches in each of two steps

    on_two_ranks(child)


def stop_at(step: int) -> None:
    """Let every training of this process crash when it begins ``step``, with its states written to their end.

    A rank here leaves by ``os._exit``, which cuts off a save in the background; an interpreter that ends waits for it.
    """
    original = training.learning_rate_at

    def limited(now, settings):
        if now == step:
            torch.distributed.barrier()
            raise Halt
        return original(now, settings)

    training.learning_rate_at = limited
    States.save = functools.partialmethod(States.save, wait=True)  # type: ignore[method-assign]


def test_resumed_on_another_number_of_ranks_and_back(rows, tokenizer, tmp_path: Path, monkeypatch) -> None:
    whole, back = tmp_path / "whole", tmp_path / "back"
    on_two_ranks(lambda rank: run(rows, tokenizer, whole, SHARDED))

    def begun(rank: int) -> None:
        stop_at(6)
        with pytest.raises(Halt):
            run(rows, tokenizer, back, SHARDED)

    on_two_ranks(begun)
    assert state_steps(back / "state") == [5]
    # On two ranks to the end: equal to the bit. From a copy, since the rest goes on from the same state.
    shutil.copytree(back, tmp_path / "same")
    on_two_ranks(lambda rank: run(rows, tokenizer, tmp_path / "same", SHARDED))
    equal(weights(tmp_path / "same"), weights(whole))
    # On one to step 10, then on two again.
    original = training.learning_rate_at

    def limited(now, settings):
        if now == 11:
            raise Halt
        return original(now, settings)

    with monkeypatch.context() as patch:
        patch.setattr(training, "learning_rate_at", limited)
        with pytest.raises(Halt):
            run(rows, tokenizer, back, SHARDED)
    wait_for(lambda: state_steps(back / "state") == [5, 10])
    on_two_ranks(lambda rank: run(rows, tokenizer, back, SHARDED))
    assert [line["step"] for line in metrics(back)] == list(range(1, 13))
    close(weights(back), weights(whole))


def test_a_signal_to_one_rank_stops_both_with_one_state(rows, tokenizer, tmp_path: Path) -> None:
    def child(rank: int) -> None:
        original = training.learning_rate_at

        def interrupted(now, settings):
            if now == 6 and rank == 1:
                os.kill(os.getpid(), signal.SIGUSR1)
            return original(now, settings)

        training.learning_rate_at = interrupted
        with pytest.raises(Stopped, match="SIGUSR1 after step 8"):
            run(rows, tokenizer, tmp_path, SHARDED)

    on_two_ranks(child)
    assert state_steps(tmp_path / "state") == [5, 8]


def test_two_ranks_set_states_of_other_settings_aside_and_adopt_them(rows, tokenizer, tmp_path: Path) -> None:
    short = dataclasses.replace(SHARDED, steps=6, checkpoint_every=2)
    slower = dataclasses.replace(short, learning_rate=1e-4)

    def begun(rank: int) -> None:
        stop_at(5)
        with pytest.raises(Halt):
            run(rows, tokenizer, tmp_path / "aside", short)

    on_two_ranks(begun)
    assert state_steps(tmp_path / "aside/state") == [2, 4]
    shutil.copytree(tmp_path / "aside", tmp_path / "adopted")

    def again(rank: int) -> None:
        stop_at(3)
        with pytest.raises(Halt):
            run(rows, tokenizer, tmp_path / "aside", slower)

    on_two_ranks(again)
    assert state_steps(tmp_path / "aside/state-of-other-settings") == [2, 4]
    assert state_steps(tmp_path / "aside/state") == [2]

    def adopt(rank: int) -> None:
        model = random_model("llama", tokenizer, initializer_range=0.05)
        training.train(model, tokenizer, rows, tmp_path / "adopted", slower, NOISE, adopt=True)

    on_two_ranks(adopt)
    rates = [line["learning_rate"] for line in metrics(tmp_path / "adopted")]
    expected = [training.learning_rate_at(step, short if step < 4 else slower) for step in range(6)]
    assert rates == expected
