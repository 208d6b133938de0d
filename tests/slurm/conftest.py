"""A real Slurm of one node with two GPU gres, where it is installed, we may start it, and it is asked for.

It is asked for with SBD_TEST_SLURM=1: it takes many minutes, and its configuration is linked from /etc/slurm meanwhile.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workflow.conftest import environment

SCRIPT = Path(__file__).with_name("cluster.sh")
NEEDED = ("sbatch", "slurmctld", "slurmd", "munged")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands reach the cluster."""
    if os.environ.get("SBD_TEST_SLURM") != "1":
        pytest.skip("starts a Slurm on this machine, for many minutes: SBD_TEST_SLURM=1 python -m pytest tests/slurm")
    missing = [name for name in NEEDED if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    if missing:
        pytest.skip(f"no {' and '.join(missing)} here; apt-get install --no-install-recommends slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.skip("slurmd and munged can only be started by root")
    folder = tmp_path_factory.mktemp("slurm")
    environ = {**environment(), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    started = subprocess.run([SCRIPT, "start", folder], env=environ, check=False)
    if started.returncode == 3:
        pytest.skip("another test's Slurm is running on this machine")
    assert started.returncode == 0, "the cluster did not start; its error stands above"
    yield environ
    subprocess.run([SCRIPT, "stop", folder], env=environ, check=True)
