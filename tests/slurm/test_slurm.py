"""The workflow through a real Slurm: what it asks for, that it ends, and that a warned or cancelled job goes on.

The cluster's GPUs are files, so SBD_DEVICE=cpu lets the ranks run on CPUs; all else is as on a cluster with GPUs.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sbd.experiment_files import load_experiment
from sbd.states import state_steps
from tests.workflow.conftest import ROOT, copy_project

pytestmark = pytest.mark.slow
# One model, two ranks for the first run: what goes through Slurm, in few jobs.
EXPERIMENT = """
extends: smoke.yaml
scale: slurm
models: {qwen3-tiny: null}
runs:
  pretrain: {gpus: 2, sharded: true, micro_rows: 2}
  ntp: {gpus: 1}
  sbd: {gpus: 1}
"""
TARGET = "results/slurm/models/llama-tiny/pretrain/checkpoint/training.json"
STATE = "results/slurm/models/llama-tiny/pretrain/state"
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
    return [*command, *arguments, "--config", "experiment=experiments/slurm.yaml"], {**cluster, **settings}


@contextmanager
def driving(command: list[str], project: Path, environ: dict[str, str]) -> Iterator[subprocess.Popen]:
    """A driver in the background, which does not outlive the test."""
    running = subprocess.Popen(
        command, cwd=project, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        yield running
    finally:
        if running.poll() is None:
            running.kill()
            running.communicate()


def ask(cluster: dict[str, str], *command: str) -> str:
    return subprocess.run(command, env=cluster, capture_output=True, text=True, check=True).stdout


def wait_for(condition, process: subprocess.Popen, seconds: float = 900) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_experiment_runs_to_its_end_and_asks_for_what_it_needs(cluster, project: Path) -> None:
    command, environ = driver(cluster, "--verbose", "all")
    with driving(command, project, environ) as running:
        output, _ = running.communicate(timeout=3600)
    assert running.returncode == 0, output
    experiment = load_experiment(project / "experiments/slurm.yaml")
    summaries = {
        run: project / experiment.run_folder("llama-tiny", run) / "checkpoint/training.json"
        for run in ("pretrain", "sbd")
    }
    assert json.loads(summaries["pretrain"].read_text())["processes"] == 2
    assert json.loads(summaries["sbd"].read_text())["processes"] == 1
    assert (project / "results/slurm/tables/table1.csv").stat().st_size > 0
    calls = [line for line in output.splitlines() if "sbatch call" in line and "rule_train" in line]
    asked = [re.search(r"--gpus=(\S+)", call) for call in calls]
    assert sorted(match[1] for match in asked if match) == ["fake:1", "fake:1", "fake:2"]
    for call in calls:
        for part in ("-p test", "-t 60", "--requeue", "--signal=TERM@600", "--mem "):
            assert part in call, call
    assert all("--cpus-per-task=16" in call for call in calls if "fake:2" in call)


def test_a_training_that_is_warned_saves_goes_back_to_the_queue_and_on(cluster, project: Path) -> None:
    (project / "experiments/slurm.yaml").write_text(
        EXPERIMENT.replace("pretrain: {gpus: 2", "pretrain: {gpus: 2, steps: 200, checkpoint_every: 5")
    )
    command, environ = driver(cluster, TARGET)
    state = project / STATE
    with driving(command, project, environ) as running:
        wait_for(lambda: len(state_steps(state)) > 0, running)
        [job] = ask(environ, "squeue", "--noheader", "--format", "%i", "--states", "RUNNING").split()
        # What `--signal=TERM@600` does ten minutes before the limit: the signal to all processes of the job's step.
        ask(environ, "scancel", "--signal=TERM", job)
        wait_for(lambda: "Restarts=1" in ask(environ, "scontrol", "show", "job", job), running)
        saved = state_steps(state)[-1]
        # A job that was requeued waits two minutes, lest it fail in a circle; here it need not.
        wait_for(lambda: "JobState=COMPLETING" not in ask(environ, "scontrol", "show", "job", job), running)
        subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], env=environ, check=False)
        output, _ = running.communicate(timeout=1200)
    assert running.returncode == 0, output
    assert json.loads((project / TARGET).read_text())["steps"] == 200
    lines = [json.loads(line) for line in (project / STATE).with_name("metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(10, 201, 10))
    assert resumed_from(project) == saved


def test_a_cancelled_training_goes_on_at_the_next_call(cluster, project: Path) -> None:
    (project / "experiments/slurm.yaml").write_text(
        EXPERIMENT.replace("pretrain: {gpus: 2", "pretrain: {gpus: 2, steps: 200, checkpoint_every: 5")
    )
    command, environ = driver(cluster, "--restart-times", "0", TARGET)
    state = project / STATE
    with driving(command, project, environ) as running:
        wait_for(lambda: len(state_steps(state)) > 0, running)
        [job] = ask(environ, "squeue", "--noheader", "--format", "%i", "--states", "RUNNING").split()
        ask(environ, "scancel", job)
        output, _ = running.communicate(timeout=600)
    assert running.returncode != 0, output
    assert "Restarts=0" in ask(environ, "scontrol", "show", "job", job)
    saved = state_steps(state)[-1]
    again = subprocess.run(
        command, cwd=project, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    assert again.returncode == 0, again.stdout
    assert resumed_from(project) == saved


def resumed_from(project: Path) -> int:
    """The step at which the last job of the training began."""
    log = (project / "results/slurm/logs/train/llama-tiny/pretrain.log").read_text()
    first = re.search(r"pretrain: (\d+)/200", log)
    assert first is not None, log
    return int(first[1])


def test_a_partition_that_is_not_there_is_named(cluster, project: Path) -> None:
    command, environ = driver(cluster, "--restart-times", "0", "results/slurm/data/tiny_gsm/train.jsonl")
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
