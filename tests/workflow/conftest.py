"""A copy of the project to run Snakemake in, and a finished run of the smoke experiment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("Snakefile", "workflow", "environment.yml", "experiments", "sbd", "paper_figures")


def copy_project(folder: Path) -> Path:
    """The files that a workflow needs, so that a test may change them."""
    for part in PARTS:
        source, target = ROOT / part, folder / part
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    return folder


def snakemake(folder: Path, *arguments: str, experiment: str = "smoke") -> subprocess.CompletedProcess[str]:
    """Run snakemake in ``folder``; both output streams are in ``stdout``."""
    return subprocess.run(
        command(*arguments, experiment=experiment),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=environment(),
    )


def command(*arguments: str, experiment: str = "smoke") -> list[str]:
    config = f"experiment=experiments/{experiment}.yaml"
    return [sys.executable, "-m", "snakemake", "--cores", "2", *arguments, "--config", config]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SNAKEMAKE_PROFILE")}


def planned(folder: Path, *arguments: str, experiment: str = "smoke") -> dict[str, int]:
    """How many jobs of each rule a dry run lists; ``train_blocks`` is the rule ``train`` for runs with noisy blocks.

    Evaluations that share a process count as one of ``evaluate``.
    """
    done = snakemake(folder, "--dry-run", *arguments, experiment=experiment)
    assert done.returncode == 0, done.stdout
    if "Nothing to be done" in done.stdout:
        return {}
    table = done.stdout.split("Job stats:")[-1]
    counts = {name: int(count) for name, count in re.findall(r"^(\S+) +(\d+)$", table, flags=re.M)}
    assert counts.pop("total") == sum(counts.values())
    if groups := [name for name in counts if name.startswith("evaluate_")]:
        counts["evaluate"] = counts.get("evaluate", 0) + sum(counts.pop(name) for name in groups)
    if blocks := counts.pop("train_blocks", 0):
        counts["train"] = counts.get("train", 0) + blocks
    return counts


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which the smoke experiment has run to its end."""
    folder = copy_project(tmp_path_factory.mktemp("smoke") / "project")
    done = snakemake(folder)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture
def project(finished: Path, tmp_path: Path) -> Path:
    """A copy of the finished project, to change."""
    folder = tmp_path / "project"
    shutil.copytree(finished, folder, symlinks=True)
    return folder
