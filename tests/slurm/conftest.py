"""A real Slurm of one node with two GPU gres, where it is installed and we may start it.

Its configuration is linked from /etc/slurm meanwhile; a machine that has another one there is left alone.
SBD_TEST_SLURM=0 leaves it out: it takes some five minutes, most of them waiting.
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
REFUSED = {3: "another test's Slurm is running on this machine", 4: "this machine belongs to a Slurm already"}


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands reach the cluster."""
    if os.environ.get("SBD_TEST_SLURM") == "0":
        pytest.skip("left out by SBD_TEST_SLURM=0")
    missing = [name for name in NEEDED if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
    if missing:
        pytest.skip(f"no {' and '.join(missing)} here; apt-get install --no-install-recommends slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.skip("slurmd and munged can only be started by root")
    folder = tmp_path_factory.mktemp("slurm")
    environ = {**environment(), "PATH": f"{os.environ['PATH']}:/usr/sbin"}
    started = subprocess.run([SCRIPT, "start", folder], env=environ, check=False)
    if started.returncode in REFUSED:
        pytest.skip(REFUSED[started.returncode])
    assert started.returncode == 0, "the cluster did not start; its error stands above"
    yield environ
    subprocess.run([SCRIPT, "stop", folder], env=environ, check=True)
