"""The command line end to end: every mistake of a user is one clear line on the error stream and exit status 2."""

from __future__ import annotations

import csv
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from sbd.cli import _parser, main
from sbd.experiment_files import load_experiment
from sbd.steps import evaluate

ROOT = Path(__file__).parents[1]
SHAPE = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
}
RUN = {"steps": 2, "batch_rows": 2, "micro_rows": 2, "learning_rate": 0.003, "warmup_steps": 1}
EXPERIMENT: dict[str, Any] = {
    "scale": "mini",
    "tokenizer": {"vocab_size": 400},
    "data": {
        "sequence_length": 400,
        "sources": {"words": {"generator": "tiny_gsm", "train": 12, "validation": 2, "test": 2}},
    },
    "models": {"llama": {"architecture": "llama", "shape": SHAPE}},
    "runs": {
        "base": {"objective": "ntp", **RUN},
        "sbd": {"objective": "sbd", "parent": "base", **RUN},
    },
    "decoders": {
        "ntp": {"kind": "autoregressive"},
        "eb": {"kind": "set_block", "block_size": 4, "sampler": {"gamma": 0.1}},
    },
    "benchmarks": {
        "words": {"task": str(ROOT / "experiments/tasks/tiny_gsm.yaml"), "source": "words", "max_new_tokens": 8},
        "long": {"task": str(ROOT / "experiments/tasks/tiny_gsm.yaml"), "source": "words", "max_new_tokens": 600},
        "no_task": {"task": "experiments/tasks/none.yaml", "source": "words", "max_new_tokens": 8},
    },
    "evaluations": [{"runs": ["sbd"], "decoders": ["ntp", "eb"], "benchmarks": ["words"]}],
    "table1": {"rows": [{"run": "sbd", "decoder": "eb"}]},
    "pareto": {"curves": {"SBD": [{"run": "sbd", "decoder": "eb"}]}},
}
TRAIN = ("train", "--model", "llama", "--run")
EVALUATE = ("evaluate", "--model", "llama", "--run", "sbd", "--decoder", "eb", "--benchmark")


def write(**changes: Any) -> None:
    Path("mini.yaml").write_text(yaml.safe_dump({**EXPERIMENT, **changes}, sort_keys=False), encoding="utf-8")


