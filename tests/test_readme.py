"""What README.md and docs/paper_scale.md name is there: files, make targets, verbs and their options, rules."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from sbd.cli import build_parser
from sbd.config import settings_of
from sbd.experiment_files import experiment_file, load_experiment
from tests.workflow.conftest import copy_project, environment

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SCALE = (ROOT / "docs/paper_scale.md").read_text(encoding="utf-8")


def commands(page: str) -> list[str]:
    """Lines of the blocks without a language, comments taken off."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.S | re.M)
    lines = [line for language, block in blocks if not language for line in block.splitlines()]
    return [command for line in lines if (command := line.split("#")[0].strip())]


def inline(page: str) -> list[str]:
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page, flags=re.S))


def missing(page: str) -> list[str]:
    """Links and names of files that are not there, but for results that a run would make."""
    links = re.findall(r"\]\((?!https?://)([^)]+)\)", page)
    named = [
        text
        for text in inline(page)
        if re.fullmatch(r"[\w./-]+", text) and ("/" in text or text.endswith((".md", ".yml", ".yaml")))
    ]
    made = re.compile(r"results/(?!reference)|data/livecodebench/|\.snakemake/")
    return [name for name in (*links, *named) if not made.match(name) and not (ROOT / name).exists()]


COMMANDS, INLINE = commands(README), inline(README)


def test_every_file_that_it_names_exists() -> None:
    assert {"experiments/tiny.yaml", "workflow/rules/", "slurm/profile.yaml"} <= set(inline(README + SCALE))
    assert missing(README) == missing(SCALE) == []


def test_the_variables_of_the_cluster_are_those_of_the_profile() -> None:
    """With their defaults, in the page and in the profile's own head."""
    profile = (ROOT / "slurm/profile.yaml").read_text(encoding="utf-8")
    used = set(re.findall(r"environ(?:\[|\.get\()\"(SBD_\w+)\"", profile))
    rows = re.findall(r"^\| `(SBD_\w+)` \| .* \| ([^|]+) \|$", SCALE, re.M)
    head = re.findall(r"^#   (SBD_\w+) .*  (\S.*)$", profile, re.M)
    assert rows == head
    assert {name for name, _ in rows} == used
    for name, default in rows:
        given = set(re.findall(rf"environ\.get\(\"{name}\", \"?(\d+)\"?\)", profile))
        assert given <= {default}


@pytest.mark.parametrize(
    "command", sorted({text.removesuffix(" -n") for text in commands(SCALE) if text.startswith("snakemake")})
)
def test_the_workflow_knows_the_commands_of_the_paper_scale(command: str, tmp_path: Path) -> None:
    """As a dry run, from a copy: results of the paper's scale may lie here."""
    shutil.copytree(ROOT / "slurm", copy_project(tmp_path) / "slurm")
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), "--dry-run", "--quiet", "all"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_what_it_says_a_run_leaves_is_what_the_workflow_makes() -> None:
    made = [text for text in INLINE if text.startswith("results/tiny/")]
    targets = [name for name in made if not name.endswith("report.html")]
    assert len(targets) == 2
    assert "results/tiny/report.html" in made
    checkpoint = re.findall(r"snakemake --cores 2 (results/\S+)", README)
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--quiet", "all", "--dry-run", *targets, *checkpoint],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_make_target_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w-]+):", makefile, flags=re.M))
    assert {"make", "make test", "python -m sbd prepare"} <= set(COMMANDS)  # blocks are found
    given = [text for text in (*COMMANDS, *INLINE) if re.match(r"(\S+=\S+ )?make\b", text)]
    named = {word for text in given for word in text.split() if "=" not in word and word != "make"}
    assert {"test", "smoke", "gsm8k", "lock", "reference"} <= named
    assert named <= targets
    for variable in {word.split("=")[0] for text in given for word in text.split("make")[1].split() if "=" in word}:
        assert re.search(rf"^{variable} \?=", makefile, flags=re.M), variable


@pytest.mark.parametrize("command", [c for c in (*COMMANDS, *commands(SCALE)) if c.startswith("python -m sbd")])
def test_every_step_by_hand_is_a_command_of_the_tiny_experiment(command: str) -> None:
    options: argparse.Namespace = build_parser().parse_args(command.split()[3:])
    experiment = load_experiment(ROOT / experiment_file(options.experiment))
    for kind in ("model", "run", "decoder", "benchmark"):
        names = getattr(options, kind, None) or []
        names = [names] if isinstance(names, str) else names
        assert set(names) <= set(getattr(experiment, f"{kind}s"))
    assert getattr(options, "source", None) in (None, *experiment.data.sources)


def test_the_picture_is_what_its_script_draws() -> None:
    code = "import runpy; print(runpy.run_path('docs/method.py')['picture'](), end='')"
    drawn = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert (ROOT / "docs/method.svg").read_text(encoding="utf-8") == drawn


def test_the_picture_marks_the_passes_that_it_leaves_out() -> None:
    drawn = re.findall(r">(?:forward pass (\d+)|(…))</text>", (ROOT / "docs/method.svg").read_text(encoding="utf-8"))
    assert [number or gap for number, gap in drawn] == ["1", "2", "…", "8", "1", "2", "3"]


