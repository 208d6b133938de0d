"""All kept tables and figures from a clean clone, without training."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.workflow.conftest import ROOT, snakemake

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout that can be cloned")
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_snakemake_figures_from_a_clone_takes_less_than_two_minutes(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", "--depth", "1", f"file://{ROOT}", str(clone)], check=True)
    started = time.monotonic()
    done = snakemake(clone, "figures", experiment="tiny")
    seconds = time.monotonic() - started
    assert done.returncode == 0, done.stdout
    assert seconds < 120
    for kept in (clone / "results/reference").glob("*/tables/*.md"):
        drawn = clone / "results/rebuilt" / kept.relative_to(clone / "results/reference")
        assert drawn.read_text(encoding="utf-8") == kept.read_text(encoding="utf-8")
    assert not list(clone.glob("results/*/models"))
