"""The command line itself: names, options, places and the environment; mistakes need no torch."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from sbd.cli import build_parser, main
from sbd.errors import UserNote
from tests.cli.helpers import ROOT


def test_a_bare_name_is_that_of_a_file_in_experiments(capfd: pytest.CaptureFixture[str], monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["check", "--experiment", "smoke"]) == 0
    assert capfd.readouterr().out.startswith("experiments/smoke.yaml is valid\n")
    assert main(["check", "--experiment", "smoky"]) == 2
    assert "no such experiment file: experiments/smoky.yaml; experiment files there: experiments/gsm8k.yaml" in (
        capfd.readouterr().err
    )


def test_the_environment_adopts_as_the_option_does(monkeypatch) -> None:
    line = ["train", "--model", "m", "--run", "r"]
    assert not build_parser().parse_args(line).adopt
    assert build_parser().parse_args([*line, "--adopt"]).adopt
    for value, adopts in (("1", True), ("True", True), ("0", False), ("false", False), ("no", False), ("", False)):
        monkeypatch.setenv("SBD_ADOPT", value)
        assert build_parser().parse_args(line).adopt == adopts, value


def test_a_missing_experiment(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--experiment", "none.yaml"]) == 2
    assert capfd.readouterr().err.splitlines() == [
        "sbd check: error: no such experiment file: none.yaml; experiment files there: none"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: VERB"),
        (["fly"], "invalid choice: 'fly'"),
        (["train"], "the following arguments are required: --model, --run"),
        (["train", "--model", "a", "--run", "b", "--threads", "0"], "must be 1 or more, not 0"),
        (["train", "--model", "a", "--run", "b", "--threads", "two"], "invalid whole number value: 'two'"),
    ],
)
def test_a_wrong_command_is_one_line(capfd: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]


def test_help_and_mistakes_need_no_torch() -> None:
    code = (
        "import sys; from sbd.cli import build_parser, main; "
        "status = main(['train', '--experiment', 'experiments/tiny.yaml', '--model', 'x', '--run', 'y']); "
        "print(status, sorted({'torch', 'transformers', 'datasets', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "2 []\n"
    shown = subprocess.run(
        [sys.executable, "-m", "sbd", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for verb in ("check", "problems", "prepare", "train", "evaluate", "collect"):
        assert re.search(rf"^\s+{verb} ", shown.stdout, flags=re.M)


def test_a_run_that_asks_for_gpus_is_refused_where_there_are_too_few(tmp_path: Path, monkeypatch, capsys) -> None:
    path = tmp_path / "gpus.yaml"
    parent = ROOT / "experiments" / "smoke.yaml"
    path.write_text(f"extends: {parent}\nscale: gpus\nruns: {{pretrain: {{gpus: 2}}, sbd: {{gpus: 2}}}}\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.delenv("SBD_DEVICE", raising=False)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    chosen = ["--experiment", str(path), "--model", "llama-tiny"]
    assert main(["train", *chosen, "--run", "pretrain"]) == 2
    said = "run pretrain asks for 2 GPU(s) and this machine shows 1 (CUDA_VISIBLE_DEVICES is 0)"
    assert said in capsys.readouterr().err.splitlines()[-1]
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    asked = ["evaluate", *chosen, "--run", "sbd", "--decoder", "gamma_0.1", "--benchmark", "tiny_gsm"]
    assert main(asked) == 2
    assert "the evaluation of sbd asks for 1 GPU(s) and this machine shows 0" in capsys.readouterr().err


def test_a_full_disk_is_one_line(monkeypatch, capsys) -> None:
    def full(experiment):
        raise OSError(28, "No space left on device", "results/tiny/records.csv")

    monkeypatch.setattr("sbd.steps.collect.run", full)
    assert main(["collect"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line == "sbd collect: error: no space left for results/tiny/records.csv; make room and run it again"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            PermissionError(13, "Permission denied", "results/x"),
            "results/x: Permission denied; allow it or name another",
        ),
        (IsADirectoryError(21, "Is a directory", "out.csv"), "out.csv: Is a directory; allow it or name another"),
        (OSError(27, "File too large"), "no space left for a file; make room"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_line(monkeypatch, capsys, error: OSError, line: str) -> None:
    def refuse(experiment):
        raise error

    monkeypatch.setattr("sbd.steps.collect.run", refuse)
    assert main(["collect"]) == 2
    [found] = capsys.readouterr().err.splitlines()
    assert found.startswith(f"sbd collect: error: {line}")


def test_a_warning_of_our_own_is_one_line(monkeypatch) -> None:
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)
    assert main(["check", "--experiment", str(ROOT / "experiments/nothing.yaml")]) == 2
    assert warnings.formatwarning("poor text", UserNote, "place.py", 3) == "sbd: warning: poor text\n"
    assert "place.py:3: UserWarning: other" in warnings.formatwarning("other", UserWarning, "place.py", 3)


def test_names_that_the_command_line_knows_without_torch_are_those_of_the_library() -> None:
    from sbd import modeling
    from sbd.cli import parser
    from sbd.decoding import fixed

    assert parser.EXECUTIONS == fixed.EXECUTIONS
    assert tuple(modeling.DTYPES) == parser.DTYPES
