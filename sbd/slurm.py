"""What a step asks of Slurm when it runs in one of its jobs."""

from __future__ import annotations

import os
import subprocess


def requeue() -> str | None:
    """Put the job of this process back into the queue, if it was only warned; returns what was done, or None.

    A job that Slurm still counts as running was warned of its time limit and shall go on. One that is being cancelled
    or has timed out is left alone.
    """
    job = os.environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    try:
        state = _ask("squeue", "--noheader", "--jobs", job, "--format", "%T")
        if state != "RUNNING":
            return f"Slurm job {job} is {state.lower() or 'gone'} and not queued again"
        _ask("scontrol", "requeue", job)
    except (OSError, subprocess.SubprocessError) as error:
        return f"Slurm job {job} could not be queued again ({error})"
    return f"Slurm job {job} is queued again"


def _ask(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
