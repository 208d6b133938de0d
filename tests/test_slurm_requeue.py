"""Whether a stopped job asks to be queued again: only one that Slurm still counts as running does."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbd import slurm


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand-ins for squeue, which says what `state` holds, and scontrol, which writes down how it was called."""
    (tmp_path / "squeue").write_text(f"#!/bin/sh\ncat {tmp_path}/state\n")
    (tmp_path / "scontrol").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/asked\n')
    for name in ("squeue", "scontrol"):
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    return tmp_path


def test_a_warned_job_goes_back_to_the_queue(commands: Path) -> None:
    (commands / "state").write_text("RUNNING\n")
    assert slurm.requeue() == "Slurm job 17 is queued again"
    assert (commands / "asked").read_text() == "requeue 17\n"


@pytest.mark.parametrize("state", ["COMPLETING", "CANCELLED", ""])
def test_a_cancelled_job_does_not(commands: Path, state: str) -> None:
    (commands / "state").write_text(f"{state}\n")
    said = slurm.requeue()
    assert said is not None
    assert "not queued again" in said
    assert not (commands / "asked").exists()


def test_without_slurm_nothing_is_asked(commands: Path, monkeypatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID")
    assert slurm.requeue() is None
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("PATH", "/nowhere")
    said = slurm.requeue()
    assert said is not None
    assert "could not be queued again" in said
