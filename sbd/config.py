"""The schema of an experiment: models, runs, decoders and benchmarks, checked before anything runs.

Nothing here imports torch, so that a workflow may read it in a moment.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from datetime import date
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    PrivateAttr,
    model_validator,
)

from sbd import selection
from sbd.files import is_file_name
from sbd.selection import Arm, Figures, Name, Strict


def _unlimited(value: Any) -> Any:
    return math.inf if value == "unlimited" else value


def _ascending(ends: tuple[int, int]) -> tuple[int, int]:
    if ends[0] > ends[1]:
        raise ValueError(f"the low end of {list(ends)} is above the high end")
    return ends


Gamma = Annotated[float, Field(ge=0, allow_inf_nan=True), BeforeValidator(_unlimited)]
BlockSize = PositiveInt | tuple[PositiveInt, PositiveInt]
BlockSizes = Annotated[tuple[PositiveInt, PositiveInt], AfterValidator(_ascending)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class TokenizerConfig(Strict):
    """A byte-level BPE trained on the training split (``vocab_size``), or one of the hub or a folder (``path``)."""

    vocab_size: PositiveInt | None = None
    split_digits: bool = False
    path: str | None = None
    revision: str | None = Field(None, description="commit, tag or branch of `path` on the hub; None is main")
    mask_token: str | None = Field(
        None, description="token of `path` that serves as the mask, when it names none itself"
    )
    eos_token: str | None = Field(None, description="token of `path` that ends a document, in place of its own")
    new_tokens: list[str] = Field(
        [], description="special tokens appended to those of `path`; the model needs an embedding row for each"
    )
    chat_template: str | None = Field(
        None, description="Jinja file for conversations, or 'own' for the template that comes with `path`"
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> TokenizerConfig:
        if (self.vocab_size is None) == (self.path is None):
            raise ValueError("give vocab_size (to train a tokenizer) or path (to load one), not both and not none")
        if self.path is None and (self.mask_token or self.eos_token or self.new_tokens):
            raise ValueError("mask_token, eos_token and new_tokens are of a loaded tokenizer (path)")
        if self.path is None and self.chat_template == "own":
            raise ValueError("a trained tokenizer has no chat template of its own; name a Jinja file")
        return self


STREAMED = {
    "open_math_reasoning": ("problem", "generated_solution"),
    "open_code_reasoning": ("input", "output"),
    "conversations": ("messages",),
}
"""Formats that are read as a stream, and the columns that their rows must have."""


class SourceConfig(Strict):
    """Problems from a seeded generator (with counts) or rows of files (path, folder or pattern) or of the hub.

    A hub source is written ``owner/name`` or ``owner/name:configuration``. Formats of `STREAMED` are for training only:
    they are never copied, but tokenised and packed as they are read. ``benchmark`` is for testing only: rows as they
    were published, whose columns the task file names.
    """

    generator: str | None = None
    format: Literal["problems", "gsm8k", "benchmark", "open_math_reasoning", "open_code_reasoning", "conversations"] = (
        "problems"
    )
    train: int | str | None = None
    validation: int | str = Field(0, description="a count is taken from the end of the training file; a stream's start")
    test: int | str | None = None
    split: str | None = Field(None, description="split of a hub data set, when it is not called as ours")
    revision: str = Field("main", description="commit, tag or branch of a hub data set; what it meant is recorded")
    rows: PositiveInt | None = Field(None, description="read no more than this many rows of a stream")
    weight: PositiveFloat | None = Field(None, description="share of the training tokens; for all streams or none")
    thinking: Literal["keep", "remove"] = Field("keep", description="the text between <think> and </think> of a stream")
    dates: tuple[date, date] | None = Field(None, description="first and last contest_date of a benchmark")
    expected: PositiveInt | None = Field(None, description="how many problems a benchmark must have")

    @property
    def streamed(self) -> bool:
        """Whether rows are tokenised as they are read."""
        return self.format in STREAMED

    @model_validator(mode="after")
    def _counts_or_paths(self) -> SourceConfig:
        needed = ("train",) if self.streamed else ("test",) if self.format == "benchmark" else ("train", "test")
        wanted = int if self.generator else str
        for split in ("train", "test"):
            if split in needed and not isinstance(getattr(self, split), wanted):
                raise ValueError(f"{split} must be a {'count' if self.generator else 'path'} for such a source")
            if split not in needed and getattr(self, split) is not None:
                raise ValueError(f"the format {self.format} has no {split} split; leave it out")
        for split, given in (("train", self.train), ("validation", self.validation), ("test", self.test)):
            if isinstance(given, int) and given < 0:
                raise ValueError(f"{split} must be a count of 0 or more, not {given}")
        if (self.generator or self.streamed) and not isinstance(self.validation, int):
            raise ValueError(f"validation must be a count for a {'generated' if self.generator else 'streamed'} source")
        if self.format == "benchmark" and self.validation:
            raise ValueError("a benchmark is not trained on; leave validation out")
        if self.format != "benchmark" and (self.dates or self.expected):
            raise ValueError("dates and expected are of the format benchmark")
        if not self.streamed and (self.weight or self.rows):
            raise ValueError(f"weight and rows are of streamed formats ({', '.join(STREAMED)})")
        return self


class DataConfig(Strict):
    """What is trained on. sequence_length: tokens of a packed row.

    validation as a count in a file source takes that many problems from the end of its training file.
    overlap: whether streamed documents that share 13 words in a row with a benchmark are only counted, or left out.
    """

    sequence_length: PositiveInt
    too_long: Literal["refuse", "drop"] = "refuse"
    overlap: Literal["report", "drop"] = "report"
    sources: dict[Name, SourceConfig]

    @property
    def streamed(self) -> bool:
        """Whether the training rows come from streams."""
        return any(source.streamed for source in self.sources.values())

    def unpinned(self) -> list[str]:
        """Sources of the hub whose revision is no commit."""
        return [
            name
            for name, source in self.sources.items()
            if any(isinstance(given, str) and not is_file_name(given) for given in (source.train, source.test))
            and not re.fullmatch("[0-9a-f]{40}", source.revision)
        ]

    @model_validator(mode="after")
    def _streams_mix(self) -> DataConfig:
        trained = {name: source for name, source in self.sources.items() if source.train}
        if not trained:
            raise ValueError("sources: none has anything to train on; give one of them a `train`")
        if taken := {"train", "validation", "revisions"} & self.sources.keys():
            raise ValueError(f"sources.{min(taken)}: the folder of that name is for other files; choose another name")
        if not self.streamed:
            return self
        if copied := sorted(name for name, source in trained.items() if not source.streamed):
            raise ValueError(f"sources.{copied[0]}: streamed and copied training sources do not mix; use one kind")
        if len({source.weight is None for source in trained.values()}) > 1:
            raise ValueError("give every streamed source a weight, or none of them (each row once)")
        return self


class ModelConfig(Strict):
    """A model to train from scratch (architecture and shape) or a pretrained one (path or hub id, at a revision).

    The shape of a pretrained one is what `plan` reckons with before it is downloaded; a model of another is refused.
    """

    architecture: Literal["llama", "qwen3"] | None = None
    shape: dict[str, Any] = {}
    path: str | None = None
    tokenizer: TokenizerConfig | None = Field(None, description="its own tokenizer, in place of the experiment's")
    revision: str | None = None
    label: str | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> ModelConfig:
        if (self.architecture is None) == (self.path is None):
            raise ValueError("give architecture and shape (from scratch) or path (pretrained), not both and not none")
        if self.architecture is not None:
            self._check_shape()
        return self

    def _check_shape(self) -> None:
        """What Hugging Face would ignore (a key that it does not know) or fail on when the model is made."""
        if unknown := sorted(self.shape.keys() - SHAPE_KEYS):
            raise ValueError(f"shape: unknown key {unknown[0]!r}; allowed are {', '.join(sorted(SHAPE_KEYS))}")
        for name in _SIZES:
            size = self.shape.get(name, 1)
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise ValueError(f"shape: {name} must be a whole number of 1 or more, not {size!r}")
        for name, part in (("num_attention_heads", "num_key_value_heads"), ("hidden_size", "num_attention_heads")):
            whole, parts = self.shape.get(name), self.shape.get(part)
            needed = name != "hidden_size" or self.architecture == "llama"
            if needed and whole and parts and whole % parts:
                raise ValueError(f"shape: {name} {whole} is not a multiple of {part} {parts}")


_SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "max_position_embeddings"),
)
SHAPE_KEYS = {
    *_SIZES,
    *("tie_word_embeddings", "initializer_range", "hidden_act", "rms_norm_eps", "rope_parameters"),
    *("attention_bias", "attention_dropout"),
}
"""What a shape may say: the keys that the configurations of all architectures have in common."""


class RunConfig(Strict):
    """One training run; see sbd.training.TrainingSettings and sbd.batching.Noise. Rows hold clean tokens.

    models: those it is trained for, all if left out. repeats: the run that this one is a repetition of, with another
    seed; whatever the file does not say is as in that run.
    gpus: ranks of the run, each on a GPU; 0 is one process on what there is. micro_rows "auto": as many rows per pass
    of a rank as `plan` finds room for on its GPU.
    """

    parent: Name | None = None
    models: list[Name] | None = None
    repeats: Name | None = None
    objective: Literal["ntp", "sbd", "sdlm"]
    steps: PositiveInt
    batch_rows: PositiveInt
    micro_rows: PositiveInt | Literal["auto"]
    learning_rate: PositiveFloat
    warmup_steps: int = Field(ge=1)
    min_lr_ratio: float = Field(0.1, ge=0, le=1)
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: float = Field(0.1, ge=0)
    max_grad_norm: PositiveFloat = 1.0
    ntp_weight: float = Field(1.0, ge=0)
    block_weight: float = Field(1.0, ge=0)
    normalization: Literal["tokens", "terms"] = "tokens"
    block_size: BlockSizes = (2, 16)
    mask_rate: Literal["sequence", "block"] = "sequence"
    prompt_loss: bool = False
    sdlm_repeats: PositiveFloat = 1.0
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    seed: Seed = 0
    data_seed: Seed = Field(0, description="order of the data; equal for runs that are compared")
    checkpoint_every: PositiveInt = 500
    log_every: PositiveInt = 10
    spike_factor: float | None = Field(None, gt=1)
    gpus: int = Field(0, ge=0)
    sharded: bool = False
    activation_checkpointing: bool = False
    attention: Literal["sdpa", "flex_attention", "flash_attention_2"] | None = None
    pad_multiple: PositiveInt = 1
    checkpoint_precision: Literal["fp32", "bf16"] = "fp32"
    label: str | None = None

    @model_validator(mode="after")
    def _ranks_share_the_batch(self) -> RunConfig:
        if self.gpus and self.batch_rows % self.gpus:
            raise ValueError(f"batch_rows {self.batch_rows} is not a multiple of gpus {self.gpus}; change one of them")
        if not self.ntp_weight and (self.objective == "ntp" or not self.block_weight):
            raise ValueError("every loss has weight 0, so there is nothing to train; raise ntp_weight or block_weight")
        if self.attention == "flash_attention_2" and (self.objective != "ntp" or self.micro_rows not in (1, "auto")):
            raise ValueError(
                "flash_attention_2 knows causal rows only: it needs objective ntp and micro_rows 1 or auto"
            )
        return self


GPU_MEMORY_GIB = {"H100": 80.0, "H200": 139.0, "B200": 178.0}
"""About what the SXM versions show; they are sold as 80, 141 and 180 GB."""


class HardwareConfig(Strict):
    """What `plan` reckons with; the options of the command come before it. Prices in the currency of your bill.

    memory_gib: of a GPU; that of its kind if left out.
    """

    gpu: Literal["H100", "H200", "B200"] = "H100"
    memory_gib: PositiveFloat = 80
    mfu: float = Field(default=0.4, gt=0, le=1)
    price: float = Field(default=0, ge=0, description="of an hour of one GPU")
    document_tokens: PositiveInt = Field(default=8192, description="mean length of a training document, for attention")
    answer_share: float = Field(
        default=0.3, gt=0, le=1, description="mean length of an answer, as a share of the limit"
    )

    @model_validator(mode="before")
    @classmethod
    def _memory_of_the_kind(cls, given: Any) -> Any:
        if not isinstance(given, dict) or "memory_gib" in given or given.get("gpu") not in GPU_MEMORY_GIB:
            return given
        return {**given, "memory_gib": GPU_MEMORY_GIB[given["gpu"]]}


class SamplerConfig(Strict):
    """Which masked tokens a pass reveals; see sbd.samplers."""

    rule: Literal["entropy_bound", "cumulative_entropy", "factor", "confidence_threshold", "top_k"] = "entropy_bound"
    gamma: Gamma | None = None
    order: Literal["entropy", "confidence", "margin"] = "entropy"
    factor: PositiveFloat | None = None
    threshold: float | None = Field(None, ge=0, le=1)
    count: PositiveInt | None = None
    form: Literal["fast_dllm", "printed"] = "fast_dllm"

    @model_validator(mode="after")
    def _parameter_of_the_rule(self) -> SamplerConfig:
        wanted = {"factor": "factor", "confidence_threshold": "threshold", "top_k": "count"}.get(self.rule, "gamma")
        for name in ("gamma", "factor", "threshold", "count"):
            if (getattr(self, name) is not None) != (name == wanted):
                raise ValueError(f"the rule {self.rule} takes {wanted} and no other number")
        return self


class DecoderConfig(Strict):
    """How text is generated; see sbd.decoding. per_benchmark: samplers in place of `sampler` on some benchmarks."""

    kind: Literal["autoregressive", "set_block", "longest_prefix", "self_speculative"]
    block_size: BlockSize | None = None
    branches: int | None = Field(None, ge=0)
    sampler: SamplerConfig | None = None
    first_token: Literal["masked", "next_token"] = "masked"
    commit: Literal["fused", "separate"] = "fused"
    threshold: float | None = Field(None, ge=0, le=1)
    confidence: Literal["probability", "entropy"] = "probability"
    rule: Literal["each", "product"] = "each"
    per_benchmark: dict[Name, SamplerConfig] = {}
    label: str | None = None

    @model_validator(mode="after")
    def _what_the_kind_needs(self) -> DecoderConfig:
        needs = {
            "autoregressive": (),
            "set_block": ("block_size", "sampler"),
            "longest_prefix": ("block_size", "threshold"),
            "self_speculative": ("block_size",),
        }[self.kind]
        missing = [name for name in needs if getattr(self, name) is None]
        if missing:
            raise ValueError(f"the decoder kind {self.kind} needs {' and '.join(missing)}")
        if isinstance(self.block_size, tuple):
            if self.kind != "set_block":
                raise ValueError(f"the decoder kind {self.kind} takes one block_size, not {list(self.block_size)}")
            _ascending(self.block_size)
        elif self.block_size is not None and (self.branches or 0) > self.block_size:
            raise ValueError(f"branches {self.branches} is above block_size {self.block_size}")
        if self.per_benchmark and self.sampler is None:
            raise ValueError("per_benchmark replaces sampler, and there is none")
        return self


class BenchmarkConfig(Strict):
    """A test set and how it is generated and scored: an lm-eval task file and the source whose test split it reads.

    prompt: the task's text as it is, or as a conversation through the tokenizer's chat template. thinking: what the
    template is told. scored: by the job that generates, or by a job of its own (code, so that no GPU waits for it).
    """

    task: str
    source: Name
    max_new_tokens: PositiveInt
    prompt: Literal["text", "chat"] = "text"
    thinking: bool = False
    scored: Literal["at_once", "apart"] = "at_once"
    limit: PositiveInt | None = None
    batch_size: PositiveInt = 64
    label: str | None = None


class EvaluationConfig(Strict):
    """Every run with every decoder, on every benchmark (or those named)."""

    runs: list[Name]
    decoders: list[Name]
    benchmarks: list[Name] | None = None
    models: list[Name] | None = None


class Table1Config(Strict):
    """The rows of table 1; the first is the baseline of the paired differences."""

    rows: list[Arm] = Field(min_length=1)


class ParetoConfig(Strict):
    """Accuracy against tokens per forward: one curve per model and entry, and reference points."""

    curves: dict[str, list[Arm]]
    references: list[Arm] = []


class SpeedConfig(Strict):
    """What is timed, side by side: decoders of one run of every model, on the first problems of a benchmark's test set.

    threads: of torch on a CPU. The workflow runs nothing beside it. dtype: of the weights; "auto" is the checkpoint's.
    clock: "cpu" counts the time of the processor, where other programs run beside.
    """

    run: Name
    decoders: list[Name] = Field(min_length=1)
    benchmark: Name | None = None
    models: list[Name] | None = None
    batch_sizes: list[PositiveInt] = [1, 8]
    problems: PositiveInt = 16
    repeats: PositiveInt = 3
    threads: PositiveInt = 1
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    clock: Literal["wall", "cpu"] = "wall"


class TracesConfig(Strict):
    """Pages that show one decode each, pass by pass: decoders of a run on one problem of a benchmark's test set.

    decoders: all of the experiment if left out. problem: its number in the test set, from 0.
    """

    model: Name
    run: Name
    decoders: list[Name] | None = None
    benchmark: Name | None = None
    problem: int = Field(0, ge=0)


class Experiment(Strict):
    """An experiment file. All names of models, runs, decoders, benchmarks and sources are free.

    shares: an experiment (the file of that name beside this one) whose data, models and records this one uses and adds
    to, so that nothing is trained twice; tables and figures stay apart.
    """

    scale: Name
    shares: Name | None = None
    seed: Seed = 0
    tokenizer: TokenizerConfig
    data: DataConfig
    hardware: HardwareConfig = HardwareConfig()
    models: dict[Name, ModelConfig] = Field(min_length=1)
    runs: dict[Name, RunConfig] = Field(min_length=1)
    decoders: dict[Name, DecoderConfig] = Field(min_length=1)
    benchmarks: dict[Name, BenchmarkConfig] = Field(min_length=1)
    evaluations: list[EvaluationConfig]
    table1: Table1Config
    pareto: ParetoConfig
    figures: Figures = Figures()
    speed: SpeedConfig | None = None
    traces: TracesConfig | None = None
    _file: Path | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _names_resolve(self) -> Experiment:
        for name, run in self.runs.items():
            _known(run.parent, self.runs, f"runs.{name}.parent")
            for model in run.models or []:
                _known(model, self.models, f"runs.{name}.models")
            if run.repeats is not None:
                self._check_repetition(name, run, run.repeats)
            seen, parent = {name}, run.parent
            while parent is not None:
                if parent in seen:
                    raise ValueError(f"runs.{name}.parent: the parents form a circle through {parent!r}")
                seen.add(parent)
                parent = self.runs[parent].parent
            if run.parent and (lost := set(self.models_of(name)) - set(self.models_of(run.parent))):
                raise ValueError(
                    f"runs.{name}.models: {run.parent!r}, its parent, is not trained for {', '.join(sorted(lost))}"
                )
        for name, benchmark in self.benchmarks.items():
            _known(benchmark.source, self.data.sources, f"benchmarks.{name}.source")
            if not self.data.sources[benchmark.source].test:
                raise ValueError(f"benchmarks.{name}.source: {benchmark.source!r} has no test split")
            if benchmark.prompt == "chat":
                for model in self.models:
                    if self.tokenizer_of(model).chat_template is None:
                        raise ValueError(f"benchmarks.{name}.prompt: the tokenizer of {model!r} has no chat_template")
            elif benchmark.thinking:
                raise ValueError(f"benchmarks.{name}.thinking: only a chat template can ask for it; set prompt: chat")
        for name, decoder in self.decoders.items():
            for benchmark in decoder.per_benchmark:
                _known(benchmark, self.benchmarks, f"decoders.{name}.per_benchmark")
        for index, evaluation in enumerate(self.evaluations):
            for kind in ("runs", "decoders", "benchmarks", "models"):
                for name in getattr(evaluation, kind) or []:
                    _known(name, getattr(self, kind), f"evaluations.{index}.{kind}")
        for index, evaluation in enumerate(self.evaluations):
            for run in evaluation.runs:
                if lost := set(evaluation.models or []) - set(self.models_of(run)):
                    raise ValueError(
                        f"evaluations.{index}.models: run {run!r} is not trained for {', '.join(sorted(lost))}"
                    )
        for part, shown in (("speed", self.speed), ("traces", self.traces)):
            if shown is not None:
                _known(shown.run, self.runs, f"{part}.run")
                _known(shown.benchmark, self.benchmarks, f"{part}.benchmark")
                for name in shown.decoders or []:
                    _known(name, self.decoders, f"{part}.decoders")
                for name in [shown.model] if isinstance(shown, TracesConfig) else shown.models or []:
                    _known(name, self.models, f"{part}.models")
        evaluated = {(run, decoder) for _, run, decoder, _ in self.jobs()}
        arms = [("table1.rows", arm) for arm in self.table1.rows] + [
            ("pareto.references", a) for a in self.pareto.references
        ]
        arms += [(f"pareto.curves.{name}", arm) for name, curve in self.pareto.curves.items() for arm in curve]
        for where, arm in arms:
            _known(arm.run, self.runs, f"{where}.run")
            _known(arm.decoder, self.decoders, f"{where}.decoder")
            if (arm.run, arm.decoder) not in evaluated:
                raise ValueError(
                    f"{where}: run {arm.run!r} with decoder {arm.decoder!r} is not among the evaluations; add it there"
                )
        known = {"runs": self.runs, "decoders": self.decoders, "benchmarks": self.benchmarks}
        selection.check(self.figures, known, evaluated)
        return self

    def _check_repetition(self, name: str, run: RunConfig, of: str) -> None:
        _known(of, self.runs, f"runs.{name}.repeats")
        original = self.runs[of]
        if original.repeats is not None:
            raise ValueError(f"runs.{name}.repeats: {of!r} repeats {original.repeats!r} itself; name that one")
        free = {"repeats", "seed", "data_seed", *_CHANGES_NOTHING}
        other = sorted(key for key in RunConfig.model_fields if getattr(run, key) != getattr(original, key))
        if wrong := [key for key in other if key not in free]:
            raise ValueError(f"runs.{name}: a repetition of {of!r} may differ in seeds only, not in {', '.join(wrong)}")
        if (run.seed, run.data_seed) == (original.seed, original.data_seed):
            raise ValueError(f"runs.{name}: a repetition of {of!r} needs another seed or data_seed")

    def jobs(self) -> list[tuple[str, str, str, str]]:
        """The evaluations as (model, run, decoder, benchmark), each once, in the order of the file."""
        found = {
            (model, run, decoder, benchmark): None
            for evaluation in self.evaluations
            for model in evaluation.models or self.models
            for run in evaluation.runs
            if model in self.models_of(run)
            for decoder in evaluation.decoders
            for benchmark in evaluation.benchmarks or self.benchmarks
        }
        return list(found)

    def models_of(self, run: str) -> list[str]:
        """The models that a run is trained for."""
        return self.runs[run].models or list(self.models)

    def trainings(self) -> list[tuple[str, str]]:
        """All trainings as (model, run)."""
        return [(model, run) for model in self.models for run in self.runs if model in self.models_of(run)]

    def collected(self) -> list[str]:
        """The CSV files that ``collect`` writes to the folder of the scale."""
        names = ["records.csv", "losses.csv", "metrics.csv", "differences.csv", "contrasts.csv"]
        return [*names, "matp_loss.csv"] if self.figures.matp_loss else names

    def shown_in(self, section: str) -> tuple[list[str], list[str]]:
        """The runs and decoders that a section of ``figures`` (or table1, pareto, losses, speed) shows."""
        arms = {"table1": self.table1.rows, "pareto": [*chain(*self.pareto.curves.values()), *self.pareto.references]}
        arms["figure1"] = arms["wall_clock"] = arms["pareto"]
        if self.speed:
            arms["speed"] = [Arm(run=self.speed.run, decoder=name) for name in self.speed.decoders]
        # One claim is on the lengths of training.
        sections = (section, "figure5") if section == "claims" else (section,)
        found = arms.get(section) or [arm for name, arm in selection.arms_of(self.figures) if name in sections]
        if section in ("claims", "seeds"):
            found = [Arm(run=run, decoder=arm.decoder) for arm in found for (run,) in self.seeds_of(arm.run)]
        chosen = getattr(self.figures, section, None)
        runs = [arm.run for arm in found] or list(getattr(chosen, "runs", self.runs if section == "losses" else []))
        return list(dict.fromkeys(runs)), list(dict.fromkeys(arm.decoder for arm in found))

    def masked_losses(self) -> list[tuple[str, str]]:
        """What the figure of the masked-token loss shows, as (model, run)."""
        wanted = self.figures.matp_loss.runs if self.figures.matp_loss else []
        return [(model, run) for model, run in self.trainings() if run in wanted]

    def seeds_of(self, *runs: str) -> list[tuple[str, ...]]:
        """The runs themselves, and their repetitions: those that all of ``runs`` have with the same seeds."""
        repeated: dict[tuple[int, int], dict[str, str]] = {}
        for name, run in self.runs.items():
            if run.repeats in runs:
                repeated.setdefault((run.seed, run.data_seed), {})[run.repeats] = name
        return [runs, *(tuple(r[run] for run in runs) for r in repeated.values() if set(runs) <= set(r))]

    def benchmark_of(self, shown: SpeedConfig | TracesConfig) -> BenchmarkConfig:
        """The benchmark that is timed or shown: the first one, unless it is named."""
        return self.benchmarks[shown.benchmark or next(iter(self.benchmarks))]

    def decoder(self, name: str, benchmark: str) -> DecoderConfig:
        """A decoder as it works on a benchmark."""
        config = self.decoders[name]
        sampler = config.per_benchmark.get(benchmark, config.sampler)
        return config.model_copy(update={"sampler": sampler, "per_benchmark": {}})

    def read_from(self, file: Path) -> None:
        """Note the file that this was read from, for the commands below."""
        self._file = file

    @property
    def file(self) -> Path:
        """The file that this was read from, or the one that has the name of its scale."""
        return self._file or Path("experiments") / f"{self.scale}.yaml"

    def command(self, verb: str, **options: str) -> str:
        """The command line of a verb on this experiment, for messages that say what to run."""
        words = [f"--{name.replace('_', '-')} {value}" for name, value in options.items()]
        return " ".join([f"python -m sbd {verb} --experiment {self.file.as_posix()}", *words])

    def prepare_command(self, model: str) -> str:
        """The command line that prepares the rows that a model is trained on."""
        own = self.models[model].tokenizer is not None
        return self.command("prepare", model=model) if own else self.command("prepare")

    def evaluate_command(self, model: str, run: str, decoder: str, benchmark: str) -> str:
        """The command line that makes the record of a job."""
        return self.command("evaluate", model=model, run=run, decoder=decoder, benchmark=benchmark)

    def snakemake_command(self, target: str | Path) -> str:
        """The command line by which Snakemake makes a file of this experiment."""
        return f"snakemake --cores 1 {Path(target).as_posix()} --config experiment={self.file.as_posix()}"

    @property
    def folder(self) -> Path:
        """Where tables and figures of this scale go, below the working directory."""
        return Path("results") / self.scale

    @property
    def work_scale(self) -> str:
        """The scale that data, models and records belong to."""
        return self.shares or self.scale

    @property
    def work_folder(self) -> Path:
        """Where data, models and records are."""
        return Path("results") / self.work_scale

    def source_file(self, source: str, split: str) -> Path:
        """The problems of a source and split."""
        return self.work_folder / "data" / source / f"{split}.jsonl"

    @property
    def revisions_folder(self) -> Path:
        """Where it is kept which commit a revision of the hub means; see sbd.hub."""
        return self.work_folder / "data" / "revisions"

    def tested_sources(self) -> list[str]:
        """The sources whose test split is evaluated."""
        return list(dict.fromkeys(self.benchmarks[benchmark].source for _, _, _, benchmark in self.jobs()))

    def tokenizer_of(self, model: str) -> TokenizerConfig:
        """The tokenizer that a model is trained with."""
        return self.models[model].tokenizer or self.tokenizer

    def data_folder(self, split: str, model: str | None = None) -> Path:
        """The packed rows of a split, over all sources; those of a model with a tokenizer of its own lie apart."""
        own = model is not None and self.models[model].tokenizer is not None
        return self.work_folder / "data" / str(model) / split if own else self.work_folder / "data" / split

    def run_folder(self, model: str, run: str) -> Path:
        """Checkpoint, metrics and state of a run."""
        return self.work_folder / "models" / model / run

    def masked_loss_file(self, model: str, run: str) -> Path:
        """The masked-token loss of a run by slot and mask rate."""
        return self.folder / "masked_loss" / model / f"{run}.csv"

    def generated_folder(self, model: str, run: str, decoder: str, benchmark: str) -> Path:
        """The generations of an evaluation that is scored apart."""
        return self.work_folder / "generated" / model / run / decoder / benchmark

    def record_folder(self, model: str, run: str, decoder: str, benchmark: str) -> Path:
        """The record and the generations of an evaluation."""
        return self.work_folder / "records" / model / run / decoder / benchmark


def _known(name: str | None, allowed: dict[str, Any], where: str) -> None:
    if name is not None and name not in allowed:
        raise ValueError(f"{where}: unknown name {name!r}; known are {', '.join(sorted(allowed))}")


_CHANGES_NOTHING = (
    *("label", "checkpoint_every", "models"),
    *("log_every", "spike_factor", "gpus", "sharded", "activation_checkpointing"),
)
"""Keys that cannot change the result of a run, decoder or benchmark."""


def settings_of(part: BaseModel) -> dict[str, Any]:
    """What a result depends on: a part of the experiment without what only names it or cannot change a result."""
    return part.model_dump(mode="json", exclude={"repeats", *_CHANGES_NOTHING})


def fingerprint(*values: Any) -> str:
    """A short hash of plain values or models, for records and for reruns."""
    plain = [value.model_dump(mode="json") if isinstance(value, BaseModel) else value for value in values]
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()[:12]