def sbd(*arguments: str) -> int:
    return main([arguments[0], "--experiment", "mini.yaml", *arguments[1:]])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the steps up to the training of ``sbd`` were run."""
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        logging.disable_progress_bar()  # as the command line does where it is the first to import transformers
        write()
        steps = (("problems", "--source", "words"), ("prepare",), (*TRAIN, "base"), (*TRAIN, "sbd"))
        assert [sbd(*step) for step in steps] == [0, 0, 0, 0]
    return folder


@pytest.fixture
def here(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the working directory."""
    subprocess.run(["cp", "-r", f"{trained}/.", str(tmp_path)], check=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refuses(here: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a verb that must fail with one line; returns the line."""

    def run(*arguments: str) -> str:
        capfd.readouterr()
        assert sbd(*arguments) == 2
        lines = capfd.readouterr().err.splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith(f"sbd {arguments[0]}: error: ")
        return lines[0]

    return run


def problems_file(split: str) -> Path:
    return Path(f"results/mini/data/words/{split}.jsonl")


def test_the_steps_leave_what_the_next_one_reads(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    experiment = load_experiment("mini.yaml")
    for decoder in ("ntp", "eb"):
        assert sbd("evaluate", "--model", "llama", "--run", "sbd", "--decoder", decoder, "--benchmark", "words") == 0
        folder = experiment.record_folder("llama", "sbd", decoder, "words")
        assert json.loads((folder / "record.json").read_text())["n"] == 2
        assert len((folder / "generations.jsonl").read_text().splitlines()) == 2
    assert sbd("collect") == 0
    losses = Path("results/mini/losses.csv").read_text().splitlines()
    assert [row.split(",")[:2] for row in losses[1:]] == [["llama", "base"], ["llama", "sbd"]]
    rows = Path("results/mini/records.csv").read_text().splitlines()
    assert [row.split(",")[:4] for row in rows[1:]] == [["llama", "sbd", d, "words"] for d in ("ntp", "eb")]
    model = AutoModelForCausalLM.from_pretrained(experiment.run_folder("llama", "sbd") / "checkpoint")
    assert model.config.sbd_objective == "sbd"


def test_tune_tries_validation_problems_and_names_the_largest_gamma(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    problems_file("test").unlink()  # test problems are not tuned on
    arguments = ("tune", "--model", "llama", "--run", "sbd", "--benchmark", "words", "--gamma", "0.5", "0.1")
    arguments = (*arguments, "--block-size", "4", "--margin", "100", "--confidence", "0.9")
    capfd.readouterr()
    assert sbd(*arguments) == 0
    said = capfd.readouterr().out.splitlines()
    assert "words, 2 validation problems: llama sbd decoded one by one" in said[0]
    assert said[1] == "allowed: 100 points less, with confidence 0.9; the first gamma refused ends the search"
    assert said[2].split() == ["block", "gamma", "score", "difference", "at", "least", "tokens/pass"]
    with open("results/mini/tune/llama/sbd/words.csv", encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(row["block_size"], row["gamma"], row["accepted"]) for row in rows] == [
        ("4", "0.1", "True"),
        ("4", "0.5", "True"),
    ]
    for row, line in zip(rows, said[3:5], strict=True):
        folder = Path(f"results/mini/tune/llama/sbd/words/gamma_{row['gamma']}_k4")
        record = json.loads((folder / "record.json").read_text())
        assert float(row["score"]) == record["score"]
        assert float(row["tokens_per_forward"]) == pytest.approx(record["tokens_per_forward"], rel=1e-5)
        shown = line.split()
        assert shown[:2] == [row["block_size"], row["gamma"]]
        assert shown[5:] == [f"{record['tokens_per_forward']:.2f}", "within"]
    speed = float(rows[1]["tokens_per_forward"])
    assert said[5] == f"use gamma 0.5 with blocks of 4: {speed:.2f} tokens per pass"
    assert said[6] == "results/mini/tune/llama/sbd/words.csv"
    # Two problems cannot show that 2 points at most are lost.
    assert sbd(*arguments[:-3], "2") == 0
    assert "none can be used: decode one by one" in capfd.readouterr().out


def test_tune_takes_a_checkpoint_and_problems_of_ones_own(
    here: Path, refuses: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    checkpoint = shutil.copytree("results/mini/models/llama/sbd/checkpoint", "mine")
    problems_file("validation").rename("own.jsonl")
    arguments = ("tune", "--benchmark", "words", "--gamma", "0.1", "--block-size", "4", "--margin", "100")
    own = ("--checkpoint", str(checkpoint), "--output", "tuned")
    assert "own.jsonl" in refuses(*arguments, *own, "--problems", "not_own.jsonl").replace("not_own", "own")
    capfd.readouterr()
    assert sbd(*arguments, *own, "--problems", "own.jsonl") == 0
    said = capfd.readouterr().out.splitlines()
    assert f"words, 2 validation problems: {checkpoint} checkpoint decoded one by one" in said[0]
    assert said[-1] == "tuned/words.csv"
    assert len(Path("tuned/words.csv").read_text().splitlines()) == 2
    assert "either --model and --run, of the experiment, or --checkpoint" in refuses(*arguments)
    assert "--model needs --run" in refuses(*arguments, "--model", "llama")
    assert "give --output, and no run" in refuses(*arguments, "--checkpoint", str(checkpoint))


def test_tune_refuses_what_generates_nothing_and_what_has_no_validation_split(
    refuses: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    task = {"task": str(ROOT / "experiments/tasks/tiny_choice.yaml"), "source": "words", "max_new_tokens": 1}
    write(benchmarks={**EXPERIMENT["benchmarks"], "choice": task})
    arguments = ("tune", "--model", "llama", "--run", "sbd", "--benchmark")
    assert sbd(*arguments, "choice") == 2  # bars of progress come first within one process
    said = capfd.readouterr().err.splitlines()[-1]
    assert said == ("sbd tune: error: 'choice' is a likelihood task and generates nothing; choose another benchmark")
    source = {"generator": "tiny_gsm", "train": 12, "test": 2}
    write(data={**EXPERIMENT["data"], "sources": {"words": source}})
    assert "source 'words' has no validation split" in refuses(*arguments, "words")


def test_check_counts_what_would_run(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert sbd("check") == 0
    assert "2 trainings and 2 evaluations; results go to results/mini/" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("problems", "--source", "nope"), "unknown source 'nope'; mini.yaml has words"),
        (("train", "--model", "nope", "--run", "sbd"), "unknown model 'nope'; mini.yaml has llama"),
        ((*TRAIN, "nope"), "unknown run 'nope'; mini.yaml has base, sbd"),
        ((*EVALUATE[:-2], "nope", "--benchmark", "words"), "unknown decoder 'nope'; mini.yaml has ntp, eb"),
        ((*EVALUATE, "nope"), "unknown benchmark 'nope'; mini.yaml has words, long, no_task"),
        ((*EVALUATE, "no_task"), "no such task file: experiments/tasks/none.yaml"),
        (("collect",), "no record at results/mini/records/llama/sbd/ntp/words/record.json"),
    ],
)
def test_wrong_names(refuses: Callable[..., str], arguments: tuple[str, ...], message: str) -> None:
    assert message in refuses(*arguments)


def test_more_tokens_than_the_model_has_positions_in_a_process_of_its_own(here: Path) -> None:
    command = [sys.executable, "-m", "sbd", EVALUATE[0], "--experiment", "mini.yaml", *EVALUATE[1:], "long"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 2
    assert re.fullmatch(r"sbd evaluate: error: prompt \d .* 600 new .* 512 positions of the model\. .*\n", done.stderr)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sed": 1}, "mini.yaml: sed: unknown key; allowed are benchmarks"),
        (
            {"decoders": {**EXPERIMENT["decoders"], "eb": {**EXPERIMENT["decoders"]["eb"], "block_size": 0}}},
            "block_size",
        ),
        ({"runs": {**EXPERIMENT["runs"], "base": {"objective": "ntp", **RUN, "steps": -1}}}, "runs.base.steps: "),
        ({"evaluations": [{"runs": ["nope"], "decoders": ["eb"]}]}, "unknown name 'nope'; known are base, sbd"),
    ],
)
def test_a_wrong_experiment(refuses: Callable[..., str], changes: dict[str, Any], message: str) -> None:
    write(**changes)
    assert message in refuses("check")
    assert message in refuses(*EVALUATE, "words")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_an_evaluation_that_is_asked_to_stop_ends_with_its_status(
    here: Path, monkeypatch, capfd: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    def run(*_: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(60)

    monkeypatch.setattr(evaluate, "run", run)
    (here / "experiment.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    assert main([*EVALUATE, "words", "--experiment", "experiment.yaml"]) == 75
    assert capfd.readouterr().err.splitlines()[-1] == (
        f"sbd evaluate: llama sbd eb words: stopped by {number.name}; generations of whole batches are kept; "
        "the same command goes on from there"
    )
    assert signal.getsignal(number) == signal.SIG_DFL


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
    assert not _parser().parse_args(line).adopt
    assert _parser().parse_args([*line, "--adopt"]).adopt
    for value, adopts in (("1", True), ("True", True), ("0", False), ("false", False), ("no", False), ("", False)):
        monkeypatch.setenv("SBD_ADOPT", value)
        assert _parser().parse_args(line).adopt == adopts, value


def test_a_missing_experiment(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--experiment", "none.yaml"]) == 2
    assert capfd.readouterr().err.splitlines() == [
        "sbd check: error: no such experiment file: none.yaml; experiment files there: none"
    ]


def test_missing_data(refuses: Callable[..., str]) -> None:
    problems_file("train").unlink()
    assert "no such data file: results/mini/data/words/train.jsonl; check the path" in refuses("prepare")


def test_truncated_data(refuses: Callable[..., str]) -> None:
    text = problems_file("train").read_text()
    problems_file("train").write_text(text[: len(text) - 30])
    before = Path("results/mini/data/train/manifest.json").read_bytes()
    assert "train.jsonl, line 12: not JSON (" in refuses("prepare")
    assert Path("results/mini/data/train/manifest.json").read_bytes() == before
    problems_file("test").write_text('{"id": "1", "prom')
    assert "test.jsonl, line 1: not JSON" in refuses(*EVALUATE, "words")


@pytest.mark.parametrize("split", ["train", "test"])
def test_an_empty_prompt(refuses: Callable[..., str], split: str) -> None:
    lines = problems_file(split).read_text().splitlines()
    lines[1] = json.dumps({**json.loads(lines[1]), "prompt": ""})
    problems_file(split).write_text("\n".join(lines) + "\n")
    arguments = ("prepare",) if split == "train" else (*EVALUATE, "words")
    assert f"{split}.jsonl, line 2: prompt missing or empty; each problem needs a text there" in refuses(*arguments)


def test_a_checkpoint_without_mask_token(refuses: Callable[..., str]) -> None:
    checkpoint = load_experiment("mini.yaml").run_folder("llama", "sbd") / "checkpoint"
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    tokenizer.mask_token = None
    tokenizer.save_pretrained(checkpoint)
    assert "the tokenizer has no mask token; train or prepare the model" in refuses(*EVALUATE, "words")
    assert (
        not load_experiment("mini.yaml").record_folder("llama", "sbd", "eb", "words").joinpath("record.json").exists()
    )


def test_steps_out_of_order(refuses: Callable[..., str]) -> None:
    experiment = load_experiment("mini.yaml")
    parent = experiment.run_folder("llama", "base") / "checkpoint"
    parent.rename(parent.with_name("away"))
    checkpoint = experiment.run_folder("llama", "sbd") / "checkpoint"
    checkpoint.rename(checkpoint.with_name("away"))
    assert f"the parent run has no finished checkpoint at {parent}; train it first" in refuses(*TRAIN, "sbd")
    assert "has no checkpoint at" in refuses(*EVALUATE, "words")
    Path("results/mini/data/train/manifest.json").unlink()
    message = refuses(*TRAIN, "base")
    assert "is no prepared data (no manifest.json); run `python -m sbd prepare --experiment mini.yaml` first" in message


def test_another_tokenizer_than_the_parent(refuses: Callable[..., str]) -> None:
    write(tokenizer={"vocab_size": 380})
    assert sbd("prepare") == 0
    (load_experiment("mini.yaml").run_folder("llama", "sbd") / "checkpoint/training.json").unlink()
    assert "was trained with another tokenizer than the prepared data" in refuses(*TRAIN, "sbd")


def test_a_finished_run_is_not_begun_anew(refuses: Callable[..., str]) -> None:
    folder = load_experiment("mini.yaml").run_folder("llama", "sbd")
    before = (folder / "metrics.jsonl").read_bytes()
    assert "llama sbd is trained already; to train it again, delete results/mini/models/" in refuses(*TRAIN, "sbd")
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_two_processes_do_not_train_one_run(refuses: Callable[..., str]) -> None:
    folder = load_experiment("mini.yaml").run_folder("llama", "sbd")
    (folder / "checkpoint/training.json").unlink()
    hold = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print(flush=True); input()"
    )
    command = [sys.executable, "-c", hold, str(folder / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert f"another process is at work in {folder}" in refuses(*TRAIN, "sbd")
        other.kill()
    assert sbd(*TRAIN, "sbd") == 0


def test_a_loss_that_is_no_number(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wild = {"objective": "sbd", **RUN, "learning_rate": 1e30, "max_grad_norm": 1e30}
    write(runs={**EXPERIMENT["runs"], "wild": wild})
    assert sbd(*TRAIN, "wild") == 2
    last = capfd.readouterr().err.splitlines()[-1]
    assert re.match(r"sbd train: error: the loss or gradient is not finite at step \d+ .*lower learning_rate", last)
    assert not (load_experiment("mini.yaml").run_folder("llama", "wild") / "checkpoint").exists()


GSM8K = {"format": "gsm8k", "train": "train.jsonl", "validation": 1, "test": "test.jsonl"}
ROW = {"question": "Two and three?", "answer": "2+3 = <<2+3=5>>5 apples.\n1000+5 = <<1000+5=1005>>1005\n#### 1,005"}


def gsm8k(source: dict[str, Any] = GSM8K, train: str | None = None) -> None:
    write(data={"sequence_length": 400, "sources": {"words": source}})
    Path("files").mkdir(exist_ok=True)
    lines = "".join(f"{json.dumps({**ROW, 'question': f'Question {number}?'})}\n" for number in range(3))
    Path("files/train.jsonl").write_text(lines if train is None else train)
    Path("files/test.jsonl").write_text(lines)


def test_local_gsm8k_files(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gsm8k()
    assert sbd("problems", "--source", "words", "--data", "files") == 0
    assert "2 train, 1 validation, 3 test" in capfd.readouterr().out
    lines = [json.loads(line) for line in problems_file("validation").read_text().splitlines()]
    assert [(line["prompt"], line["solution"], line["answer"]) for line in lines] == [
        ("Question 2?\n", "2+3 = 5 apples.\n1000+5 = 1005\n#### 1,005", "1005")
    ]


@pytest.mark.parametrize(
    ("source", "train", "message"),
    [
        ({**GSM8K, "train": "none.jsonl"}, None, "no such data file: files/none.jsonl (train of source 'words')"),
        (GSM8K, '{"question": "Two', "files/train.jsonl, line 1: not JSON (Unterminated string"),
        (GSM8K, '{"question": "Two?"}\n', "no answer"),
        (GSM8K, '{"question": "Two?", "answer": "2"}\n', "no line '#### number'"),
        (
            GSM8K,
            json.dumps({**ROW, "question": "Two\ud800?"}),
            "files/train.jsonl, row 1: \\ud800 is half of a character",
        ),
        (GSM8K, "", "files/train.jsonl holds no problem"),
        ({**GSM8K, "validation": 3}, None, "validation takes 3 of 3 training problems; nothing is left to train on"),
        ({**GSM8K, "train": "nobody/nothing"}, None, "'nobody/nothing' is no file and could not be read from the hub"),
        ({**GSM8K, "format": "problems"}, None, "files/train.jsonl, line 1: prompt missing or empty"),
    ],
)
def test_local_files_that_are_no_source(
    refuses: Callable[..., str], source: dict[str, Any], train: str | None, message: str
) -> None:
    gsm8k(source, train)
    before = problems_file("train").read_bytes()
    assert message in refuses("problems", "--source", "words", "--data", "files")
    assert problems_file("train").read_bytes() == before


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
        "import sys; from sbd.cli import _parser, main; "
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


def test_traces_lie_beside_the_models_that_they_show(here: Path) -> None:
    shared = {"extends": "mini.yaml", "scale": "more", "shares": "mini"}
    Path("more.yaml").write_text(
        yaml.safe_dump({**shared, "traces": {"model": "llama", "run": "sbd", "decoders": ["eb"]}})
    )
    assert main(["traces", "--experiment", "more.yaml"]) == 0
    assert Path("results/mini/traces/eb.html").is_file(), "where the rule of the workflow looks for it"


def test_speed_writes_a_row_for_each_contender(here: Path) -> None:
    options = ("--model", "llama", "--run", "sbd", "--decoder", "eb", "--batch-size", "1", "--problems", "2")
    assert sbd("speed", *options) == 0
    rows = Path("results/mini/speed/llama/sbd.csv").read_text().splitlines()
    assert rows[0].startswith("model,run,problems,decoder,batch,tokens,seconds,seconds_decoding,tokens_per_second")
    assert [row.split(",")[3] for row in rows[1:]] == ["autoregressive", "eb", "hf_generate", "hf_prompt_lookup"]


def test_speed_measures_any_checkpoint_on_any_prompts(here: Path, refuses: Callable[..., str]) -> None:
    checkpoint = str(load_experiment("mini.yaml").run_folder("llama", "sbd") / "checkpoint")
    Path("mine.jsonl").write_text('{"prompt": "Ann has 3 eggs.\\n", "solution": "3"}\n')
    options = ("--checkpoint", checkpoint, "--decoder", "eb", "--batch-size", "1")
    assert sbd("speed", *options, "--prompts", "mine.jsonl", "--output", "mine.csv") == 0
    rows = [line.split(",")[:4] for line in Path("mine.csv").read_text().splitlines()[1:]]
    assert rows[:2] == [[checkpoint, "", "1", "autoregressive"], [checkpoint, "", "1", "eb"]]
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
    assert main(["speed", *timed, "--output", "here.csv"]) == 0
    lines = [line.split(",") for line in Path("here.csv").read_text().splitlines()]
    rows = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
    assert [(row["decoder"], row["batch"], row["clock"]) for row in rows] == [
        (name, "2", "cpu") for name in ("autoregressive", "eb", "hf_generate")
    ]
    assert main(["speed", *timed, "--decoder", "nope"]) == 2


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


def test_a_run_that_asks_for_gpus_is_refused_where_there_are_too_few(tmp_path: Path, monkeypatch, capsys) -> None:
    path = tmp_path / "gpus.yaml"
    parent = Path(__file__).parents[1] / "experiments" / "smoke.yaml"
    path.write_text(f"extends: {parent}\nruns: {{pretrain: {{gpus: 2}}, sbd: {{gpus: 2}}}}\n")
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


def test_names_that_the_command_line_knows_without_torch_are_those_of_the_library() -> None:
    from sbd import cli, modeling
    from sbd.decoding import fixed

    assert cli._EXECUTIONS == fixed.EXECUTIONS
    assert tuple(modeling.DTYPES) == cli._DTYPES
