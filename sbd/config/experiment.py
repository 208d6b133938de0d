"""A whole experiment: its sections, what they ask to be run, and where the results lie."""

from __future__ import annotations

from itertools import chain, product
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, PrivateAttr, model_validator

from sbd import selection
from sbd.config.benchmark import BenchmarkConfig, EvaluationConfig
from sbd.config.checks import check
from sbd.config.data import DataConfig
from sbd.config.decoder import DecoderConfig
from sbd.config.hardware import HardwareConfig
from sbd.config.model import ModelConfig
from sbd.config.numbers import Seed
from sbd.config.run import RunConfig
from sbd.config.shown import ParetoConfig, RunSpeedConfig, SpeedConfig, Table1Config, TracesConfig
from sbd.config.tokenizer import TokenizerConfig
from sbd.selection import Arm, Figures, Name, Strict


class Group(NamedTuple):
    """Evaluations of one run: every decoder on every benchmark."""

    model: str
    run: str
    decoders: tuple[str, ...]
    benchmarks: tuple[str, ...]

    def jobs(self) -> list[tuple[str, str, str, str]]:
        """As (model, run, decoder, benchmark)."""
        return [(self.model, self.run, *pair) for pair in product(self.decoders, self.benchmarks)]


class Experiment(Strict):
    """An experiment file. All names of models, runs, decoders, benchmarks and sources are free.

    shares: an experiment (the file of that name beside this one) whose data, models and records this one uses and adds
    to, so that nothing is trained twice; tables and figures stay apart.
    evaluate_together: the workflow makes the evaluations of a run that stand in one entry of ``evaluations`` in one
    process, for models that are decoded in the time that a process takes to start. Else each is a job of its own.
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
    evaluate_together: bool = False
    table1: Table1Config
    pareto: ParetoConfig
    figures: Figures = Figures()
    speed: RunSpeedConfig | None = None
    traces: TracesConfig | None = None
    _file: Path | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _names_resolve(self) -> Experiment:
        check(self)
        return self

    def jobs(self) -> list[tuple[str, str, str, str]]:
        """The evaluations as (model, run, decoder, benchmark), each once, in the order of the file."""
        found = {
            (*training, decoder, benchmark): None
            for evaluation in self.evaluations
            for training in self._evaluated_by(evaluation)
            for decoder in evaluation.decoders
            for benchmark in evaluation.benchmarks or self.benchmarks
        }
        return list(found)

    def _evaluated_by(self, evaluation: EvaluationConfig) -> list[tuple[str, str]]:
        """The trained runs of an entry of ``evaluations``, as (model, run)."""
        models = evaluation.models or self.models
        return [(model, run) for model in models for run in evaluation.runs if model in self.models_of(run)]

    def groups(self) -> list[Group]:
        """The evaluations that share a process: none unless ``evaluate_together``, and none that is scored apart.

        An entry of the file makes one group for each run, of what no entry before it asks for: what an entry is added
        behind stays as it is. Where that is not every decoder on every benchmark, it makes several.
        """
        if not self.evaluate_together:
            return []
        found: list[Group] = []
        seen: set[tuple[str, str, str, str]] = set()
        for evaluation in self.evaluations:
            names = evaluation.benchmarks or list(self.benchmarks)
            for model, run in self._evaluated_by(evaluation):
                benchmarks_of: dict[tuple[str, ...], list[str]] = {}
                for benchmark in dict.fromkeys(name for name in names if self.benchmarks[name].scored == "at_once"):
                    asked = dict.fromkeys(evaluation.decoders)
                    decoders = tuple(name for name in asked if (model, run, name, benchmark) not in seen)
                    seen.update((model, run, name, benchmark) for name in decoders)
                    benchmarks_of.setdefault(decoders, []).append(benchmark)
                found += [Group(model, run, decoders, tuple(of)) for decoders, of in benchmarks_of.items() if decoders]
        return found

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
