"""What a file says is kept on disk between readings, and is never older than the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sbd import fingerprints


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project of two modules, one of which imports the other, beside which a workflow was run."""
    (tmp_path / ".snakemake").mkdir()
    (tmp_path / "sbd").mkdir()
    (tmp_path / "sbd/__init__.py").write_text("")
    (tmp_path / "sbd/one.py").write_text("from sbd import two\nx = 1\n")
    (tmp_path / "sbd/two.py").write_text('"""A number."""\ny = 1\n')
    monkeypatch.setattr(fingerprints, "ROOT", tmp_path)
    forget()
    yield tmp_path
    forget()


def forget() -> None:
    """As a new process begins."""
    for function in (fingerprints._known, fingerprints._kept_in, fingerprints._tree, fingerprints._public_modules):
        function.cache_clear()
    fingerprints._new.clear()


def anew() -> str:
    forget()
    return fingerprints.code_fingerprint("sbd.one")


def kept(project: Path) -> list[Path]:
    return list((project / ".snakemake").iterdir())


def test_a_second_reading_parses_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = anew()
    assert len(kept(project)) == 1

    def parse(*_: object) -> None:
        raise AssertionError("parsed again")

    monkeypatch.setattr("ast.parse", parse)
    assert anew() == first


def test_a_change_of_code_is_seen_and_a_comment_is_not(project: Path) -> None:
    first = anew()
    (project / "sbd/two.py").write_text('"""Said in other words."""\ny = 1  # a number\n')
    assert anew() == first
    (project / "sbd/two.py").write_text('"""A number."""\ny = 22\n')
    assert anew() != first
    (project / "sbd/two.py").write_text('"""A number."""\ny = 1\n')
    assert anew() == first


@pytest.mark.parametrize("damage", ["", "{", '{"sbd/one.py 1 1": 3}', "[]"])
def test_a_damaged_file_is_made_anew(project: Path, damage: str) -> None:
    first = anew()
    [path] = kept(project)
    path.write_text(damage)
    assert anew() == first


def test_nothing_is_written_where_no_workflow_was_run(project: Path) -> None:
    (project / ".snakemake").rmdir()
    assert anew()
    assert not (project / ".snakemake").exists()


@pytest.mark.parametrize(("package", "counts"), [("config", False), ("other", True)])
def test_a_module_of_a_package_counts_as_the_package_does(project: Path, package: str, counts: bool) -> None:
    folder = project / "sbd" / package
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "run.py").write_text("z = 1\n")
    (project / "sbd/one.py").write_text(f"from sbd.{package} import run\nimport sbd.{package}.run\n")
    first = anew()
    (folder / "run.py").write_text("z = 22\n")
    assert (anew() != first) == counts
