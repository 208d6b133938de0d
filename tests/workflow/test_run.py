"""The smoke experiment through Snakemake: it ends, is not repeated, and a change repeats what depends on it only."""

from __future__ import annotations

import csv
import json
import re
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import yaml

from paper_figures import paper_index
from sbd.experiment_files import load_experiment
from sbd.states import state_steps
from tests.workflow.conftest import ROOT, command, environment, planned, snakemake

pytestmark = pytest.mark.slow
SCALE_FREE = {"tables3_4"}
"""Drawn from neither records nor settings."""
DRAWN = {
    **{e.module: 1 for e in paper_index.drawn(load_experiment(ROOT / "experiments/smoke.yaml"))},
    "all": 1,
}
REDRAWN = {name: 1 for name in DRAWN if name not in SCALE_FREE}
PAPER = {"collect": 1, **REDRAWN}
TRAINED = {"masked_loss": 2, **PAPER}
"""What follows when runs with noisy blocks are trained again."""


def change(path: Path, **keys: object) -> None:
    """Lay ``keys`` over the mappings of an experiment file, two levels deep."""
    raw = yaml.safe_load(path.read_text())
    for key, value in keys.items():
        if isinstance(value, dict):
            raw[key] = {**raw.get(key, {})}
            for name, inner in value.items():
                old = raw[key].get(name, {})
                raw[key][name] = {**old, **inner} if isinstance(inner, dict) and isinstance(old, dict) else inner
        else:
            raw[key] = value
    path.write_text(yaml.safe_dump(raw, sort_keys=False))


def test_the_whole_workflow_runs_and_is_then_done(finished: Path) -> None:
    results = finished / "results/smoke"
    experiment = load_experiment(finished / "experiments/smoke.yaml")
    with open(results / "records.csv", newline="") as lines:
        rows = list(csv.DictReader(lines))
    keys = [(row["model"], row["run"], row["decoder"], row["benchmark"]) for row in rows]
    assert keys == experiment.jobs()
    for name in (
        "matp_loss.csv",
        "metrics.csv",
        "differences.csv",
        "machine.csv",
        "tables/claims.md",
        "tables/table3.md",
        "tables/losses.md",
        "tables/table1.csv",
        "tables/table1.md",
        "tables/table1.tex",
        "figures/pareto.pdf",
        "figures/pareto.png",
        "figures/figure4.pdf",
        "figures/matp_loss.pdf",
    ):
        assert (results / name).stat().st_size > 0
    assert planned(finished) == {}


def test_the_report_is_one_file_that_needs_no_network(finished: Path) -> None:
    done = snakemake(finished, "--report", "results/smoke/report.html")
    assert done.returncode == 0, done.stdout
    text = (finished / "results/smoke/report.html").read_text(encoding="utf-8")
    assert not re.search(r'<(script|link|img)[^>]+(src|href)="(https?:)?//', text)
    assert text.index("1 Claims") < text.index("2 Tables of the paper") < text.index("4 Not in the paper")
    for caption in (ROOT / "workflow/report").glob("*.rst"):
        if caption.stem in DRAWN:
            assert " ".join(caption.read_text().split()[:5]) in " ".join(text.split()), caption


