"""The plan against numbers worked out by hand and against what torch holds; what cannot fit is refused."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from transformers import LlamaForCausalLM

from sbd.cli import main
from sbd.config import HardwareConfig
from sbd.errors import UserError
from sbd.experiment_files import load_experiment
from sbd.planning import (
    GIB,
    USABLE,
    evaluation_job,
    host_memory_mb,
    jobs,
    micro_rows,
    refuse_what_cannot_fit,
    shape_of,
    training_job,
    training_memory,
)
from sbd.roofline import H100, LLAMA, QWEN, Precision, Roofline, Shape
from sbd.workload import parameters, training_operations
from tests.conftest import ODD_LLAMA

ROOT = Path(__file__).parents[1]
PAPER = load_experiment(ROOT / "experiments/paper.yaml")


def changed(tmp_path: Path, **runs: dict) -> Path:
    path = tmp_path / "changed.yaml"
    parent = os.path.relpath(ROOT / "experiments/paper.yaml", tmp_path)
    path.write_text(yaml.safe_dump({"extends": parent, "runs": runs}))
    return path


def test_parameters_are_those_of_the_published_models() -> None:
    assert parameters(LLAMA) == pytest.approx(8.03e9, rel=1e-3)
    assert parameters(QWEN) == pytest.approx(8.19e9, rel=1e-3)


def test_parameters_are_those_that_transformers_makes() -> None:
    config = ODD_LLAMA
    model = LlamaForCausalLM(config)
    norms = (2 * 3 + 1) * 64
    assert parameters(Shape.of("x", config.to_dict(), 500)) == model.num_parameters() - norms


def test_operations_of_a_step_by_hand() -> None:
    shape = Shape("x", layers=2, hidden=8, ffn=16, ffn_matrices=3, heads=2, head_dim=4, kv_heads=1, vocabulary=10)
    layer = 8 * 8 + 8 * 4 * 2 + 8 * 8 + 3 * 8 * 16
    forward = 2 * (2 * layer * 5 + 10 * 8 * 3) + 4 * 2 * 2 * 4 * 7
    assert training_operations(shape, tokens=5, pairs=7, head_rows=3) == 3 * forward


def test_memory_of_split_training_by_hand() -> None:
    run = PAPER.runs["sbd"]
    memory = training_memory(PAPER, "llama-3.1-8b", run, 8, 1)
    assert memory is not None
    count = parameters(LLAMA)
    at_work = 2 * (2 * 128256 * 4096 + 2 * (4096 * (2 * 4096 + 2 * 1024 + 3 * 14336)))
    assert memory.weights == 4 * count / 8 + at_work
    assert memory.optimiser == count
    assert memory.gradients == 4 * count / 8 + at_work
    tokens = 2 * 32768
    assert memory.activations == 32 * tokens * 2 * 4096 + 2 * tokens * 2 * (10 * 4096 + 4 * 14336)
    assert memory.logits == 4096 * 128256 * 12 + 2 * tokens * 2 * 4096
    assert memory.total < USABLE * 80 * GIB


def test_auto_takes_the_most_rows_that_fit() -> None:
    assert micro_rows(PAPER, "llama-3.1-8b", "sbd") == 1
    large = HardwareConfig(gpu="B200", memory_gib=192)
    rows = micro_rows(PAPER, "llama-3.1-8b", "sbd", large)
    run, room = PAPER.runs["sbd"], USABLE * 192 * GIB
    fits = [n for n in (1, 2, 4, 8) if (m := training_memory(PAPER, "llama-3.1-8b", run, 8, n)) and m.total <= room]
    assert rows == max(fits) > 1


def test_flash_attention_takes_one_row_at_a_time(tmp_path: Path) -> None:
    large = HardwareConfig(gpu="B200")
    assert micro_rows(PAPER, "llama-3.1-8b", "ntp", large) > 1
    flash = load_experiment(changed(tmp_path, ntp={"attention": "flash_attention_2"}))
    assert micro_rows(flash, "llama-3.1-8b", "ntp", large) == 1
    for wrong in ({"micro_rows": 2}, {"objective": "sbd"}):
        with pytest.raises(UserError, match="flash_attention_2 knows causal rows only"):
            load_experiment(changed(tmp_path, ntp={"attention": "flash_attention_2", **wrong}))


def test_other_numbers_of_gpus_have_rows_of_their_own(tmp_path: Path) -> None:
    """Sixty-four GPUs hold less of the weights each, and one takes a whole batch."""
    small = {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4, "num_attention_heads": 8}
    path = changed(tmp_path, sbd={"models": ["llama-3.1-8b"]})
    raw = yaml.safe_load(path.read_text())
    raw["models"] = {"llama-3.1-8b": {"shape": {**small, "num_key_value_heads": 8}}}
    path.write_text(yaml.safe_dump(raw))
    experiment = load_experiment(path)
    for gpus in (1, 8, 64):
        job = training_job(experiment, "llama-3.1-8b", "sbd", experiment.hardware, gpus)
        assert job is not None
        fits = [
            rows
            for rows in range(1, 64 // gpus + 1)
            if (64 // gpus) % rows == 0
            and (memory := training_memory(experiment, "llama-3.1-8b", experiment.runs["sbd"], gpus, rows))
            and memory.total <= USABLE * 80 * GIB
        ]
        assert job.micro_rows == max(fits)
        assert job.micro_rows * job.accumulation * gpus == 64
    assert micro_rows(experiment, "llama-3.1-8b", "sbd", gpus=1) > 8


def test_the_memory_of_a_gpu_is_that_of_its_kind(tmp_path: Path, monkeypatch, capsys) -> None:
    assert HardwareConfig().memory_gib == PAPER.hardware.memory_gib == 80
    assert HardwareConfig(gpu="H200").memory_gib == 139
    assert HardwareConfig(gpu="H200", memory_gib=70).memory_gib == 70
    monkeypatch.chdir(tmp_path)
    path = str(ROOT / "experiments/paper.yaml")
    assert main(["plan", "--experiment", path, "--gpu", "H200"]) == 0
    assert capsys.readouterr().out.startswith("H200 with 139 GiB")
    assert main(["plan", "--experiment", path, "--gpu", "H200", "--memory-gib", "120"]) == 0
    assert capsys.readouterr().out.startswith("H200 with 120 GiB")
    assert main(["plan", "--experiment", path, "--mfu", "0.3"]) == 0
    assert capsys.readouterr().out.startswith("H100 with 80 GiB, MFU 30%")


def test_what_is_not_planned_is_named_with_the_reason(tmp_path: Path, monkeypatch, capsys) -> None:
    path = changed(tmp_path, ntp={"gpus": 0})
    raw = yaml.safe_load(path.read_text())
    raw["models"] = {"qwen3-8b": {"shape": None}}
    path.write_text(yaml.safe_dump(raw))
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "--experiment", str(path)]) == 0
    said = capsys.readouterr().out
    for line in (
        "llama-3.1-8b/ntp: the run asks for no GPU",
        "qwen3-8b/ntp: the run asks for no GPU",
        "qwen3-8b/sbd: the model's `shape` does not state hidden_size,",
    ):
        assert f"\n  {line}" in said


def test_the_small_scale_is_planned_with_the_sizes_of_its_models() -> None:
    """Published: 134,515,008 and 596,049,920 parameters; the plan leaves out the norms."""
    small = load_experiment(ROOT / "experiments/small.yaml")
    refuse_what_cannot_fit(small)
    assert len(list(jobs(small, small.hardware))) == len(small.trainings()) + len(small.jobs())
    for name, published in (("smollm2-135m", 134_515_008), ("qwen3-0.6b", 596_049_920)):
        shape = shape_of(small, name)
        assert shape is not None
        assert parameters(shape, tied=True) == pytest.approx(published, rel=1e-3)


def test_reading_the_prompts_is_planned_too(tmp_path: Path) -> None:
    """MMLU: 14,042 problems with four answers, each a text of a thousand tokens; two operations a weight and token."""
    job = evaluation_job(PAPER, ("llama-3.2-3b", "sbd_34k", "ntp", "mmlu"), PAPER.hardware)
    assert job is not None
    count = parameters(Shape.of("x", PAPER.models["llama-3.2-3b"].shape, 0))
    operations = 14042 * 4 * 1024 * 2 * count
    assert job.hours == pytest.approx(operations / (0.4 * 989.5e12) / 3600, rel=0.15)
    assert job.hours > operations / (0.4 * 989.5e12) / 3600


def test_the_time_follows_from_operations_and_mfu() -> None:
    job = training_job(PAPER, "llama-3.1-8b", "sbd", PAPER.hardware, 8)
    assert job is not None
    assert job.micro_rows * job.accumulation * job.gpus == PAPER.runs["sbd"].batch_rows
    tokens = 2 * 64 * 32768
    operations = training_operations(LLAMA, tokens, tokens * 4096, 1.5 * 64 * 32768)
    assert job.hours == pytest.approx(34000 * operations / (0.4 * 989.5e12 * 8) / 3600)
    assert job.tokens_per_second * job.hours * 3600 == pytest.approx(34000 * 64 * 32768)
    twice = training_job(PAPER, "llama-3.1-8b", "sbd", PAPER.hardware, 16)
    assert twice is not None
    assert twice.hours == pytest.approx(job.hours / 2)


def test_an_evaluation_in_blocks_is_planned_faster_and_its_cache_counted() -> None:
    plain = evaluation_job(PAPER, ("llama-3.1-8b", "sbd", "ntp", "math500"), PAPER.hardware)
    block = evaluation_job(PAPER, ("llama-3.1-8b", "sbd", "gamma_low", "math500"), PAPER.hardware)
    assert plain is not None
    assert block is not None
    assert plain.memory.cache == 8 * (1024 + 30720) * 32 * 2 * 8 * 128 * 2
    assert 2 < plain.hours / block.hours <= 3


def test_the_hours_of_an_evaluation_by_hand() -> None:
    """AIME25, one token after the other: thirty problems in batches of eight are four batches, each as long as its
    longest answer. Every pass reads the weights and the cache once, at bandwidth."""
    job = evaluation_job(PAPER, ("llama-3.1-8b", "sbd", "ntp", "aime25"), PAPER.hardware)
    assert job is not None
    answer = 0.8 * 30720
    weights = 2 * (parameters(LLAMA) - 128256 * 4096)  # of the embedding a pass reads eight rows
    cache = 8 * (1024 + answer / 2) * 32 * 2 * 8 * 128 * 2
    a_pass = (weights + cache) / 3.35e12 / 0.4
    assert job.tokens_per_second == pytest.approx(8 / a_pass, rel=0.01)
    reading = 8 * 1024 * weights / (0.4 * 989.5e12)  # of the prompts: two operations a weight and token
    assert job.hours == pytest.approx(4 * (answer * a_pass + reading) / 3600, rel=0.01)


def test_the_first_pass_of_a_block_is_planned_with_the_block_before() -> None:
    """64 rows of blocks of 16 are bound by operations, so twice the tokens take about twice as long."""
    job = evaluation_job(PAPER, ("llama-3.1-8b", "sbd", "gamma_low", "gsm8k"), PAPER.hardware)
    assert job is not None
    roofline = Roofline(LLAMA, replace(H100, linear_peak=H100.attention_peak), Precision(2, 2, 2))
    cached = int(1024 + 0.8 * 1024 / 2)
    first, other = roofline.forward(64, 32, cached, head_rows=16), roofline.forward(64, 16, cached)
    assert first > 1.5 * other
    passes = 16 / 3
    a_block = (first + (passes - 1) * other) / 0.4
    assert job.tokens_per_second == pytest.approx(64 * 16 / a_block)


def test_what_does_not_fit_is_refused_with_its_parts(tmp_path: Path) -> None:
    refuse_what_cannot_fit(PAPER)
    alone = load_experiment(changed(tmp_path, sbd={"gpus": 1}))
    with pytest.raises(
        UserError, match=r"llama-3.1-8b/sbd needs 1\d\d GiB on each of 1 GPU.*optimiser 59.8.*raise gpus"
    ):
        refuse_what_cannot_fit(alone)
    with pytest.raises(UserError, match=r"llama-3.1-8b/ntp needs"):
        refuse_what_cannot_fit(PAPER, HardwareConfig(memory_gib=40))
    dense = load_experiment(changed(tmp_path, sbd={"attention": "sdpa"}))
    with pytest.raises(UserError, match="flex_attention"):
        refuse_what_cannot_fit(dense)


def test_the_plan_lists_every_gpu_job(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    path = str(ROOT / "experiments/paper.yaml")
    assert main(["plan", "--experiment", path, "--price", "3"]) == 0
    out = capsys.readouterr().out
    assert f"{len(PAPER.trainings())} trainings and {len(PAPER.jobs())} evaluations" in out
    assert "H100 with 80 GiB, MFU 40%, 3 an hour and GPU" in out
    with open("results/paper/plan.csv", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [(r["model"], r["run"], r["decoder"], r["benchmark"]) for r in rows] == [
        *((model, run, "", "") for model, run in PAPER.trainings()),
        *PAPER.jobs(),
    ]
    for row in rows:
        assert float(row["cost"]) == pytest.approx(3 * float(row["gpu_hours"]), rel=1e-4, abs=0.01)
        parts = [
            float(row[f"{n}_gib"]) for n in ("weights", "optimiser", "gradients", "activations", "logits", "cache")
        ]
        assert float(row["total_gib"]) == pytest.approx(sum(parts) + 3, abs=0.05)
    assert main(["plan", "--experiment", path, "--memory-gib", "40"]) == 2
    assert "needs" in capsys.readouterr().err.splitlines()[-1]
    assert main(["plan", "--experiment", str(ROOT / "experiments/tiny.yaml")]) == 2


def test_the_lite_plan_is_a_fiftieth() -> None:
    lite = load_experiment(ROOT / "experiments/paper-lite.yaml")
    assert lite.trainings() == PAPER.trainings()
    assert lite.jobs() == PAPER.jobs()
    for name, run in PAPER.runs.items():
        assert lite.runs[name].steps == run.steps / 50
    full, small = ([job.hours for job in jobs(e, e.hardware) if not job.decoder] for e in (PAPER, lite))
    assert sum(full) == pytest.approx(50 * sum(small))


def test_main_memory_holds_the_weights_of_every_rank_and_a_state() -> None:
    count = parameters(LLAMA)
    assert host_memory_mb(PAPER, "llama-3.1-8b", "sbd") == pytest.approx((4 * count * 8 + 32 * GIB) / 2**20, abs=2)


def test_what_the_paper_states_is_in_the_file() -> None:
    for name in ("ntp", "sbd"):
        run = PAPER.runs[name]
        assert (run.steps, run.learning_rate, run.warmup_steps) == (34000, 3e-4, 200)
        assert run.batch_rows * PAPER.data.sequence_length == 2**21
    assert PAPER.data.sequence_length == 32768
    assert PAPER.runs["sbd"].block_size == (2, 16)
    differing = {k for k, v in PAPER.runs["sbd"].model_dump().items() if v != PAPER.runs["ntp"].model_dump()[k]}
    assert differing == {"objective", "label"}
    reasoning, chat = ("math500", "aime25", "livecodebench_v6"), ("gsm8k", "humaneval_plus", "mbpp")
    gammas = {
        (decoder, benchmark): PAPER.decoder(decoder, benchmark).sampler.gamma  # type: ignore[union-attr]
        for decoder in ("gamma_low", "gamma_high")
        for benchmark in (*reasoning, *chat)
    }
    for benchmark in reasoning:
        assert (gammas["gamma_low", benchmark], gammas["gamma_high", benchmark]) == (0.1, 0.35)
    for benchmark in chat:
        assert (gammas["gamma_low", benchmark], gammas["gamma_high", benchmark]) == (0.35, 0.6)


def test_planning_needs_no_torch() -> None:
    script = "import sys, sbd.planning, sbd.steps.plan; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
