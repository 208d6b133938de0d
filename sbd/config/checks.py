"""What an experiment must be as a whole: every name is known where it is used, and the parts fit each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sbd import selection
from sbd.config.hashes import CHANGES_NOTHING
from sbd.config.run import RunConfig
from sbd.config.shown import TracesConfig

if TYPE_CHECKING:
    from sbd.config.experiment import Experiment


def check(experiment: Experiment) -> None:
    """Refuse (ValueError) what no section can see alone: a name that another has not, parts that do not fit."""
    _check_runs(experiment)
    _check_benchmarks(experiment)
    _check_evaluations(experiment)
    _check_speed_and_traces(experiment)
    _check_batches_of_speed(experiment)
    _check_lengths(experiment)
    _check_what_is_shown(experiment)


def _check_runs(experiment: Experiment) -> None:
    for name, run in experiment.runs.items():
        _known(run.parent, experiment.runs, f"runs.{name}.parent")
        for model in run.models or []:
            _known(model, experiment.models, f"runs.{name}.models")
        if run.repeats is not None:
            _check_repetition(experiment, name, run, run.repeats)
        seen, parent = {name}, run.parent
        while parent is not None:
            if parent in seen:
                raise ValueError(f"runs.{name}.parent: the parents form a circle through {parent!r}")
            seen.add(parent)
            parent = experiment.runs[parent].parent
        if run.parent and (lost := set(experiment.models_of(name)) - set(experiment.models_of(run.parent))):
            raise ValueError(
                f"runs.{name}.models: {run.parent!r}, its parent, is not trained for {', '.join(sorted(lost))}"
            )


def _check_benchmarks(experiment: Experiment) -> None:
    for name, benchmark in experiment.benchmarks.items():
        _known(benchmark.source, experiment.data.sources, f"benchmarks.{name}.source")
        if not experiment.data.sources[benchmark.source].test:
            raise ValueError(f"benchmarks.{name}.source: {benchmark.source!r} has no test split")
        if benchmark.prompt == "chat":
            for model in experiment.models:
                if experiment.tokenizer_of(model).chat_template is None:
                    raise ValueError(f"benchmarks.{name}.prompt: the tokenizer of {model!r} has no chat_template")
        elif benchmark.thinking:
            raise ValueError(f"benchmarks.{name}.thinking: only a chat template can ask for it; set prompt: chat")
    for name, decoder in experiment.decoders.items():
        for benchmark in decoder.per_benchmark:
            _known(benchmark, experiment.benchmarks, f"decoders.{name}.per_benchmark")


def _check_evaluations(experiment: Experiment) -> None:
    for index, evaluation in enumerate(experiment.evaluations):
        for kind in ("runs", "decoders", "benchmarks", "models"):
            for name in getattr(evaluation, kind) or []:
                _known(name, getattr(experiment, kind), f"evaluations.{index}.{kind}")
    for index, evaluation in enumerate(experiment.evaluations):
        for run in evaluation.runs:
            if lost := set(evaluation.models or []) - set(experiment.models_of(run)):
                raise ValueError(
                    f"evaluations.{index}.models: run {run!r} is not trained for {', '.join(sorted(lost))}"
                )


def _check_speed_and_traces(experiment: Experiment) -> None:
    for part, shown in (("speed", experiment.speed), ("traces", experiment.traces)):
        if shown is not None:
            _known(shown.run, experiment.runs, f"{part}.run")
            _known(shown.benchmark, experiment.benchmarks, f"{part}.benchmark")
            for name in shown.decoders or []:
                _known(name, experiment.decoders, f"{part}.decoders")
            for name in [shown.model] if isinstance(shown, TracesConfig) else shown.models or []:
                _known(name, experiment.models, f"{part}.models")


def _check_batches_of_speed(experiment: Experiment) -> None:
    asked = experiment.speed
    if asked is None or asked.in_step:
        return
    for size in asked.batch_sizes:
        if asked.problems % size:
            raise ValueError(
                f"speed.problems: {asked.problems} problems do not fill batches of {size}; "
                "take a multiple of every batch size"
            )


def _check_lengths(experiment: Experiment) -> None:
    for model, _, _, name in experiment.jobs():
        most = experiment.models[model].shape.get("max_position_embeddings")
        new = experiment.benchmarks[name].max_new_tokens
        if most is not None and new >= most:
            raise ValueError(
                f"benchmarks.{name}.max_new_tokens: {new} leaves no room for a prompt in the {most} positions of "
                f"{model!r}; lower it, or raise max_position_embeddings of the model's shape"
            )


def _check_what_is_shown(experiment: Experiment) -> None:
    evaluated = {(run, decoder) for _, run, decoder, _ in experiment.jobs()}
    arms = [("table1.rows", arm) for arm in experiment.table1.rows] + [
        ("pareto.references", a) for a in experiment.pareto.references
    ]
    arms += [(f"pareto.curves.{name}", arm) for name, curve in experiment.pareto.curves.items() for arm in curve]
    for where, arm in arms:
        _known(arm.run, experiment.runs, f"{where}.run")
        _known(arm.decoder, experiment.decoders, f"{where}.decoder")
        if (arm.run, arm.decoder) not in evaluated:
            raise ValueError(
                f"{where}: run {arm.run!r} with decoder {arm.decoder!r} is not among the evaluations; add it there"
            )
    known = {"runs": experiment.runs, "decoders": experiment.decoders, "benchmarks": experiment.benchmarks}
    selection.check(experiment.figures, known, evaluated)


def _check_repetition(experiment: Experiment, name: str, run: RunConfig, of: str) -> None:
    _known(of, experiment.runs, f"runs.{name}.repeats")
    original = experiment.runs[of]
    if original.repeats is not None:
        raise ValueError(f"runs.{name}.repeats: {of!r} repeats {original.repeats!r} itself; name that one")
    free = {"repeats", "seed", "data_seed", *CHANGES_NOTHING}
    other = sorted(key for key in RunConfig.model_fields if getattr(run, key) != getattr(original, key))
    if wrong := [key for key in other if key not in free]:
        raise ValueError(f"runs.{name}: a repetition of {of!r} may differ in seeds only, not in {', '.join(wrong)}")
    if (run.seed, run.data_seed) == (original.seed, original.data_seed):
        raise ValueError(f"runs.{name}: a repetition of {of!r} needs another seed or data_seed")


def _known(name: str | None, allowed: dict[str, Any], where: str) -> None:
    if name is not None and name not in allowed:
        raise ValueError(f"{where}: unknown name {name!r}; known are {', '.join(sorted(allowed))}")
