"""Task files and data of the benchmarks: what loads, what is refused, and scores that are made apart."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sbd.cli import main
from sbd.config import Experiment
from sbd.errors import UserError
from sbd.evaluation.task_files import load_task
from sbd.experiment_files import load_experiment
from sbd.steps import problems
from tests.benchmarks.helpers import (
    CASES,
    GSM8K,
    HUMANEVAL,
    LCB,
    LIKELIHOOD,
    ROOT,
    TASKS,
    answer,
    thinks,
)
from tests.evaluation_helpers import jsonl


def test_every_task_of_the_paper_loads_and_runs_nothing_unsafe(tmp_path: Path) -> None:
    files = {
        **{task: rows for task, (rows, _, _) in CASES.items()},
        **{t: [row] for t, (row, _, _) in LIKELIHOOD.items()},
    }
    assert {path.stem for path in TASKS.glob("*.yaml")} == set(files)
    for task, rows in files.items():
        loaded: Any = load_task(TASKS / f"{task}.yaml", jsonl(tmp_path / "t.jsonl", rows), thinks(task))
        assert not getattr(loaded, "UNSAFE_CODE", False)
        assert loaded.DATASET_PATH is None
        text = (TASKS / f"{task}.yaml").read_text()
        assert text.startswith("#"), "each says what it takes and what it swaps"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "include: lm-eval:gsm8k/none.yaml\n",
            "there is no task file .*none.yaml; is it of another version of lm-eval",
        ),
        ("task: [1", "not YAML"),
        ("- 1\n", "is a mapping of keys"),
        ("task: a\n", "must define one task, and name its score"),
        (
            "task: a\ndoc_to_text: !function sbd.nothing.here\nmetadata: {score: x}\n",
            "sbd.nothing.here .* cannot be imported",
        ),
        (
            "task: a\nmetadata: {score: x, thinking: true}\n",
            "reads answers behind a thought, but the benchmark has thinking: f",
        ),
    ],
)
def test_wrong_task_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "t.yaml").write_text(text)
    with pytest.raises(UserError, match=message):
        load_task(tmp_path / "t.yaml", jsonl(tmp_path / "t.jsonl", GSM8K))


def test_a_benchmark_without_a_column(tmp_path: Path) -> None:
    data = jsonl(tmp_path / "t.jsonl", [{"question": "x"}])
    with pytest.raises(UserError, match=r"t.jsonl has no column answer; it has question"):
        load_task(TASKS / "gsm8k.yaml", data)
    data = jsonl(tmp_path / "t.jsonl", [GSM8K[0], {"question": "x", "answer": None}])
    with pytest.raises(UserError, match=r"t.jsonl, line 2: answer missing"):
        load_task(TASKS / "gsm8k.yaml", data)


def test_a_chat_needs_a_template(tokenizer: Any, tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(UserError, match="the checkpoint's tokenizer has no chat template"):
        answer("gsm8k", GSM8K, ["x"] * 3, tmp_path, tokenizer, monkeypatch)


def experiment(**data: Any) -> Experiment:
    """The paper's data and benchmarks with the least of the rest."""
    raw = yaml.safe_load((ROOT / "experiments/paper/data.yaml").read_text())
    both = yaml.safe_load((ROOT / "experiments/paper/likelihood.yaml").read_text())
    raw["data"]["sources"] |= both["data"]["sources"] | data
    tokenizer = {"path": "x", "mask_token": "m", "chat_template": "experiments/templates/chat.jinja"}
    run = {"objective": "sbd", "steps": 1, "batch_rows": 64, "micro_rows": 1, "learning_rate": 3e-4, "warmup_steps": 1}
    return Experiment.model_validate(
        {
            "scale": "paper",
            "tokenizer": tokenizer,
            "data": raw["data"],
            "benchmarks": raw["benchmarks"] | both["benchmarks"],
            "models": {"llama": {"path": "a"}, "qwen": {"path": "b", "tokenizer": {**tokenizer, "path": "b"}}},
            "runs": {"sbd": run},
            "decoders": {"ntp": {"kind": "autoregressive"}},
            "evaluations": [{"runs": ["sbd"], "decoders": ["ntp"]}],
            "table1": {"rows": [{"run": "sbd", "decoder": "ntp"}]},
            "pareto": {"curves": {}},
        }
    )


def test_data_and_benchmarks_of_the_paper_are_valid() -> None:
    found = experiment()
    assert found.data.streamed
    assert [name for name, source in found.data.sources.items() if source.streamed] == [
        "open_math_reasoning", "open_code_reasoning", "tulu"
    ]  # fmt: skip
    assert set(found.data.unpinned()) == set(found.data.sources) - {"livecodebench_test"}, "no commit is invented"
    assert sum(source.weight or 0 for source in found.data.sources.values()) == pytest.approx(1)
    assert len(found.tested_sources()) == 12
    assert found.data_folder("train", "qwen") != found.data_folder("train", "llama") == found.data_folder("train")
    assert all((ROOT / benchmark.task).is_file() for benchmark in found.benchmarks.values())


