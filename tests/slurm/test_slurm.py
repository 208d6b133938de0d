"""The workflow through a real Slurm: what it asks for, that it ends, and that a warned or cancelled job goes on.

The cluster's GPUs are files, so SBD_DEVICE=cpu lets the ranks run on CPUs; all else is as on a cluster with GPUs. One
run of a small experiment shows it all, since a job costs seconds whatever it does.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sbd.states import state_steps
from tests.workflow.conftest import ROOT, copy_project

pytestmark = pytest.mark.slow
STEPS = 100
EXPERIMENT = f"""
scale: slurm
tokenizer: {{vocab_size: 400}}
data:
  sequence_length: 160
  sources: {{words: {{generator: tiny_gsm, train: 400, validation: 8, test: 4}}}}
models:
  llama:
    architecture: llama
    shape: {{hidden_size: 32, intermediate_size: 64, num_hidden_layers: 2, num_attention_heads: 2,
             max_position_embeddings: 512, tie_word_embeddings: true}}
runs:
  sbd: {{objective: sbd, steps: {STEPS}, batch_rows: 4, micro_rows: 2, learning_rate: 0.003, warmup_steps: 4,
         checkpoint_every: 5, gpus: 2, sharded: true}}
decoders: {{ntp: {{kind: autoregressive}}}}
benchmarks: {{words: {{task: experiments/tasks/tiny_gsm.yaml, source: words, max_new_tokens: 16}}}}
evaluations: [{{runs: [sbd], decoders: [ntp]}}]
table1: {{rows: [{{run: sbd, decoder: ntp}}]}}
pareto: {{curves: {{SBD: [{{run: sbd, decoder: ntp}}]}}}}
"""
RUN = "results/slurm/models/llama/sbd"
QUICK = [
    "--slurm-init-seconds-before-status-checks",
    "2",
    "--seconds-between-status-checks",
    "2",
    "--latency-wait",
    "5",
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = copy_project(tmp_path / "project")
    shutil.copytree(ROOT / "slurm", folder / "slurm")
    (folder / "experiments/slurm.yaml").write_text(EXPERIMENT)
    return folder


def driver(cluster: dict[str, str], *arguments: str) -> tuple[list[str], dict[str, str]]:
    command = [sys.executable, "-m", "snakemake", "--profile", "slurm", *QUICK, "--slurm-status-command", "squeue"]
    settings = {"SBD_DEVICE": "cpu", "SBD_TIME": "60", "SBD_PARTITION": "test", "SBD_GPU_MODEL": "fake"}
    return [*command, *arguments, "--config", "experiment=slurm"], {**cluster, **settings}


@contextmanager
def driving(command: list[str], project: Path, environ: dict[str, str]) -> Iterator[subprocess.Popen]:
    """A driver in the background, which does not outlive the test."""
    # Into a file: a pipe that nobody reads would stop it when it is full.
    with open(project / "driver.log", "w") as log:
        running = subprocess.Popen(command, cwd=project, env=environ, text=True, stdout=log, stderr=subprocess.STDOUT)
    try:
        yield running
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()


def ask(cluster: dict[str, str], *command: str) -> str:
    return subprocess.run(command, env=cluster, capture_output=True, text=True, check=True).stdout


def wait_for(condition: Callable[[], bool], project: Path, process: subprocess.Popen, seconds: float = 900) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, (project / "driver.log").read_text()
        assert time.monotonic() < deadline, (project / "driver.log").read_text()
        time.sleep(0.1)


def newest(project: Path) -> int:
    """The step of the newest state."""
    return max(state_steps(project / RUN / "state"), default=0)


def begun_at(project: Path) -> int:
    """The step at which the last job of the training began."""
    log = (project / "results/slurm/logs/train/llama/sbd.log").read_text()
    first = re.search(rf"sbd: (\d+)/{STEPS}", log)
    assert first is not None, log
    return int(first[1])


def test_the_experiment_ends_although_its_training_is_warned_and_cancelled(cluster, project: Path) -> None:
    command, environ = driver(cluster, "--verbose", "all")
    with driving([*command, "--restart-times", "0"], project, environ) as running:
        wait_for(lambda: newest(project) > 0, project, running)
        [job] = ask(environ, "squeue", "--noheader", "--format", "%i", "--states", "RUNNING").split()

        def shown(part: str) -> bool:
            return part in ask(environ, "scontrol", "show", "job", job)

        # What `--signal=TERM@600` does ten minutes before the limit: the signal to all processes of the job's step.
        ask(environ, "scancel", "--signal=TERM", job)
        wait_for(lambda: shown("Restarts=1"), project, running)
        warned = newest(project)
        # A job that was requeued waits two minutes, lest it fail in a circle; here it need not.
        wait_for(lambda: not shown("JobState=COMPLETING"), project, running)
        subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], env=environ, check=False)
        wait_for(lambda: newest(project) > warned, project, running)
        assert begun_at(project) == warned
        ask(environ, "scancel", job)
        assert running.wait(timeout=600) != 0
        assert shown("Restarts=1")
    first = (project / "driver.log").read_text()
    cancelled = newest(project)
    assert 0 < warned < cancelled < STEPS
    again = subprocess.run(
        command, cwd=project, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert again.returncode == 0, again.stdout
    assert begun_at(project) == cancelled
    summary = json.loads((project / RUN / "checkpoint/training.json").read_text())
    assert (summary["steps"], summary["processes"]) == (STEPS, 2)
    lines = [json.loads(line) for line in (project / RUN / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(10, STEPS + 1, 10))
    assert (project / "results/slurm/tables/table1.csv").stat().st_size > 0
    # What was asked for: the training twice, from both drivers, and the evaluation once.
    calls = [line for line in (first + again.stdout).splitlines() if "sbatch call" in line]
    trained, evaluated = ([call for call in calls if f"rule_{rule}" in call] for rule in ("train_blocks", "evaluate"))
    assert (len(trained), len(evaluated)) == (2, 1)
    for call in trained + evaluated:
        for part in ("-p test", "-t 60", "--nodes=1", "--requeue", "--signal=TERM@600"):
            assert part in call, call
    # Main memory: four bytes a parameter and 4 GiB for each rank (the plan counts no norms); 64,000 for an evaluation.
    for call in trained:
        for part in ("--gpus=fake:2", "--cpus-per-task=16", "--mem 8192 "):
            assert part in call, call
    for part in ("--gpus=fake:1", "--cpus-per-task=8", "--mem 64000 "):
        assert part in evaluated[0], evaluated[0]


def test_a_partition_that_is_not_there_is_named(cluster, project: Path) -> None:
    command, environ = driver(cluster, "--restart-times", "0", "results/slurm/data/words/train.jsonl")
    done = subprocess.run(
        command,
        cwd=project,
        env={**environ, "SBD_PARTITION": "nowhere"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode != 0
    assert "invalid partition specified: nowhere" in done.stdout
