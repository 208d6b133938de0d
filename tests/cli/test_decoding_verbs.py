"""`generate`, `traces`, `speed` and `lossless` on a trained checkpoint."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from sbd.cli import main
from sbd.experiment_files import load_experiment
from tests.cli.helpers import sbd


def test_generate_prints_text_and_counts_and_writes_a_page(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    checkpoint = str(load_experiment("mini.yaml").run_folder("llama", "sbd") / "checkpoint")
    capfd.readouterr()
    options = ("--model", checkpoint, "--decoder", "eb", "--max-new-tokens", "9", "--trace", "page.html")
    assert sbd("generate", "Mia has 3 eggs.", *options) == 0
    shown = capfd.readouterr().out
    found = re.search(
        r"\[eb\] (\d+) tokens in (\d+) forward passes \((.*) tokens per forward, prefill apart: 1\)", shown
    )
    assert found, shown
    assert float(found[3]) == pytest.approx(int(found[1]) / int(found[2]), abs=0.006)
    page = Path("page.html").read_text()
    assert f"eb: {found[1]} tokens in {found[2]} passes" in page
    assert not re.search(r"(src|href)=[\"']?https?:", page)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("Mia", "--model", "nowhere", "--decoder", "eb"),
            "cannot open a model at nowhere: there is no such folder, and as a hub id: ",
        ),
        (("", "--model", "CHECKPOINT", "--decoder", "eb"), "the prompt is empty"),
        (("Mia", "--model", "nowhere", "--decoder", "nope"), "unknown decoder 'nope'; mini.yaml has ntp, eb"),
        (("Mia", "--model", "CHECKPOINT", "--decoder", "eb", "--temperature", "-1"), "temperature must be 0"),
        (("Mia", "--model", "CHECKPOINT", "--decoder", "eb", "--max-new-tokens", "600"), "512 positions of the model"),
        (("Mia", "--model", "CHECKPOINT", "--decoder", "eb", "--top-p", "2"), "top_p must be above 0"),
        (("Mia", "--model", "CHECKPOINT", "--decoder", "eb", "--execution", "graphs"), "need a model on a GPU"),
        (("Mia", "--model", "CHECKPOINT", "--decoder", "eb", "--stop", ""), "stop must hold strings"),
        (("Mia", "Tom", "--model", "CHECKPOINT", "--decoder", "eb", "--stream"), "--stream shows one text"),
        (
            ("Mia", "--model", "CHECKPOINT", "--decoder", "eb", "--samples", "2", "--trace", "a.html"),
            "--trace shows one",
        ),
    ],
)
def test_generate_refuses_in_one_line(refuses: Callable[..., str], arguments: tuple[str, ...], message: str) -> None:
    checkpoint = str(load_experiment("mini.yaml").run_folder("llama", "sbd") / "checkpoint")
    arguments = tuple(checkpoint if argument == "CHECKPOINT" else argument for argument in arguments)
    assert message in refuses("generate", *arguments)


def test_generate_streams_samples_and_stops(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    checkpoint = str(load_experiment("mini.yaml").run_folder("llama", "sbd") / "checkpoint")
    options = ("--model", checkpoint, "--decoder", "eb", "--max-new-tokens", "9")
    capfd.readouterr()
    assert sbd("generate", "Mia has 3 eggs.", *options) == 0
    plain = capfd.readouterr().out
    assert sbd("generate", "Mia has 3 eggs.", *options, "--stream") == 0
    assert capfd.readouterr().out == plain
    sampled = ("--temperature", "1", "--top-k", "50", "--top-p", "0.9", "--seed", "3", "--samples", "2")
    assert sbd("generate", "Mia has 3 eggs.", "Tom", *options, *sampled) == 0
    assert capfd.readouterr().out.count("[eb] ") == 4
    first = plain[0]
    assert sbd("generate", "Mia has 3 eggs.", *options, "--stop", first) == 0
    shown = capfd.readouterr().out
    assert "ended by stop" in shown
    assert shown.startswith(first)


def test_traces_lie_beside_the_models_that_they_show(here: Path) -> None:
    shared = {"extends": "mini.yaml", "scale": "more", "shares": "mini"}
    Path("more.yaml").write_text(
        yaml.safe_dump({**shared, "traces": {"model": "llama", "run": "sbd", "decoders": ["eb"]}})
    )
    assert main(["traces", "--experiment", "more.yaml"]) == 0
    assert Path("results/mini/traces/eb.html").is_file(), "where the rule of the workflow looks for it"


def test_traces_writes_a_page_for_each_decoder(here: Path, refuses: Callable[..., str]) -> None:
    assert "no key `traces`" in refuses("traces")
    raw = yaml.safe_load(Path("mini.yaml").read_text())
    raw["traces"] = {"model": "llama", "run": "sbd", "benchmark": "words", "problem": 1}
    Path("shown.yaml").write_text(yaml.safe_dump(raw))
    assert main(["traces", "--experiment", "shown.yaml"]) == 0
    problem = json.loads(Path("results/mini/data/words/test.jsonl").read_text().splitlines()[1])
    for name in ("ntp", "eb"):
        page = Path(f"results/mini/traces/{name}.html").read_text()
        assert html.escape(problem["prompt"]) in page
        assert f"decoder {name}" in page
    raw["traces"]["problem"] = 9
    Path("shown.yaml").write_text(yaml.safe_dump(raw))
    assert main(["traces", "--experiment", "shown.yaml"]) == 2


def test_speed_writes_a_row_for_each_contender(here: Path) -> None:
    options = ("--model", "llama", "--run", "sbd", "--decoder", "eb", "--batch-size", "1", "--problems", "2")
    assert sbd("speed", *options) == 0
    rows = Path("results/mini/speed/llama/sbd.csv").read_text().splitlines()
    assert rows[0].startswith("model,run,problems,decoder,batch,tokens,seconds,rounds,spread,seconds_decoding,")
    assert [row.split(",")[3] for row in rows[1:]] == ["autoregressive", "eb", "hf_generate", "hf_prompt_lookup"]


def test_speed_measures_any_checkpoint_on_any_prompts(here: Path, refuses: Callable[..., str]) -> None:
    checkpoint = str(load_experiment("mini.yaml").run_folder("llama", "sbd") / "checkpoint")
    Path("mine.jsonl").write_text('{"prompt": "Ann has 3 eggs.\\n", "solution": "3"}\n')
    options = ("--checkpoint", checkpoint, "--decoder", "eb", "--batch-size", "1")
    output = ("--output", "mine.csv", "--figure", "drawn")
    assert sbd("speed", *options, "--prompts", "mine.jsonl", *output) == 0
    rows = [line.split(",")[:4] for line in Path("mine.csv").read_text().splitlines()[1:]]
    assert rows[:2] == [[checkpoint, "checkpoint", "1", "autoregressive"], [checkpoint, "checkpoint", "1", "eb"]]
    assert {path.name for path in Path("drawn").iterdir()} >= {"decoding_speed.png", "decoding_speed.md"}
    said = Path("drawn/decoding_speed.md").read_text()
    assert checkpoint in said
    assert "cale mini" not in said  # it is of no scale
    assert "drawn/decoding_speed.md: File exists" in refuses("speed", *options, *output[:3], "drawn/decoding_speed.md")
    assert "give --output, and no --run" in refuses("speed", *options)
    assert "either --model" in refuses("speed", *options, "--model", "llama")
    assert "either --model" in refuses("speed", "--decoder", "eb")


def test_speed_executes_passes_as_asked(here: Path, refuses: Callable[..., str]) -> None:
    options = ("--model", "llama", "--run", "sbd", "--decoder", "eb", "--batch-size", "1", "--problems", "2")
    assert "need a model on a GPU" in refuses("speed", *options, "--execution", "graphs")


def test_speed_takes_what_the_experiment_says(here: Path, refuses: Callable[..., str]) -> None:
    assert "say what to measure with --run and --decoder" in refuses("speed", "--model", "llama")
    raw = yaml.safe_load(Path("mini.yaml").read_text())
    raw["speed"] = {"run": "sbd", "decoders": ["eb"], "batch_sizes": [2], "problems": 2, "repeats": 1, "clock": "cpu"}
    Path("timed.yaml").write_text(yaml.safe_dump(raw, sort_keys=False))
    timed = ("--experiment", "timed.yaml", "--model", "llama", "--threads", "1")
    assert main(["speed", *timed, "--in-step", "--repeats", "2", "--output", "here.csv"]) == 0
    lines = [line.split(",") for line in Path("here.csv").read_text().splitlines()]
    rows = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    assert all((row["in_step"], row["rounds"]) == ("True", "2") for row in rows)
    assert [(row["decoder"], row["batch"], row["clock"]) for row in rows] == [
        (name, "2", "cpu") for name in ("autoregressive", "eb", "hf_generate")
    ]
    assert main(["speed", *timed, "--decoder", "nope"]) == 2
    Path("timed.csv").mkdir()
    assert "timed.csv is a folder; name a file in it" in refuses("speed", *timed, "--output", "timed.csv")
    assert "cannot make the folder here.csv" in refuses("speed", *timed, "--output", "here.csv/timed.csv")


def test_lossless_compares_every_pair_of_batch_sizes(here: Path, refuses: Callable[..., str]) -> None:
    raw = yaml.safe_load(Path("mini.yaml").read_text())
    raw["decoders"]["self_speculative"] = {"kind": "self_speculative", "block_size": 4}
    words = raw["benchmarks"]["words"]
    raw["benchmarks"] = {"words": words, "again": {**words, "max_new_tokens": 3}}
    Path("spec.yaml").write_text(yaml.safe_dump(raw))
    options = ("--experiment", "spec.yaml", "--model", "llama", "--run", "sbd")
    asked = ["--batch-size", "1", "2", "--problems", "2", "--dtype", "bfloat16", "--output", "equal.csv"]
    assert main(["lossless", *options, *asked]) == 0
    lines = [line.split(",") for line in Path("equal.csv").read_text().splitlines()]
    rows = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    pairs = [("1", "1"), ("1", "2"), ("2", "1"), ("2", "2")]
    assert [(row["benchmark"], row["batch"], row["reference_batch"]) for row in rows] == [
        (benchmark, *pair) for benchmark in ("again", "words") for pair in pairs
    ]
    assert all(row["prompts"] == "2" and row["dtype"] == "bfloat16" for row in rows)
    assert {int(row["tokens"]) for row in rows if row["benchmark"] == "again"} == {6}
    assert main(["lossless", *options, "--batch-size", "1", "2", "--problems", "2", "--output", "equal.csv"]) == 0
    lines = [line.split(",") for line in Path("equal.csv").read_text().splitlines()]
    rows = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    assert all((row["equal_prompts"], row["first_difference"], row["dtype"]) == ("2", "", "float32") for row in rows)
    assert "not self-speculative" in refuses("lossless", "--model", "llama", "--run", "sbd", "--decoder", "eb")