def test_the_window_of_livecodebench(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "livecodebench").mkdir()
    days = ["2024-07-31", "2024-08-01", "2025-01-15", "2025-05-31", "2025-06-01"]
    rows = [{**LCB[0], "question_id": str(n), "contest_date": f"{day}T00:00:00"} for n, day in enumerate(days)]
    jsonl(tmp_path / "livecodebench/test.jsonl", rows[:3])
    jsonl(tmp_path / "livecodebench/test6.jsonl", rows[3:])
    source = yaml.safe_load((ROOT / "experiments/paper/data.yaml").read_text())["data"]["sources"]["livecodebench_test"]
    with pytest.raises(UserError, match=r"holds 3 problems from 2024-08-01 to 2025-05-31, not the 454 of source"):
        problems.run(experiment(), "livecodebench_test", tmp_path)
    problems.run(experiment(livecodebench_test={**source, "expected": 3}), "livecodebench_test", tmp_path)
    kept = (tmp_path / "results/paper/data/livecodebench_test/test.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in kept] == ["1", "2", "3"]


# ------------------------------------------------------------------------------------------------ scores apart


def test_a_score_is_made_apart_and_again_without_a_model(
    tokenizer: Any, model: Any, tmp_path: Path, monkeypatch: Any, capfd: Any
) -> None:
    """The verbs ``evaluate`` and ``score``: generations in one folder, the record in another, as often as one likes."""
    from tests.cli.helpers import EXPERIMENT

    monkeypatch.chdir(tmp_path)
    task = {"task": str(TASKS / "humaneval_text.yaml"), "source": "he", "max_new_tokens": 4, "scored": "apart"}
    at_once = {**task, "task": str(TASKS / "gsm8k_text.yaml"), "source": "gsm", "scored": "at_once"}
    sources = {name: {"format": "benchmark", "test": f"{name}.jsonl"} for name in ("he", "gsm")}
    raw = {
        **EXPERIMENT,
        "benchmarks": {"he": task, "gsm": at_once},
        "data": {"sequence_length": 400, "sources": {**EXPERIMENT["data"]["sources"], **sources}},
        "evaluations": [{"runs": ["sbd"], "decoders": ["ntp", "eb"], "benchmarks": ["he"]}],
    }
    Path("mini.yaml").write_text(yaml.safe_dump(raw, sort_keys=False))
    (tmp_path / "data").mkdir()
    jsonl(tmp_path / "data/he.jsonl", HUMANEVAL)
    jsonl(tmp_path / "data/gsm.jsonl", GSM8K)
    found = load_experiment("mini.yaml")
    checkpoint = found.run_folder("llama", "sbd") / "checkpoint"
    model.save_pretrained(checkpoint)
    tokenizer.save_pretrained(checkpoint)

    def verb(name: str, *more: str) -> int:
        return main([name, "--experiment", "mini.yaml", *more])

    job = ("--model", "llama", "--run", "sbd", "--decoder", "eb", "--benchmark")
    assert verb("problems", "--source", "he") == 0
    assert verb("score", *job, "he") == 2
    assert "no finished generations in" in capfd.readouterr().err
    assert verb("evaluate", *job, "he") == 0
    generated = found.generated_folder("llama", "sbd", "eb", "he")
    records = found.record_folder("llama", "sbd", "eb", "he")
    assert sorted(path.name for path in generated.iterdir()) == ["generated.json", "generations.jsonl"]
    assert not records.exists()
    assert verb("score", *job, "he") == 0
    made = json.loads((records / "record.json").read_text())
    assert (made["n"], made["score"], made["truncated"]) == (3, 0.0, 3)
    assert made["metric"] == "pass_at_1,create_test"
    assert made["generation_settings"]["num_fewshot"] == 0
    lines = [json.loads(line) for line in (generated / "generations.jsonl").read_text().splitlines()]
    assert {line["correct"] for line in lines} == {None}
    for line, row in zip(lines, HUMANEVAL, strict=True):
        line["text"] = row["canonical_solution"]
    for name, contents in (("generated.json", ("{}", "[]", '{"key": 1}', "{")), ("generations.jsonl", ("{}\n", "3\n"))):
        whole = (generated / name).read_text()
        for content in contents:
            (generated / name).write_text(content)
            capfd.readouterr()
            assert verb("score", *job, "he") == 2
            [said] = capfd.readouterr().err.splitlines()
            assert re.search(
                rf"{name}.* (is damaged|missing).*run `python -m sbd evaluate .*--benchmark he` again", said
            )
        (generated / name).write_text(whole)
    jsonl(generated / "generations.jsonl", lines)
    checkpoint.rename(checkpoint.with_name("away"))
    assert verb("score", *job, "he") == 0
    assert json.loads((records / "record.json").read_text())["score"] == 100.0
    assert verb("score", *job, "gsm") == 2
    assert "is scored by `evaluate`" in capfd.readouterr().err.splitlines()[-1]
