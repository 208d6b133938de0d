"""The paper's experiment as a dry run with the slurm profile: every job of the plan, and refusal of what cannot fit."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sbd.experiment_files import load_experiment
from sbd.planning import host_memory_mb
from tests.workflow.conftest import ROOT, copy_project, environment


def dry_run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``snakemake --profile slurm all -n``; no Slurm is needed for it."""
    if not (folder / "slurm").exists():
        shutil.copytree(ROOT / "slurm", folder / "slurm")
    command = [sys.executable, "-m", "snakemake", "--profile", "slurm", "all", "-n", *arguments]
    clean = {name: value for name, value in environment().items() if not name.startswith("SBD_")}
    return subprocess.run(
        command, cwd=folder, env=clean, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )


@pytest.mark.parametrize("name", ["paper", "paper-lite"])
def test_the_dry_run_lists_every_job_of_the_plan(tmp_path: Path, name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # The profile's own experiment is the paper.
    # It stays when the command line says something else.
    choice = ["--config", "adopt=true" if name == "paper" else f"experiment={name}"]
    done = dry_run(copy_project(tmp_path), *choice)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout
    experiment = load_experiment(ROOT / f"experiments/{name}.yaml")
    table = done.stdout.split("Job stats:")[-1]
    counts = {rule: int(count) for rule, count in re.findall(r"^(\w+) +(\d+)$", table, flags=re.M)}
    assert counts["train"] + counts["train_blocks"] == len(experiment.trainings()) == 11
    assert counts["evaluate"] + counts["generate"] == len(experiment.jobs())
    assert counts["generate"] == counts["score"]  # code, scored where no GPU waits
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10
    # GPUs of the rules: eight for each training, one for each evaluation.
    asked = re.findall(
        r"^rule (train|train_blocks|evaluate|generate):(?:\n    .*)*?\n    resources: .*?\bgpu=(\d+)", done.stdout, re.M
    )
    assert len(asked) == len(experiment.trainings()) + len(experiment.jobs())
    assert {(rule.startswith("train"), gpus) for rule, gpus in asked} == {(True, "8"), (False, "1")}


def test_what_cannot_fit_is_refused_before_anything_is_submitted(tmp_path: Path) -> None:
    folder = copy_project(tmp_path)
    (folder / "experiments/alone.yaml").write_text("extends: paper.yaml\nruns: {sbd: {gpus: 1}}\n")
    done = dry_run(folder, "--config", "experiment=experiments/alone.yaml")
    assert done.returncode != 0
    *said, line = done.stdout.splitlines()
    assert line.startswith("snakemake: error: llama-3.1-8b/sbd needs ")
    assert len(said) <= 1, done.stdout  # Snakemake's own line on the profile


def test_settings_of_the_profile_come_from_the_environment(tmp_path: Path) -> None:
    folder = copy_project(tmp_path)
    shutil.copytree(ROOT / "slurm", folder / "slurm")
    names = {"SBD_ACCOUNT": "lab", "SBD_PARTITION": "long", "SBD_GPU_MODEL": "h100", "SBD_TIME": "600"}
    command = [sys.executable, "-m", "snakemake", "--profile", "slurm", "-n", "all"]
    done = subprocess.run(
        command, cwd=folder, env={**environment(), **names}, capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stdout.splitlines() if "resources:" in line and "gpu=8" in line]
    assert len(lines) == 11
    paper = load_experiment(ROOT / "experiments/paper.yaml")
    memory = sorted(host_memory_mb(paper, *training) for training in paper.trainings())
    assert sorted(int(match[1]) for line in lines if (match := re.search(r"mem_mb=(\d+)", line))) == memory
    # Programs are run where no GPU waits, but not within the two hours of a small step.
    rules = re.findall(r"^rule score:(?:\n    .*)*?\n    resources: (.*)", done.stdout, re.M)
    assert len(rules) == sum(paper.benchmarks[job[-1]].scored == "apart" for job in paper.jobs())
    assert all("runtime=600" in line and "gpu" not in line for line in rules)
    asked = re.findall(r"^rule (\w+):(?:\n    .*)*?\n    resources: (.*)", done.stdout, re.M)
    # A type without a number would ask for one GPU.
    assert {rule for rule, line in asked if "gpu_model=" in line} == {rule for rule, line in asked if "gpu=" in line}
    for line in lines:
        for part in (
            "nodes=1",
            "slurm_account=lab",
            "slurm_partition=long",
            "gpu_model=h100",
            "runtime=600",
            "--signal=TERM@600",
        ):
            assert part in line, line