def test_adopting_states_repeats_no_finished_training(finished: Path) -> None:
    done = subprocess.run(
        [*command("--dry-run"), "adopt=true"],
        cwd=finished,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Nothing to be done" in done.stdout + done.stderr


def test_a_new_run_plans_its_own_jobs_only(project: Path) -> None:
    file = project / "experiments/smoke.yaml"
    more = {"objective": "sbd", "parent": "pretrain", "steps": 2, "batch_rows": 2, "micro_rows": 2}
    change(file, runs={"more": {**more, "learning_rate": 0.001, "warmup_steps": 1}})
    assert planned(project) == {"train": 2, **PAPER}, "its losses are a row of a table"
    assert planned(project, "models") == {"train": 2, "models": 1}
    evaluations = yaml.safe_load(file.read_text())["evaluations"]
    change(file, evaluations=[*evaluations, {"runs": ["more"], "decoders": ["gamma_0.1"]}])
    assert planned(project) == {"train": 2, "evaluate": 2, **PAPER}


def test_an_experiment_that_shares_another_runs_only_what_is_new(project: Path) -> None:
    more = {
        "extends": "smoke.yaml",
        "scale": "more",
        "shares": "smoke",
        "runs": {"sbd_2": {"repeats": "sbd", "data_seed": 2, "models": ["llama-tiny"]}},
        "evaluations+": [{"runs": ["sbd_2"], "decoders": ["gamma_0.1"], "benchmarks": ["tiny_gsm"]}],
    }
    (project / "experiments/more.yaml").write_text(yaml.safe_dump(more))
    drawn = {**PAPER, "masked_loss": 2, "machine": 1, "tables3_4": 1}
    assert planned(project, experiment="more") == {"train": 1, "evaluate": 1, **drawn}
    assert planned(project) == {}
    done = snakemake(project, "results/more/tables/table1.csv", experiment="more")
    assert done.returncode == 0, done.stdout
    assert (project / "results/smoke/records/llama-tiny/sbd_2/gamma_0.1/tiny_gsm/record.json").is_file()
    assert planned(project) == {}, "the other experiment does not notice"


@pytest.mark.parametrize(
    ("changes", "jobs"),
    [
        ({"decoders": {"gamma_0.1": {"sampler": {"gamma": 0.12}}}}, {"evaluate": 2, **PAPER}),
        ({"benchmarks": {"tiny_gsm": {"limit": 8}}}, {"evaluate": 4, **PAPER}),
        ({"runs": {"sbd": {"learning_rate": 0.001}}}, {"train": 2, "evaluate": 2, **TRAINED}),
        ({"runs": {"pretrain": {"learning_rate": 0.001}}}, {"train": 6, "evaluate": 4, **TRAINED}),
        ({"runs": {"sbd": {"label": "another name"}}}, REDRAWN),
        ({"runs": {"sbd": {"checkpoint_every": 7}}}, REDRAWN),
    ],
    ids=["decoder", "benchmark", "run", "parent", "label", "checkpoints"],
)
def test_a_changed_setting_repeats_what_depends_on_it(project: Path, changes: dict, jobs: dict[str, int]) -> None:
    change(project / "experiments/smoke.yaml", **changes)
    assert planned(project) == jobs


@pytest.mark.parametrize(
    ("module", "jobs"),
    [
        ("sbd/samplers.py", {"evaluate": 4, **PAPER}),
        ("sbd/objectives.py", {"train": 6, "evaluate": 4, **TRAINED}),
        ("sbd/problems/functions.py", {"problems": 2, "prepare": 1, "train": 6, "evaluate": 4, **TRAINED}),
        ("paper_figures/table1.py", {"table1": 1, "all": 1}),
        ("sbd/cli/verbs.py", {}),
    ],
)
def test_changed_code_repeats_its_stage(project: Path, module: str, jobs: dict[str, int]) -> None:
    with open(project / module, "a") as code:
        code.write("\nCHANGED = True\n")
    assert planned(project) == jobs


def test_a_comment_repeats_nothing(project: Path) -> None:
    for module in (*project.glob("sbd/*.py"), *project.glob("paper_figures/*.py")):
        module.write_text(module.read_text() + "\n# a comment\n")
    assert planned(project) == {}


def test_a_changed_task_file_repeats_its_benchmark(project: Path) -> None:
    task = project / "experiments/tasks/tiny_code.yaml"
    task.write_text(task.read_text() + "\n")
    assert planned(project) == {"evaluate": 4, **PAPER}


def test_a_failed_step_shows_its_line_and_leaves_no_result(project: Path) -> None:
    problems = project / "results/smoke/data/tiny_gsm/test.jsonl"
    problems.write_text(problems.read_text()[:-20])
    record = "results/smoke/records/llama-tiny/ntp/ntp/tiny_gsm/record.json"
    done = snakemake(project, record)
    assert done.returncode != 0
    assert re.search(r"^sbd evaluate: error: .*test\.jsonl, line 16: not JSON", done.stdout, flags=re.M)
    assert not (project / record).exists()


def test_a_training_that_was_killed_goes_on(project: Path) -> None:
    """SIGKILL in mid-training fails the workflow; a rerun goes on from the saved state, to the same end."""
    change(project / "experiments/smoke.yaml", runs={"pretrain": {"steps": 60, "checkpoint_every": 3}})
    folder = project / "results/smoke/models/llama-tiny/pretrain"
    target = "results/smoke/models/llama-tiny/pretrain/checkpoint/training.json"
    whole = project.with_name("whole")
    subprocess.run(["cp", "-a", project, whole], check=True)
    running = subprocess.Popen(
        command(target), cwd=project, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    deadline = time.monotonic() + 240
    while not state_steps(folder / "state"):
        assert running.poll() is None, running.communicate()[0]
        assert time.monotonic() < deadline, "no state was saved"
        time.sleep(0.02)
    trainings = [
        process
        for process in psutil.Process(running.pid).children(recursive=True)
        if "sbd" in process.cmdline() and "python" in process.name()
    ]
    assert trainings
    for process in trainings:
        process.send_signal(signal.SIGKILL)
    assert running.wait(120) != 0
    assert state_steps(folder / "state")
    assert not (project / target).exists()

    again = snakemake(project, target)
    assert again.returncode == 0, again.stdout
    first = re.search(r"llama-tiny pretrain: (\d+)/60 step", again.stdout)
    assert first is not None
    assert int(first[1]) >= 3, "it began from the start"
    assert not (folder / "state").exists()
    done = snakemake(whole, target)
    assert done.returncode == 0, done.stdout
    ours, theirs = (json.loads((place / target).read_text()) for place in (project, whole))
    assert ours["steps"] == theirs["steps"] == 60
    assert ours["validation"] == theirs["validation"]
