"""What the workflow plans, without running a job."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from paper_figures import paper_index
from sbd.experiment_files import load_experiment
from sbd.fingerprints import UNCOUNTED, code_of
from tests.workflow.conftest import copy_project, environment, planned, snakemake

ROOT = Path(__file__).parents[2]
PARSE = """
import sys, time
from snakemake.api import ConfigSettings, DAGSettings, OutputSettings, ResourceSettings, SnakemakeApi
with SnakemakeApi(OutputSettings(quiet={"all"})) as api:
    workflow = api.workflow(resource_settings=ResourceSettings(cores=1), config_settings=ConfigSettings(),
                            snakefile="Snakefile")
    before, started = set(sys.modules), time.process_time()
    workflow.dag(DAGSettings())
    seconds = time.process_time() - started
print(seconds, sorted({"torch", "transformers", "datasets", "pandas", "lm_eval"} & (set(sys.modules) - before)))
"""


@pytest.mark.parametrize("name", ["tiny", "smoke", "gsm8k", "paper-tiny", "small"])
def test_a_dry_run_lists_every_job(tmp_path: Path, name: str) -> None:
    experiment = load_experiment(ROOT / "experiments" / f"{name}.yaml")
    timed = 0 if experiment.speed is None else len(experiment.speed.models or experiment.models)
    shown = {"speed": timed, "traces": int(experiment.traces is not None)}
    own = sum(model.tokenizer is not None for model in experiment.models.values())
    assert planned(copy_project(tmp_path), experiment=name) == {
        "problems": len(experiment.data.sources),
        "prepare": 1,
        **({"prepare_model": own} if own else {}),
        "train": len(experiment.trainings()),
        "evaluate": len(experiment.groups() if experiment.evaluate_together else experiment.jobs()),
        **({"masked_loss": len(experiment.masked_losses())} if experiment.masked_losses() else {}),
        **({"machine": 1} if experiment.figures.tables3_4 else {}),
        "collect": 1,
        **{entry.module: 1 for entry in paper_index.drawn(experiment)},
        **{rule: jobs for rule, jobs in shown.items() if jobs},
        "all": 1,
    }


STREAMED = """
extends: paper/data.yaml
scale: streamed
tokenizer: &tokenizer {path: a, mask_token: m, chat_template: experiments/templates/chat.jinja}
models: {llama: {path: a}, qwen3: {path: b, tokenizer: {<<: *tokenizer, path: b}}}
runs: {sbd: {objective: sbd, steps: 1, batch_rows: 1, micro_rows: 1, learning_rate: 0.001, warmup_steps: 1}}
decoders: {ntp: {kind: autoregressive}}
evaluations: [{runs: [sbd], decoders: [ntp]}]
table1: {rows: [{run: sbd, decoder: ntp}]}
pareto: {curves: {SBD: [{run: sbd, decoder: ntp}]}}
"""


def test_streams_are_prepared_without_copies_and_programs_are_scored_apart(tmp_path: Path) -> None:
    folder = copy_project(tmp_path)
    (folder / "experiments/streamed.yaml").write_text(STREAMED)
    jobs = planned(folder, experiment="streamed")
    # Six test sets and no training set; rows in the words of each tokenizer; three benchmarks of code, two models.
    assert {name: jobs[name] for name in ("problems", "prepare", "prepare_model", "train")} == {
        "problems": 6, "prepare": 1, "prepare_model": 1, "train": 2
    }  # fmt: skip
    assert {name: jobs[name] for name in ("evaluate", "generate", "score")} == {
        "evaluate": 6,
        "generate": 6,
        "score": 6,
    }


ECHO = """
rule said:
    output: "said.txt"
    shell: "echo $SBD_EXPERIMENT adopt=$SBD_ADOPT > {output}"
