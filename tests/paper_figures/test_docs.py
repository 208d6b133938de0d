"""docs/errata.md and docs/paper_index.md say what the code says, and the checks show what the page claims."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import pytest

from paper_figures import errata, errata_checks, paper_index
from sbd.errors import UserError
from sbd.experiment_files import load_experiment
from sbd.selection import Figures

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_pages_are_those_that_the_code_writes() -> None:
    assert (ROOT / "docs/errata.md").read_text(encoding="utf-8") == errata.page()
    assert (ROOT / "docs/paper_index.md").read_text(encoding="utf-8") == paper_index.page("paper-tiny")


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("labels", r"labels kept on masked tokens: 0 of (\d+); on others: (\d+) of \2"),
        ("label-shapes", r"IndexError: .*63"),
        ("block-length", r"from 0 to 15; the mask of blocks of 0 ends in .*ZeroDivisionError"),
        ("mask-length", r"a mask of \(64, 64\) for an input of 128 .* begin at 32; .* used here: True"),
        ("partial-block", r"equation 14 sums over 8; the code gives the other 2 labels \(2\) .*\(True\)"),
        ("inference-mask", r"NameError: name 'seq_len' is not defined"),
        ("factor-rule", r"confidence 0.99: 0 as printed, 16 by"),
        ("headline", r"reasoning 3.35 to 3.92; chat 2.2 to 2.77"),
        ("monotone", r"3.23 at gamma_high, 3.55 at gamma_low"),
        ("rounding", r"26.6 = 8/30 = 26.67"),
        ("mbpp-count", r"fit all 8 scores: \[378, 974\]"),
        ("figure1-points", r"table 1: none; 454 problems fit: True"),
        ("figure1-stars", r"llama-3.1-8b 31.28, .*: the star is sbd; qwen-3-8b 36.56, .*: the star is ntp$"),
        ("mbpp-panel", r"24 with n = 1319, 1\d with n = 500, 1\d with n = 378"),
        ("canvas", r"\['1024'\]"),
        ("proxy", r"at 1024 passes entropy 59.5, confidence 58.1; .* 231 passes entropy 50.6, confidence 5[45]"),
        ("proxy", r"humaneval at 1024 passes entropy 40.9, confidence 37.2; .* entropy 2[5-8]\..*, confidence 31.7"),
        ("roofline-sizes", r"4096 times too wide, K and V 256 wide"),
        ("roofline-sizes", r"block 32 .*: 3\.966 printed, corrected 3\.939 over 16 tokens, 3\.782 .*, 3\.617"),
        ("bandwidth", r"1\.0995 times"),
        ("lm-head", r"6\.\d% at block 1,"),
    ],
)
def test_checks_show_the_fault(name: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    errata.main([name])
    assert re.search(shown, capsys.readouterr().out)


def test_counts_that_fit_a_percentage() -> None:
    assert errata_checks.fits(26.6, 30)  # cut
    assert errata_checks.fits(26.7, 30)  # rounded
    assert not errata_checks.fits(26.8, 30)
    assert errata_checks.fits(32.82, 454, 2)
    assert not errata_checks.fits(32.90, 454, 2)


def test_every_module_with_outputs_is_in_the_index_and_takes_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = {entry.module for entry in paper_index.ENTRIES}
    modules = {path.stem for path in (ROOT / "paper_figures").glob("*.py") if "command.parser(" in path.read_text()}
    # The page of figures 5, 12 and 13 has the command line of both.
    assert modules - {"beside"} | {"figure5", "figures12_13"} == listed
    experiment = load_experiment("experiments/paper-tiny.yaml")
    for entry in paper_index.ENTRIES:
        module = importlib.import_module(f"paper_figures.{entry.module}")
        words = shlex.split(entry.command(experiment, Path("source"), Path("target")))
        assert words[:3] == ["python", "-m", module.__name__]
        # An option that a module does not have would end with SystemExit, before a missing file is noticed.
        monkeypatch.chdir(tmp_path)
        with pytest.raises(UserError):
            module.main(words[3:])


def test_every_section_has_an_entry_and_every_entry_a_caption() -> None:
    sections = {entry.section for entry in paper_index.ENTRIES if entry.section}
    assert sections == {*Figures.model_fields, "speed"}
    rows = [line for line in paper_index.page("paper-tiny").splitlines() if line.startswith("| ")][2:]
    for entry, row in zip(paper_index.ENTRIES, rows, strict=True):
        assert f"| `snakemake --cores 1 {entry.module} --config experiment=experiments/paper-tiny.yaml` |" in row
        assert (ROOT / "workflow/report" / f"{entry.module}.rst").is_file()
