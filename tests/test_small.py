"""The small scale on a CPU: stand-ins of the public models (their architectures, tiny, with random weights) are
fine-tuned for a few steps on local GSM8K files and evaluated, through the verbs of experiments/small.yaml."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, PreTrainedTokenizerFast, Qwen3Config

from sbd.cli import main
from sbd.data import PackedRows
from sbd.errors import UserError
from sbd.experiment_files import load_experiment
from sbd.steps import train

ROOT = Path(__file__).parents[1]
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
ROWS = [
    {
        "question": f"Ann has {n} pens and finds {n + 1} more. How many?",
        "answer": f"{n}+{n + 1} = {2 * n + 1}\n#### {2 * n + 1}",
    }
    for n in range(30)
]


def public_model(folder: Path, name: str) -> None:
    """What its owner published: SmolLM2 begins and ends with one token and has spare ones; Qwen3 has no beginning."""
    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    bare.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    bare.train_from_iterator([row[key] for row in ROWS for key in row], trainer)
    own = {"eos_token": "<|endoftext|>"}
    own |= {"bos_token": "<|endoftext|>"} if name == "smollm2" else {"pad_token": "<|endoftext|>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bare, clean_up_tokenization_spaces=False, **own)
    if name == "smollm2":
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>", "<empty_output>"]})
    spare = 0 if name == "smollm2" else 7
    kind = LlamaConfig if name == "smollm2" else Qwen3Config
    extra: dict[str, Any] = {} if name == "smollm2" else {"head_dim": 8}
    ids: dict[str, Any] = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(kind(vocab_size=len(tokenizer) + spare, **ids, **SIZES, **extra))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which every verb of a short version of the small experiment was run."""
    folder = tmp_path_factory.mktemp("small")
    public_model(folder / "smollm2", "smollm2")
    public_model(folder / "qwen3", "qwen3")
    (folder / "data").mkdir()
    for split in ("train", "test"):
        (folder / f"data/gsm8k_{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    few = {"steps": 2, "batch_rows": 2, "micro_rows": 1, "warmup_steps": 1, "gpus": 0}
    paths = {"smollm2-135m": "smollm2", "qwen3-0.6b": "qwen3"}
    (folder / "experiments").mkdir()
    changed = {
        "extends": str(ROOT / "experiments/small.yaml"),
        "tokenizer": {"path": "smollm2"},
        "data": {"sequence_length": 256, "sources": {"gsm8k": {"validation": 4}}},
        "models": {
            name: {"path": path, "shape": None, **({"tokenizer": {"path": path}} if path == "qwen3" else {})}
            for name, path in paths.items()
        },
        "runs": {"ntp": few, "sbd": few},
        "benchmarks": {"gsm8k": {"limit": 3, "max_new_tokens": 8, "task": str(ROOT / "experiments/tasks/gsm8k.yaml")}},
    }
    (folder / "small.yaml").write_text(yaml.safe_dump(changed))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        experiment = load_experiment("small.yaml")

        def verb(*arguments: str) -> None:
            assert main([arguments[0], "--experiment", "small.yaml", *arguments[1:]]) == 0

        verb("problems", "--source", "gsm8k")
        verb("prepare")
        verb("prepare", "--model", "qwen3-0.6b")
        for model in experiment.models:
            for run in experiment.runs:
                verb("train", "--model", model, "--run", run)
            for run, decoder in (("ntp", "ntp"), ("sbd", "gamma_0.35"), ("sbd", "self_speculative")):
                verb("evaluate", "--model", model, "--run", run, "--decoder", decoder, "--benchmark", "gsm8k")
    return folder


@pytest.mark.parametrize("model", ["smollm2-135m", "qwen3-0.6b"])
def test_a_few_steps_and_an_evaluation_on_a_cpu(finished: Path, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished)
    experiment = load_experiment("small.yaml")
    for run in ("ntp", "sbd"):
        summary = json.loads((experiment.run_folder(model, run) / "checkpoint/training.json").read_text())
        assert summary["steps"] == 2
        assert summary["validation"]["ntp_loss"] > 0
    for run, decoder in (("ntp", "ntp"), ("sbd", "gamma_0.35"), ("sbd", "self_speculative")):
        record = json.loads((experiment.record_folder(model, run, decoder, "gsm8k") / "record.json").read_text())
        assert record["n"] == 3
        assert record["tokens"] > 0


def test_documents_begin_and_end_as_each_model_knows_it(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(finished)
    experiment = load_experiment("small.yaml")
    smol, qwen = (PackedRows(experiment.data_folder("train", name)) for name in experiment.models)
    document = smol[0][0].tokens.tolist()
    assert smol.tokenizer.convert_ids_to_tokens([document[0], document[-1]]) == ["<|endoftext|>", "<|im_end|>"]
    assert document.count(document[0]) == document.count(document[-1]) == 1
    assert smol.tokenizer.mask_token == "<empty_output>"
    document = qwen[0][0].tokens.tolist()
    assert qwen.tokenizer.bos_token_id is None
    assert qwen.tokenizer.convert_ids_to_tokens([document[-1]]) == ["<|endoftext|>"]
    assert qwen.tokenizer.mask_token == "<|mask|>"


def test_the_new_mask_token_takes_a_row_that_the_embedding_had(finished: Path) -> None:
    checkpoint = finished / "results/small/models/qwen3-0.6b/sbd/checkpoint"
    model = AutoModelForCausalLM.from_pretrained(checkpoint)
    before = AutoModelForCausalLM.from_pretrained(finished / "qwen3")
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    assert (
        model.config.mask_token_id == tokenizer.mask_token_id == len(AutoTokenizer.from_pretrained(finished / "qwen3"))
    )
    assert model.get_input_embeddings().weight.shape == before.get_input_embeddings().weight.shape


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (
            {"mask_token": "<none>"},
            "tokenizer.mask_token: '<none>' is no token of smollm2; name a reserved one, or add it",
        ),
        (
            {"mask_token": "<|mask|>", "new_tokens": ["<|mask|>"]},
            "outside the embedding of 303 rows; resize it or choose",
        ),
        (
            {"path": "nowhere/nothing"},
            "'nowhere/nothing' is no folder and could not be read from the hub at revision",
        ),
        ({"eos_token": "<|stop|>"}, "tokenizer.eos_token: '<|stop|>' is no token of smollm2"),
        ({"chat_template": "own"}, "the tokenizer smollm2 has no chat template; name a Jinja file"),
        ({"chat_template": "none.jinja"}, "chat_template: none.jinja cannot be read"),
    ],
)
def test_mistakes_about_the_tokenizer_are_one_line(
    finished: Path, tokenizer: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.chdir(finished)
    changed = {"extends": "small.yaml", "scale": "other", "tokenizer": tokenizer}
    Path("other.yaml").write_text(yaml.safe_dump(changed))
    steps = (("problems", "--source", "gsm8k"), ("prepare",), ("train", "--model", "smollm2-135m", "--run", "ntp"))
    failed = next(step[0] for step in steps if main([step[0], "--experiment", "other.yaml", *step[1:]]))
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith(f"sbd {failed}: error: ")
    assert message in last


def test_a_gated_model_is_named_before_the_data_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    class GatedRepoError(Exception):
        """As the hub's client calls it."""

    def refuse(name: str, file: str, revision: str) -> str:
        assert (name, revision) == ("meta-llama/Llama-3.1-8B", "main")
        raise GatedRepoError("401 Client Error. Cannot access gated repo.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    models = {"smollm2-135m": {"path": "meta-llama/Llama-3.1-8B"}}
    gated = {"extends": str(ROOT / "experiments/small.yaml"), "scale": "gated", "models": models}
    Path("gated.yaml").write_text(yaml.safe_dump(gated))
    capfd.readouterr()
    assert main(["prepare", "--experiment", "gated.yaml"]) == 2
    [line] = [line for line in capfd.readouterr().err.splitlines() if "error" in line]
    assert "'meta-llama/Llama-3.1-8B' is no folder and could not be read from the hub at revision main (Gated" in line
    assert line.endswith("it is gated: accept its terms on its page and give a token (HF_TOKEN or `hf auth login`)")
    assert not Path("results/gated").exists()


def test_pins_are_those_of_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """The hub moves on: the model that is trained is of the commit that its tokenizer came from."""
    heads = iter(f"{number:040x}" for number in range(10))

    def download(name: str, file: str, revision: str) -> str:
        return f"cache/snapshots/{next(heads)}/{file}"

    def load(path: str, revision: str = "", **_: Any) -> Any:
        loaded.append((path, revision))
        raise OSError("stop here")

    loaded: list[tuple[str, str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", load)
    other = {"path": "c/d", "revision": "v1"}
    pinned = {
        "extends": str(ROOT / "experiments/small.yaml"),
        "scale": "pinned",
        "tokenizer": {"path": "a/b"},
        "models": {"smollm2-135m": {"path": "a/b"}, "qwen3-0.6b": {**other, "tokenizer": other}},
    }
    Path("pinned.yaml").write_text(yaml.safe_dump(pinned))
    assert main(["prepare", "--experiment", "pinned.yaml"]) == 2
    experiment = load_experiment("pinned.yaml")
    for name in experiment.models:
        with pytest.raises(UserError, match="stop here"):
            train._new_model(experiment, name, None)  # type: ignore[arg-type]
    assert loaded == [("a/b", f"{0:040x}"), ("a/b", f"{0:040x}"), ("c/d", f"{1:040x}")]
    capfd.readouterr()
    assert main(["pin", "--experiment", "pinned.yaml"]) == 0
    assert capfd.readouterr().out.splitlines()[1:-1] == [
        f"  tokenizer: {0:040x}",
        f"  models.smollm2-135m: {0:040x}",
        f"  models.qwen3-0.6b: {1:040x}",
        f"  models.qwen3-0.6b.tokenizer: {1:040x}",
    ]
