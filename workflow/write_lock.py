"""Write requirements.lock: the exact version of every package that ``pip install .[dev]`` would choose today.

``pip install --dry-run --ignore-installed --report - ".[dev]" | python workflow/write_lock.py requirements.lock``
"""

import json
import re
import sys
from pathlib import Path

HEADER = """\
# The whole environment, exact. Made by `make lock` from pyproject.toml; do not edit by hand.
# Without hashes and hosts, so that pip takes each package from wherever it is set up to look:
# torch for CPUs only, if such wheels are offered there, else the one with CUDA.
"""


def lock(report: dict) -> str:
    """The lines of the lock file, from pip's installation report."""
    packages = [entry["metadata"] for entry in report["install"] if not entry.get("requested_extras")]
    lines = {f"{normal(package['name'])}=={package['version'].split('+')[0]}" for package in packages}
    return HEADER + "".join(f"{line}\n" for line in sorted(lines))


def normal(name: str) -> str:
    """A package name as registries write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(lock(json.load(sys.stdin)), encoding="utf-8")
