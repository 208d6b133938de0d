"""How .venv comes about, with a stand-in for Python: without its parts, after failures, and when the lock changes."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHON = """#!/bin/bash
# A Python that makes environments of stand-ins, and logs what it is asked for. BROKEN names what this machine lacks.
echo "$*" >> "$LOG"
case "$*" in
    -V) echo "Python 3.10.1" ;;
    "-c "*) [[ $BROKEN != *version* ]] ;;
    "-m pip --version") [[ $BROKEN != *pip* ]] ;;
    "-m venv .venv") mkdir -p .venv/bin; [[ $BROKEN != *own* ]] && cp "$0" .venv/bin/python ;;
    "-m venv --without-pip .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
    "-m pip "*install*) [[ $BROKEN != *network* ]] ;;
esac
"""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    (tmp_path / "workflow").mkdir()
    shutil.copy(ROOT / "workflow/environment.sh", tmp_path / "workflow")
    (tmp_path / "requirements.lock").write_text("torch==2.13.0\n")
    (tmp_path / "python").write_text(PYTHON)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def create(machine: Path, broken: str = "", python: str = "python") -> tuple[int, list[str], list[str]]:
    """Exit status, lines on the error stream, and what Python was asked for."""
    log = machine / "log"
    log.write_text("")
    names = {"PYTHON": str(machine / python), "LOG": str(log), "BROKEN": broken}
    done = subprocess.run(
        ["workflow/environment.sh"],
        cwd=machine,
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr.splitlines(), log.read_text().splitlines()


def installs(log: list[str]) -> list[str]:
    return [line for line in log if " install " in line]


def complete(machine: Path) -> bool:
    stamp = machine / ".venv/requirements.lock"
    return stamp.exists() and stamp.read_text() == (machine / "requirements.lock").read_text()


def test_the_environment_is_made_once_and_again_when_the_lock_changes(machine: Path) -> None:
    status, errors, log = create(machine)
    assert (status, errors) == (0, [])
    assert "--requirement requirements.lock" in installs(log)[0]
    assert "--no-deps --editable ." in installs(log)[1]
    assert complete(machine)
    assert create(machine) == (0, [], [])
    (machine / ".venv/left_over").touch()
    (machine / "requirements.lock").write_text("torch==2.13.1\n")
    assert not complete(machine)
    assert create(machine)[0] == 0
    assert complete(machine)
    assert not (machine / ".venv/left_over").exists()


def test_without_ensurepip_another_pip_fills_it(machine: Path) -> None:
    status, errors, log = create(machine, broken="own")
    assert (status, errors) == (0, [])
    assert "-m venv --without-pip .venv" in log
    assert all(line.startswith("-m pip --python .venv/bin/python install") for line in installs(log))
    assert complete(machine)


@pytest.mark.parametrize(
    ("broken", "python", "message"),
    [
        ("", "none", "there is no "),
        ("version", "python", "is Python 3.10.1, but 3.11 or newer is needed; name one: make PYTHON="),
        ("own pip", "python", "can make no virtual environment; on Debian and Ubuntu: apt install python3-venv"),
        ("network", "python", "the packages could not be installed (see above); the same command tries again"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_leaves_no_stamp(
    machine: Path, broken: str, python: str, message: str
) -> None:
    status, errors, _ = create(machine, broken, python)
    assert status == 1
    assert len(errors) == 1
    assert errors[0].startswith("make: error: ")
    assert message in errors[0]
    assert not complete(machine)
    assert create(machine)[0] == 0
    assert complete(machine)


def test_the_lock_pins_every_package_and_names_no_place() -> None:
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    names = {line.split("==")[0] for line in lines}
    assert all(len(line.split("==")) == 2 for line in lines)
    assert "torch==2.13.0" in lines
    assert {"snakemake", "transformers", "lm-eval", "basedpyright", "pytest", "ruff", "snakefmt"} <= names