"""


@pytest.mark.parametrize(("config", "adopts"), [([], ""), (["adopt=true"], "1"), (["adopt=false"], "")])
def test_jobs_learn_the_experiment_and_whether_to_adopt(tmp_path: Path, config: list[str], adopts: str) -> None:
    folder = copy_project(tmp_path)
    (folder / "Snakefile").write_text((folder / "Snakefile").read_text() + ECHO)
    line = [sys.executable, "-m", "snakemake", "--cores", "1", "said.txt", "--config", "experiment=smoke", *config]
    subprocess.run(line, cwd=folder, env=environment(), capture_output=True, check=True)
    assert (folder / "said.txt").read_text() == f"experiments/smoke.yaml adopt={adopts}\n"


@pytest.mark.parametrize(
    "target", ["models/llama-tiny/nope/checkpoint/training.json", "models/llama/sbd/checkpoint/training.json"]
)
def test_a_target_of_an_unknown_name_is_refused(tmp_path: Path, target: str) -> None:
    done = snakemake(copy_project(tmp_path), "--dry-run", f"results/smoke/{target}")
    assert done.returncode != 0
    assert "MissingRuleException" in done.stdout


def test_a_wrong_experiment_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = copy_project(tmp_path)
    text = "extends: smoke.yaml\nevaluations: [{runs: [sdb], decoders: [ntp]}]\n"
    (folder / "experiments/wrong.yaml").write_text(text)
    done = snakemake(folder, "--dry-run", experiment="wrong")
    assert done.returncode != 0
    assert done.stdout.splitlines() == [
        "snakemake: error: experiments/wrong.yaml: evaluations.0.runs: unknown name 'sdb'; known are ntp, pretrain, sbd"
    ]


def test_lint() -> None:
    done = snakemake(ROOT, "--lint")
    assert done.returncode == 0, done.stdout


def test_reading_the_workflow_takes_less_than_a_second_and_no_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PARSE], cwd=ROOT, capture_output=True, text=True, check=True, env=environment()
    )
    # As in every job: the first reading, which leaves what it found out about the code, may take somewhat longer.
    done = subprocess.run(
        [sys.executable, "-c", PARSE], cwd=ROOT, capture_output=True, text=True, check=True, env=environment()
    )
    seconds, modules = done.stdout.split(maxsplit=1)
    assert modules.strip() == "[]"
    assert float(seconds) < 1


def test_the_code_of_a_stage_is_what_it_imports() -> None:
    training = code_of("sbd.steps.train")
    assert {"sbd.training", "sbd.objectives", "sbd.attention", "sbd.corruption", "sbd.batching", "sbd.data"} <= training
    assert {"sbd.parallel", "sbd.states"} <= training
    assert not any(name.startswith(("sbd.decoding", "sbd.evaluation", "sbd.problems")) for name in training)
    evaluation = code_of("sbd.steps.evaluate", "sbd.evaluation.tasks", "sbd._sandbox_child")
    assert {"sbd.decoding.set_block", "sbd.samplers", "sbd.cache", "sbd.sandbox", "sbd.modeling"} <= evaluation
    assert "sbd.training" not in evaluation
    assert code_of("paper_figures.table1") >= {"paper_figures.table1", "paper_figures.inputs"}


def test_the_code_of_a_stage_holds_all_that_python_loads_for_it() -> None:
    script = "import sys, sbd.steps.evaluate; print(*(name for name in sys.modules if name.startswith('sbd.')))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "sbd.evaluation.model" in loaded
    # The schema reads the names of the generators; a stage that runs one imports it itself.
    uncounted = {name for name in loaded if {name, name.rpartition(".")[0]} & {*UNCOUNTED, "sbd.problems"}}
    assert loaded - code_of("sbd.steps.evaluate") - uncounted == {"sbd.steps"}


def test_the_figures_of_the_reference_need_no_training(tmp_path: Path) -> None:
    folder = copy_project(tmp_path)
    shutil.copytree(ROOT / "results/reference", folder / "results/reference")
    assert planned(folder, "figures", experiment="tiny") == {"figures": 1}
