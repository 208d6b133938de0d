"""The schema: every mistake is named with its place and what is allowed."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from sbd.cli import main
from sbd.config import SHAPE_KEYS, Experiment, SpeedConfig, fingerprint
from sbd.errors import UserError
from sbd.experiment_files import load_experiment

EXPERIMENTS = Path(__file__).parents[1] / "experiments"


def overlaid(folder: Path, **keys: Any) -> Path:
    """An experiment file that lays ``keys`` over the tiny experiment."""
    path = folder / "changed.yaml"
    path.write_text(yaml.safe_dump({"extends": str(EXPERIMENTS / "tiny.yaml"), **keys}), encoding="utf-8")
    return path


def asking_for(folder: Path, evaluations: list[dict[str, Any]], **keys: Any) -> Path:
    """The tiny experiment with other evaluations: at least those of the SBD run with `gamma_0`, which is drawn."""
    others = dict.fromkeys(load_experiment(EXPERIMENTS / "tiny.yaml").pareto.curves)
    shown = {
        "table1": {"rows": [{"run": "sbd", "decoder": "gamma_0"}]},
        "pareto": {"curves": {**others, "SBD": [{"run": "sbd", "decoder": "gamma_0"}]}, "references": []},
        "figures": None,
        "traces": None,
    }
    return overlaid(folder, evaluations=evaluations, **shown, **keys)


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_experiment_of_the_repository_is_valid(path: Path) -> None:
    experiment = load_experiment(path)
    assert experiment.scale == path.stem, "two experiments of one scale would write over each other's results"
    assert experiment.jobs()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"modles": {}}, "modles: unknown key; allowed are benchmarks, data, decoders"),
        ({"runs": {"sbd": {"step": 5}}}, "runs.sbd.step: unknown key; allowed are activation_checkpointing"),
        ({"runs": {"sbd": {"parent": "base"}}}, "runs.sbd.parent: unknown name 'base'; known are ntp, pretrain, sbd"),
        ({"runs": {"pretrain": {"parent": "sbd"}}}, "the parents form a circle"),
        ({"runs": {"sbd": {"steps": 0}}}, "runs.sbd.steps: Input should be greater than 0 (got 0)"),
        ({"runs": {"sbd": {"objective": "mlm"}}}, "runs.sbd.objective: Input should be 'ntp', 'sbd' or 'sdlm'"),
        ({"decoders": {"gamma_0": {"block_size": 0}}}, "decoders.gamma_0.block_size"),
        ({"decoders": {"gamma_0": {"sampler": {"gamma": -1}}}}, "decoders.gamma_0.sampler.gamma"),
        ({"decoders": {"gamma_0": {"sampler": {"rule": "top_k"}}}}, "the rule top_k takes count and no other number"),
        ({"decoders": {"x": {"kind": "set_block"}}}, "the decoder kind set_block needs block_size and sampler"),
        ({"benchmarks": {"tiny_gsm": {"source": "nope"}}}, "unknown name 'nope'; known are tiny_code, tiny_gsm"),
        ({"evaluations": [{"runs": ["nope"], "decoders": ["ntp"]}]}, "evaluations.0.runs: unknown name 'nope'"),
        ({"evaluations": [{"runs": ["sbd"], "decoders": ["nope"]}]}, "evaluations.0.decoders: unknown name 'nope'"),
        ({"table1": {"rows": [{"run": "ntp", "decoder": "gamma_0"}]}}, "is not among the evaluations; add it there"),
        ({"data": {"sources": {"tiny_gsm": {"train": "a.jsonl"}}}}, "train must be a count for such a source"),
        ({"tokenizer": {"path": "gpt2"}}, "not both and not none"),
        ({"models": {"llama-tiny": {"architecture": "gpt2"}}}, "models.llama-tiny.architecture"),
        ({"scale": "../elsewhere"}, "scale"),
        ({"runs": {"x": {"like": "sdb"}}}, "runs.x.like: unknown name 'sdb'; known are ntp, pretrain, sbd, x"),
        ({"decoders": {"x": {"like": "y"}, "y": {"like": "x"}}}, "the entries form a circle through 'x'"),
        ({"runs": {"x": {"repeats": "sbd"}}}, "runs.x: a repetition of 'sbd' needs another seed or data_seed"),
        ({"runs": {"x": {"repeats": "sbd", "seed": 2, "steps": 9}}}, "may differ in seeds only, not in steps"),
        ({"runs": {"ntp": {"models": ["nope"]}}}, "runs.ntp.models: unknown name 'nope'; known are llama-tiny, qwen3"),
        ({"runs": {"pretrain": {"models": ["llama-tiny"]}}}, "its parent, is not trained for qwen3-tiny"),
        (
            {
                "runs": {"sbd": {"models": ["llama-tiny"]}},
                "evaluations": [{"runs": ["sbd"], "decoders": ["ntp"], "models": ["qwen3-tiny"]}],
            },
            "evaluations.0.models: run 'sbd' is not trained for qwen3-tiny",
        ),
        (
            {"figures": {"figure1": {"benchmark": "gsm"}}},
            "figures.figure1.benchmark: unknown name 'gsm'; known are",
        ),
        ({"figures": {"figure4": {"runs": ["nope"]}}}, "figures.figure4.runs: unknown name 'nope'; known are ntp, pre"),
        ({"figures": {"figure6": {}}}, "figures.figure6: unknown key; allowed are ablations, claims, figure1"),
        (
            {"figures": {"claims": {"gamma_low": {"run": "pretrain", "decoder": "ntp"}}}},
            "figures.claims: run 'pretrain' with decoder 'ntp' is not among the evaluations; add it there",
        ),
        ({"speed": {"run": "sbd", "decoders": ["nope"]}}, "speed.decoders: unknown name 'nope'"),
        ({"speed": {"decoders": ["ntp"]}}, "speed.run: this key is missing"),
        (
            {"speed": {"run": "sbd", "decoders": ["ntp"], "problems": 12}},
            "speed.problems: 12 problems do not fill batches of 8",
        ),
        ({"speed": {"run": "nope", "decoders": ["ntp"]}}, "speed.run: unknown name 'nope'"),
        ({"speed": {"run": "sbd", "decoders": ["ntp"], "benchmark": "nope"}}, "speed.benchmark: unknown name 'nope'"),
        ({"traces": {"model": "gpt", "run": "sbd"}}, "traces.models: unknown name 'gpt'"),
        ({"traces": {"problem": -1}}, "traces.problem: Input should be greater than or equal to 0 (got -1)"),
        ({"decoders": {"gamma_0": {"sampler": {"form": "new"}}}}, "decoders.gamma_0.sampler.form"),
        ({"tokenizer": {"mask_token": "x"}}, "mask_token, eos_token and new_tokens are of a loaded tokenizer (path)"),
        ({"tokenizer": {"chat_template": "own"}}, "a trained tokenizer has no chat template of its own"),
        ({"benchmarks": {"tiny_gsm": {"prompt": "chat"}}}, "the tokenizer of 'llama-tiny' has no chat_template"),
        ({"benchmarks": {"tiny_gsm": {"thinking": True}}}, "only a chat template can ask for it; set prompt: chat"),
        ({"data": {"sources": {"x": {"format": "benchmark"}}}}, "test must be a path for such a source"),
        ({"data": {"sources": {"x": {"format": "conversations"}}}}, "train must be a path for such a source"),
        ({"data": {"sources": {"tiny_gsm": {"weight": 1}}}}, "weight and rows are of streamed formats"),
        ({"data": {"sources": {"tiny_gsm": {"expected": 1}}}}, "dates and expected are of the format benchmark"),
        ({"data": {"sources": {"tiny_gsm": {"validation": -2}}}}, "validation must be a count of 0 or more, not -2"),
        ({"data": {"sources": {"tiny_gsm": {"test": 0}}}}, "benchmarks.tiny_gsm.source: 'tiny_gsm' has no test split"),
        ({"data": {"sources": {"tiny_gsm": {"train": 0}, "tiny_code": {"train": 0}}}}, "none has anything to train on"),
        (
            {"data": {"sources": {"train": {"generator": "tiny_gsm", "train": 1, "test": 1}}}},
            "sources.train: the folder of that",
        ),
        ({"runs": {"sbd": {"learning_rate": math.inf}}}, "runs.sbd.learning_rate: Input should be a finite number"),
        ({"runs": {"sbd": {"betas": [0.9, 1]}}}, "runs.sbd.betas.1: Input should be less than 1"),
        ({"runs": {"sbd": {"block_size": [16, 2]}}}, "runs.sbd.block_size: the low end of [16, 2] is above the high"),
        ({"runs": {"sbd": {"ntp_weight": 0, "block_weight": 0}}}, "runs.sbd: every loss has weight 0"),
        ({"runs": {"ntp": {"ntp_weight": 0}}}, "runs.ntp: every loss has weight 0"),
        ({"decoders": {"gamma_0": {"block_size": [16, 2]}}}, "decoders.gamma_0: the low end of [16, 2] is above"),
        ({"decoders": {"self_speculative": {"block_size": [2, 4]}}}, "takes one block_size, not [2, 4]"),
        ({"decoders": {"self_speculative": {"branches": 17}}}, "branches 17 is above block_size 16"),
        ({"models": {"llama-tiny": {"shape": {"hiden_size": 64}}}}, "shape: unknown key 'hiden_size'; allowed are"),
        ({"models": {"llama-tiny": {"shape": {"hidden_size": 0}}}}, "hidden_size must be a whole number of 1 or more"),
        (
            {"models": {"llama-tiny": {"shape": {"num_key_value_heads": 3}}}},
            "num_attention_heads 4 is not a multiple of",
        ),
        ({"runs": {"sbd": {"steps": True}}}, "runs.sbd.steps: true and false are no numbers (got True)"),
        ({"runs": {"sbd": {"micro_rows": True}}}, "runs.sbd.micro_rows: true and false are no numbers"),
        ({"runs": {"sbd": {"learning_rate": True}}}, "runs.sbd.learning_rate: true and false are no numbers"),
        ({"runs": {"sbd": {"betas": [False, 0.9]}}}, "runs.sbd.betas: true and false are no numbers"),
        ({"data": {"sources": {"tiny_gsm": {"validation": True}}}}, "tiny_gsm.validation: true and false are no"),
        ({"decoders": {"gamma_0": {"sampler": {"gamma": True}}}}, "gamma_0.sampler.gamma: true and false are no"),
        ({"figures": {"matp_loss": {"runs": ["sbd"], "draws": True}}}, "figures.matp_loss.draws: true and false"),
        ({"models": {"llama-tiny": {"shape": {"rms_norm_eps": True}}}}, "shape: rms_norm_eps must be a number"),
        ({"models": {"x": {"path": "gpt2", "shape": {"vocab_size": True}}}}, "shape: vocab_size must be a whole"),
        (
            {"data": {"sources": {"tiny_gsm": {"generator": "tiny_gms"}}}},
            "data.sources.tiny_gsm.generator: unknown generator; known are tiny_code, tiny_gsm (got 'tiny_gms')",
        ),
        (
            {"benchmarks": {"tiny_gsm": {"max_new_tokens": 512}}},
            "benchmarks.tiny_gsm.max_new_tokens: 512 leaves no room for a prompt in the 512 positions of 'llama-tiny'",
        ),
        ({"seed": 2**63}, "seed: Input should be less than"),
        ({"runs": {"x": {"like": ["sbd"]}}}, "runs.x.like: unknown name ['sbd']"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        load_experiment(overlaid(tmp_path, **keys))
    assert message in str(error.value)
    assert str(error.value).startswith(str(tmp_path / "changed.yaml"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "not YAML"),
        ("- 1", "is a mapping of keys"),
        ("extends: changed.yaml", "leads back to the file itself"),
        ("extends: [a.yaml]", r"extends: give the name of one file, not \['a.yaml'\]"),
        ("runs:\n  a: {steps: 1}\n  a: {steps: 2}", "the key 'a' a second time in .*, line 3, column 3"),
        ("runs: {1: {steps: 1}}", "a key that is no text; put it in quotes in .*, line 1, column 8"),
        ("on: 1", "a key that is no text"),
        ("extends: .", r"cannot be read as an experiment file \(Is a directory\)"),
    ],
)
def test_a_file_that_is_no_experiment(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "changed.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        load_experiment(tmp_path / "changed.yaml")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "changed.yaml").write_bytes(b"scale: \xff\n")
    with pytest.raises(UserError, match=r"changed.yaml cannot be read as an experiment file \(it is not UTF-8\)"):
        load_experiment(tmp_path / "changed.yaml")


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_shape_names_what_every_architecture_knows(name: str) -> None:
    from sbd.modeling import ARCHITECTURES

    assert ARCHITECTURES[name][0]().to_dict().keys() >= SHAPE_KEYS


def test_check_looks_for_task_files_and_needs_no_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(EXPERIMENTS.parent)
    path = overlaid(tmp_path, benchmarks={"tiny_code": {"task": "experiments/tasks/none.yaml"}})
    assert main(["check", "--experiment", str(path)]) == 2
    assert (
        f"{path}: benchmarks.tiny_code.task: no such task file: experiments/tasks/none.yaml" in capsys.readouterr().err
    )
    code = (
        "import sys; from sbd.cli import main; main(['check', '--experiment', 'tiny']); print('torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[0] == "experiments/tiny.yaml is valid"
    assert shown.splitlines()[-1] == "False"


def test_a_missing_file_names_its_neighbours() -> None:
    with pytest.raises(UserError, match=r"no such experiment file: .*none\.yaml; experiment files there: .*tiny\.yaml"):
        load_experiment(EXPERIMENTS / "none.yaml")


def test_jobs_are_every_model_with_every_arm_on_every_benchmark_once(tmp_path: Path) -> None:
    twice = [{"runs": ["ntp", "sbd"], "decoders": ["ntp"]}, {"runs": ["sbd"], "decoders": ["ntp", "gamma_0"]}]
    experiment = load_experiment(asking_for(tmp_path, twice))
    arms = [("ntp", "ntp"), ("sbd", "ntp"), ("sbd", "gamma_0")]
    expected = {
        (model, *arm, benchmark)
        for model in ("llama-tiny", "qwen3-tiny")
        for arm in arms
        for benchmark in ("tiny_gsm", "tiny_code")
    }
    jobs = experiment.jobs()
    assert set(jobs) == expected
    assert len(jobs) == len(expected)


def test_groups_make_every_evaluation_once_and_an_entry_behind_others_changes_none_of_them(tmp_path: Path) -> None:
    experiment = load_experiment(EXPERIMENTS / "paper-tiny.yaml")
    groups = experiment.groups()
    jobs = [job for group in groups for job in group.jobs()]
    assert sorted(jobs) == sorted(experiment.jobs())
    asked = [(set(entry.runs), set(entry.decoders)) for entry in experiment.evaluations]
    for group in groups:
        assert any(group.run in runs and set(group.decoders) <= decoders for runs, decoders in asked), group
    shared = load_experiment(EXPERIMENTS / "tiny.yaml").groups()
    assert groups[: len(shared)] == shared
    alone = load_experiment(overlaid(tmp_path, evaluate_together=False))
    assert alone.groups() == []
    assert alone.jobs() == load_experiment(EXPERIMENTS / "tiny.yaml").jobs()


def test_a_group_is_every_decoder_on_every_benchmark_of_what_is_still_to_do(tmp_path: Path) -> None:
    evaluations = [
        {"runs": ["sbd"], "decoders": ["gamma_0"], "benchmarks": ["tiny_code"], "models": ["qwen3-tiny"]},
        {"runs": ["sbd"], "decoders": ["ntp", "gamma_0", "ntp"], "models": ["qwen3-tiny"]},
        {"runs": ["sbd"], "decoders": ["ntp"], "models": ["qwen3-tiny"]},
    ]
    benchmarks = {"apart": {"task": "a.yaml", "source": "tiny_code", "max_new_tokens": 8, "scored": "apart"}}
    experiment = load_experiment(asking_for(tmp_path, evaluations, benchmarks=benchmarks, models={"llama-tiny": None}))
    found = [tuple(group)[2:] for group in experiment.groups()]
    assert found == [
        (("gamma_0",), ("tiny_code",)),
        (("ntp", "gamma_0"), ("tiny_gsm",)),
        (("ntp",), ("tiny_code",)),
    ]


def test_null_leaves_a_key_of_the_extended_file_out(tmp_path: Path) -> None:
    before = load_experiment(EXPERIMENTS / "tiny.yaml")
    after = load_experiment(overlaid(tmp_path, decoders={"spare": None}, pareto={"curves": {"block 16": None}}))
    assert after.decoders == before.decoders
    assert after.pareto.curves == {name: arms for name, arms in before.pareto.curves.items() if name != "block 16"}
    with pytest.raises(UserError, match="tokenizer: this key is missing"):
        load_experiment(overlaid(tmp_path, tokenizer=None))


def test_unlimited_is_an_infinite_gamma() -> None:
    sampler = load_experiment(EXPERIMENTS / "tiny.yaml").decoders["unlimited"].sampler
    assert sampler is not None
    assert sampler.gamma == math.inf


def test_a_fingerprint_follows_values_and_nothing_else() -> None:
    experiment = load_experiment(EXPERIMENTS / "tiny.yaml")
    again = Experiment.model_validate(experiment.model_dump())
    assert fingerprint(experiment) == fingerprint(again)
    ntp, sbd = experiment.runs["ntp"], experiment.runs["sbd"]
    assert fingerprint(ntp) != fingerprint(sbd)
    assert fingerprint(ntp) != fingerprint(ntp.model_copy(update={"steps": ntp.steps + 1}))


def test_answers_may_take_all_positions_but_one(tmp_path: Path) -> None:
    path = overlaid(tmp_path, benchmarks={"tiny_gsm": {"max_new_tokens": 511}})
    assert load_experiment(path).benchmarks["tiny_gsm"].max_new_tokens == 511


def test_a_folder_is_timed_without_a_run() -> None:
    experiment = load_experiment(EXPERIMENTS / "tiny.yaml")
    assert experiment.benchmark_of(SpeedConfig(decoders=["ntp"])) == experiment.benchmarks["tiny_gsm"]


def test_like_takes_over_all_but_the_label(tmp_path: Path) -> None:
    runs = {
        "short": {"like": "sbd", "steps": 7},
        "shorter": {"like": "short", "warmup_steps": 2, "label": "S"},
        "again": {"repeats": "short", "data_seed": 5},
    }
    experiment = load_experiment(overlaid(tmp_path, runs=runs))
    plain = experiment.runs["sbd"].model_dump()
    short = {**plain, "steps": 7, "label": None}
    assert experiment.runs["short"].model_dump() == short
    assert experiment.runs["shorter"].model_dump() == {**short, "warmup_steps": 2, "label": "S"}
    assert experiment.runs["again"].model_dump() == {**short, "data_seed": 5, "repeats": "short"}
    assert experiment.seeds_of("short") == [("short",), ("again",)]


def test_a_list_can_be_added_to(tmp_path: Path) -> None:
    plain = load_experiment(EXPERIMENTS / "tiny.yaml").evaluations
    more = {"evaluations+": [{"runs": ["pretrain"], "decoders": ["ntp"]}]}
    found = load_experiment(overlaid(tmp_path, **more)).evaluations
    assert found[:-1] == plain
    assert found[-1].runs == ["pretrain"]


def test_a_run_of_some_models_is_trained_and_evaluated_for_those_only(tmp_path: Path) -> None:
    runs = {"ntp": {"models": ["llama-tiny"]}}
    experiment = load_experiment(overlaid(tmp_path, runs=runs))
    assert ("llama-tiny", "ntp") in experiment.trainings()
    assert ("qwen3-tiny", "ntp") not in experiment.trainings()
    assert {model for model, run, _, _ in experiment.jobs() if run == "ntp"} == {"llama-tiny"}
    assert {model for model, run, _, _ in experiment.jobs() if run == "sbd"} == {"llama-tiny", "qwen3-tiny"}


def test_a_shared_experiment_has_one_place_for_work_and_two_for_figures(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(yaml.safe_dump({"extends": str(EXPERIMENTS / "tiny.yaml"), "scale": "one"}))
    more = {"extends": "one.yaml", "scale": "two", "shares": "one", "runs": {"x": {"like": "sbd", "steps": 3}}}
    path = tmp_path / "two.yaml"

    def load(**changes: Any) -> Experiment:
        path.write_text(yaml.safe_dump({**more, **changes}))
        return load_experiment(path)

    experiment = load()
    assert experiment.folder == Path("results/two")
    assert experiment.run_folder("m", "r") == Path("results/one/models/m/r")
    assert experiment.source_file("s", "test") == Path("results/one/data/s/test.jsonl")
    load(runs={"sbd": {"label": "another name"}})
    for change, message in (
        ({"runs": {"sbd": {"steps": 3}}}, "runs.sbd differs from the one in .*one.yaml, whose results it shares"),
        ({"decoders": {"gamma_0.1": {"block_size": 4}}}, "decoders.gamma_0.1 differs"),
        ({"data": {"sequence_length": 200}}, "data differs"),
        ({"shares": "two"}, "'two' is its own scale"),
        ({"shares": "three"}, "no such experiment file: .*three.yaml"),
    ):
        with pytest.raises(UserError, match=message):
            load(**change)


def test_the_lengths_of_the_paper_have_its_ratio() -> None:
    experiment = load_experiment(EXPERIMENTS / "paper-tiny.yaml")
    assert experiment.figures.figure5
    lengths = experiment.figures.figure5.lengths
    steps = [experiment.runs[length.run].steps for length in lengths]
    assert [step / steps[0] for step in steps] == [1, 2, 4]
    for length, step in zip(lengths, steps, strict=True):
        assert length.label == str(step)
        assert experiment.runs[length.baseline].steps == step
        assert experiment.runs[length.baseline].objective == "ntp"


def test_trainings_are_what_the_evaluations_need(tmp_path: Path) -> None:
    experiment = load_experiment(EXPERIMENTS / "paper.yaml")
    trainings = experiment.trainings()
    assert ("llama-3.1-8b", "sbd") in trainings
    assert ("llama-3.2-3b", "sbd_no_ntp") in trainings
    assert ("llama-3.1-8b", "sbd_no_ntp") not in trainings
    tiny = load_experiment(EXPERIMENTS / "tiny.yaml")
    assert tiny.trainings() == [(model, run) for model in tiny.models for run in tiny.runs]


def test_a_decoder_may_have_another_sampler_on_a_benchmark() -> None:
    experiment = load_experiment(EXPERIMENTS / "paper.yaml")
    there, elsewhere = experiment.decoder("gamma_low", "gsm8k"), experiment.decoder("gamma_low", "math500")
    assert there.sampler is not None
    assert elsewhere.sampler is not None
    assert (there.sampler.gamma, elsewhere.sampler.gamma) == (0.35, 0.1)
    assert there == experiment.decoder("gamma_0.35", "gsm8k").model_copy(update={"label": there.label})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("runs", {"sbd": {"gpus": 3}}, r"batch_rows \d+ is not a multiple of gpus 3"),
        ("runs", {"sbd": {"attention": "flash_attention_2"}}, "causal rows only"),
        (
            "decoders",
            {"gamma_0.1": {"per_benchmark": {"gsm9k": {"gamma": 1}}}},
            "unknown name 'gsm9k'; known are tiny_code",
        ),
        ("decoders", {"ntp": {"per_benchmark": {"tiny_gsm": {"gamma": 1}}}}, "there is none"),
        ("hardware", {"mfu": 40}, "hardware.mfu: Input should be less than or equal to 1"),
    ],
)
def test_wrong_settings_of_scale_are_named(tmp_path: Path, key: str, value: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_experiment(overlaid(tmp_path, **{key: value}))
