"""The steps of an experiment in order, and out of order: a mistake of the user is one clear line and status 2."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

import sbd as sbd_package
from sbd.cli import main
from sbd.evaluation import make_decoder
from sbd.experiment_files import load_experiment
from sbd.steps import evaluate
from tests.cli.helpers import EVALUATE, EXPERIMENT, ROOT, RUN, TRAIN, sbd, write

SLOWER = {"kind": "set_block", "block_size": 4, "sampler": {"gamma": 0.01}}


def test_the_steps_leave_what_the_next_one_reads(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    experiment = load_experiment("mini.yaml")
    for decoder in ("ntp", "eb"):
        assert sbd("evaluate", "--model", "llama", "--run", "sbd", "--decoder", decoder, "--benchmark", "words") == 0
        folder = experiment.record_folder("llama", "sbd", decoder, "words")
        assert json.loads((folder / "record.json").read_text())["n"] == 2
        assert len((folder / "generations.jsonl").read_text().splitlines()) == 2
    assert sbd("collect") == 0
    losses = Path("results/mini/losses.csv").read_text().splitlines()
    assert [row.split(",")[:2] for row in losses[1:]] == [["llama", "base"], ["llama", "sbd"]]
    rows = Path("results/mini/records.csv").read_text().splitlines()
    assert [row.split(",")[:4] for row in rows[1:]] == [["llama", "sbd", d, "words"] for d in ("ntp", "eb")]
    model = AutoModelForCausalLM.from_pretrained(experiment.run_folder("llama", "sbd") / "checkpoint")
    assert model.config.sbd_objective == "sbd"


@pytest.mark.parametrize("together", [True, False])
def test_several_decoders_in_one_process_of_which_the_workflow_may_make_one_again(
    here: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    write(evaluate_together=together)
    generated: list[object] = []
    generate = sbd_package.generate

    def counted(*given: Any, **settings: Any) -> Any:
        generated.append(settings["decoder"])
        return generate(*given, **settings)

    monkeypatch.setitem(vars(sbd_package), "generate", counted)
    arguments = ("evaluate", "--model", "llama", "--run", "sbd", "--decoder", "ntp", "eb", "--benchmark", "words")
    experiment = load_experiment("mini.yaml")
    folders = [experiment.record_folder("llama", "sbd", decoder, "words") for decoder in ("ntp", "eb")]
    assert sbd(*arguments) == 0
    assert [make_decoder(experiment.decoders[name]) for name in ("ntp", "eb")] == generated
    before = [(folder / "generations.jsonl").read_text() for folder in folders]
    for folder in folders:
        for name in ("generations.jsonl", "record.json"):
            (folder / name).unlink()
    generated.clear()
    assert sbd(*arguments) == 0
    assert len(generated) == (0 if together else 2)
    free = re.compile(r'"(seconds|tokens_per_second)": [^,}]+')
    after = [(folder / "generations.jsonl").read_text() for folder in folders]
    assert [free.sub("", text) for text in after] == [free.sub("", text) for text in before]
    write(evaluate_together=together, decoders={**EXPERIMENT["decoders"], "eb": SLOWER})
    generated.clear()
    assert sbd(*arguments) == 0
    assert [make_decoder(SLOWER)] == generated[-1:]
    assert len(generated) == (1 if together else 2)


def test_check_counts_what_would_run(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert sbd("check") == 0
    assert "2 trainings and 2 evaluations; results go to results/mini/" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("problems", "--source", "nope"), "unknown source 'nope'; mini.yaml has words"),
        (("train", "--model", "nope", "--run", "sbd"), "unknown model 'nope'; mini.yaml has llama"),
        ((*TRAIN, "nope"), "unknown run 'nope'; mini.yaml has base, sbd"),
        ((*EVALUATE[:-2], "nope", "--benchmark", "words"), "unknown decoder 'nope'; mini.yaml has ntp, eb"),
        ((*EVALUATE, "nope"), "unknown benchmark 'nope'; mini.yaml has words, long, no_task"),
        ((*EVALUATE, "no_task"), "no such task file: experiments/tasks/none.yaml"),
        (("collect",), "no record at results/mini/records/llama/sbd/ntp/words/record.json"),
    ],
)
def test_wrong_names(refuses: Callable[..., str], arguments: tuple[str, ...], message: str) -> None:
    assert message in refuses(*arguments)


def test_more_tokens_than_the_model_has_positions_in_a_process_of_its_own(here: Path) -> None:
    command = [sys.executable, "-m", "sbd", EVALUATE[0], "--experiment", "mini.yaml", *EVALUATE[1:], "long"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 2
    assert re.fullmatch(r"sbd evaluate: error: prompt \d .* 600 new .* 512 positions of the model\. .*\n", done.stderr)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sed": 1}, "mini.yaml: sed: unknown key; allowed are benchmarks"),
        (
            {"decoders": {**EXPERIMENT["decoders"], "eb": {**EXPERIMENT["decoders"]["eb"], "block_size": 0}}},
            "block_size",
        ),
        ({"runs": {**EXPERIMENT["runs"], "base": {"objective": "ntp", **RUN, "steps": -1}}}, "runs.base.steps: "),
        ({"evaluations": [{"runs": ["nope"], "decoders": ["eb"]}]}, "unknown name 'nope'; known are base, sbd"),
    ],
)
def test_a_wrong_experiment(refuses: Callable[..., str], changes: dict[str, Any], message: str) -> None:
    write(**changes)
    assert message in refuses("check")
    assert message in refuses(*EVALUATE, "words")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_an_evaluation_that_is_asked_to_stop_ends_with_its_status(
    here: Path, monkeypatch, capfd: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    def run(*_: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(60)

    monkeypatch.setattr(evaluate, "run", run)
    (here / "experiment.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    assert main([*EVALUATE, "words", "--experiment", "experiment.yaml"]) == 75
    assert capfd.readouterr().err.splitlines()[-1] == (
        f"sbd evaluate: llama sbd eb words: stopped by {number.name}; generations of whole batches are kept; "
        "the same command goes on from there"
    )
    assert signal.getsignal(number) == signal.SIG_DFL


def test_steps_out_of_order(refuses: Callable[..., str]) -> None:
    experiment = load_experiment("mini.yaml")
    parent = experiment.run_folder("llama", "base") / "checkpoint"
    parent.rename(parent.with_name("away"))
    checkpoint = experiment.run_folder("llama", "sbd") / "checkpoint"
    checkpoint.rename(checkpoint.with_name("away"))
    assert f"the parent run has no finished checkpoint at {parent}; train it first" in refuses(*TRAIN, "sbd")
    assert "has no checkpoint at" in refuses(*EVALUATE, "words")
    Path("results/mini/data/train/manifest.json").unlink()
    message = refuses(*TRAIN, "base")
    assert "is no prepared data (no manifest.json); run `python -m sbd prepare --experiment mini.yaml` first" in message


def test_another_tokenizer_than_the_parent(refuses: Callable[..., str]) -> None:
    write(tokenizer={"vocab_size": 380})
    assert sbd("prepare") == 0
    (load_experiment("mini.yaml").run_folder("llama", "sbd") / "checkpoint/training.json").unlink()
    assert "was trained with another tokenizer than the prepared data" in refuses(*TRAIN, "sbd")


def test_a_checkpoint_without_mask_token(refuses: Callable[..., str]) -> None:
    checkpoint = load_experiment("mini.yaml").run_folder("llama", "sbd") / "checkpoint"
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(checkpoint)
    assert "the tokenizer has no mask token; train or prepare the model" in refuses(*EVALUATE, "words")
    assert (
        not load_experiment("mini.yaml").record_folder("llama", "sbd", "eb", "words").joinpath("record.json").exists()
    )


def test_a_finished_run_is_not_begun_anew(refuses: Callable[..., str]) -> None:
    folder = load_experiment("mini.yaml").run_folder("llama", "sbd")
    before = (folder / "metrics.jsonl").read_bytes()
    assert "llama sbd is trained already; to train it again, delete results/mini/models/" in refuses(*TRAIN, "sbd")
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_two_processes_do_not_train_one_run(refuses: Callable[..., str]) -> None:
    folder = load_experiment("mini.yaml").run_folder("llama", "sbd")
    (folder / "checkpoint/training.json").unlink()
    hold = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print(flush=True); input()"
    )
    command = [sys.executable, "-c", hold, str(folder / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert f"another process is at work in {folder}" in refuses(*TRAIN, "sbd")
        other.kill()
    assert sbd(*TRAIN, "sbd") == 0


def test_a_loss_that_is_no_number(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wild = {"objective": "sbd", **RUN, "learning_rate": 1e30, "max_grad_norm": 1e30}
    write(runs={**EXPERIMENT["runs"], "wild": wild})
    assert sbd(*TRAIN, "wild") == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert re.match(r"sbd train: error: the loss or gradient is not finite at step \d+ .*lower learning_rate", last)
    assert not (load_experiment("mini.yaml").run_folder("llama", "wild") / "checkpoint").exists()
