"""A folder in which a small experiment was trained, copies of it, and steps that must fail."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from transformers.utils import logging

from tests.cli.helpers import TRAIN, sbd, write


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the steps up to the training of ``sbd`` were run."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        logging.disable_progress_bar()  # as the command line does where it is the first to import transformers
        write()
        steps = (("problems", "--source", "words"), ("prepare",), (*TRAIN, "base"), (*TRAIN, "sbd"))
        assert [sbd(*step) for step in steps] == [0, 0, 0, 0]
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the working directory."""
    subprocess.run(["cp", "-r", f"{trained}/.", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refuses(here: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a verb that must fail with one line; returns the line."""

    def run(*arguments: str) -> str:
        capfd.readouterr()
        assert sbd(*arguments) == 2
        lines = capfd.readouterr().err.splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith(f"sbd {arguments[0]}: error: ")
        return lines[0]

    return run