def test_results_go_between_the_markers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import runpy

    reference = runpy.run_path(str(ROOT / "workflow/reference.py"))
    monkeypatch.chdir(tmp_path)
    made = {"git_revision": "0123456789abcdef", "git_dirty": False, "device": "cpu: a processor", "threads": 1}
    made |= {"date": "2026-11-29", "dtype": "float32", "python": "3.11.7", "packages": {"torch": "2.13.0"}}
    files = {
        "records.csv": "a",
        "losses.csv": "b",
        "tables/table1.md": "| the table |\n",
        "tables/losses.md": "| the losses |\n",
        "tables/claims.csv": "claim,where,verdict\nfewer,a,reproduced\nfewer,b,reproduced\nno loss,a,trend only\n",
        "figures/pareto.png": "p",
    }
    # One evaluation of one training of the experiment, whose records and models may lie at another scale.
    jobs, trainings = [("m", "r", "d", "b")], [("m", "r")]
    experiment = SimpleNamespace(
        jobs=lambda: jobs,
        trainings=lambda: trainings,
        record_folder=lambda *job: Path("results/other/records", *job),
        run_folder=lambda *job: Path("results/other/models", *job),
        work_folder=Path("results/other"),
        speed=True,
    )
    monkeypatch.setitem(reference["main"].__globals__, "load_experiment", lambda path: experiment)
    others = {
        "records/m/r/d/b/record.json": json.dumps({"provenance": made, "seconds": 90.0}),
        "models/m/r/checkpoint/training.json": json.dumps({"precision": "no", "seconds_this_session": 150.0}),
        "records/m/r/d/more/record.json": "{}",
        "speed/m/r.csv": "c",
    }
    for name, text in others.items():
        Path("results/other", name).parent.mkdir(parents=True, exist_ok=True)
        Path("results/other", name).write_text(text)
    for name, text in files.items():
        Path("results/tiny", name).parent.mkdir(parents=True, exist_ok=True)
        Path("results/tiny", name).write_text(text)
    Path("README.md").write_text(README + "<!-- verdicts of tiny: begin --><!-- verdicts of tiny: end -->\n")
    reference["main"](["tiny"])
    once = Path("README.md").read_text()
    assert (
        "| the table |\n\n![Accuracy against tokens per forward pass](results/reference/tiny/figures/pareto.png)"
        in once
    )
    assert "| the losses |" in once
    assert Path("results/reference/tiny/speed/m/r.csv").read_text() == "c"
    assert (
        "Revision 0123456789, cpu: a processor, torch 2.13.0, precision of training float32; 1 trainings took 2 core "
        "minutes, the generations of 1 evaluations 2." in once
    )
    assert Path("results/reference/tiny/figures/pareto.png").read_text() == "p"
    verdicts = "| fewer | reproduced |\n| no loss | trend only |"
    evidence = "Evidence: `results/reference/tiny/tables/claims.md`."
    assert f"| --- | --- |\n{verdicts}\n\n{evidence}\n\n<!-- verdicts of tiny: end -->" in once
    assert once.split("## Real text")[1].split("<!-- verdicts")[0] == README.split("## Real text")[1]
    reference["main"](["tiny"])
    assert Path("README.md").read_text() == once
    with pytest.raises(SystemExit, match="holds no finished run"):
        reference["main"](["gsm8k"])


def test_an_ablation_is_five_lines_and_runs_only_what_is_new(tmp_path: Path) -> None:
    """The lines of the README, put where they say, into the experiment they say."""
    block = next(b for b in re.findall(r"```yaml\n(.*?)```", README, re.S) if "# evaluations+:" in b)
    parts = dict(re.findall(r"# ([^\n]+):\n((?: [^\n]*\n)+)", block))
    lines = [line for line in block.splitlines() if not line.startswith("#")]
    assert len(lines) == 5
    before = load_experiment(ROOT / "experiments/paper-tiny.yaml")
    raw = yaml.safe_load((ROOT / "experiments/paper-tiny.yaml").read_text())
    for keys, text in parts.items():
        *path, last = keys.split(": ")
        place = raw
        for key in path:
            place = place[key]
        found = yaml.safe_load(text)
        place[last] = [*place[last], *found] if isinstance(found, list) else {**place[last], **found}
    shutil.copy(ROOT / "experiments/tiny.yaml", tmp_path)
    (tmp_path / "paper-tiny.yaml").write_text(yaml.safe_dump(raw))
    after = load_experiment(tmp_path / "paper-tiny.yaml")
    assert set(after.trainings()) - set(before.trainings()) == {("llama-tiny", "sbd_terms")}
    assert set(after.jobs()) - set(before.jobs()) == {("llama-tiny", "sbd_terms", "gamma_0.1", "tiny_gsm")}
    changed = {name for name in before.runs if settings_of(before.runs[name]) != settings_of(after.runs[name])}
    assert not changed
    assert after.runs["sbd_terms"].normalization == "terms"
