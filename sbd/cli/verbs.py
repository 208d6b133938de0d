"""What each verb does with its options: what they name is checked, and then a step is imported and run."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sbd.config import Experiment, RunSpeedConfig, SpeedConfig
from sbd.errors import UserError
from sbd.experiment_files import experiment_file
from sbd.files import require_writable
from sbd.interruption import STOPPED, Stopped, StopRequest


def check(experiment: Experiment, options: argparse.Namespace) -> None:
    """Say that the file is valid, and what it would run."""
    for name in dict.fromkeys(benchmark for *_, benchmark in experiment.jobs()):
        if not (task := Path(experiment.benchmarks[name].task)).is_file():
            raise UserError(
                f"{experiment_file(options.experiment)}: benchmarks.{name}.task: no such task file: {task}; make it, "
                "or name another (paths are from the working directory)"
            )
    runs = [f"{name} (from {run.parent})" if run.parent else name for name, run in experiment.runs.items()]
    print(f"{experiment_file(options.experiment)} is valid")
    for kind, names in {
        "sources": experiment.data.sources,
        "models": experiment.models,
        "runs": runs,
        "decoders": experiment.decoders,
        "benchmarks": experiment.benchmarks,
    }.items():
        print(f"  {kind:<11}{', '.join(names)}")
    if loose := experiment.data.unpinned():
        print(f"not pinned to a commit, so that another day may bring other data: {', '.join(loose)}")
    jobs = experiment.jobs()
    print(f"{len(experiment.trainings())} trainings and {len(jobs)} evaluations; results go to {experiment.folder}/")


def pin(experiment: Experiment, options: argparse.Namespace) -> None:
    """Print the commits of the hub."""
    from sbd import hub

    print(f"{experiment_file(options.experiment)}: to read the same on another day, write as `revision` of")
    for key, commit in hub.pins_of(experiment):
        print(f"  {key}: {commit}")
    print(f"Until then the steps of this folder keep to them, as {experiment.revisions_folder} says.")


def problems(experiment: Experiment, options: argparse.Namespace) -> None:
    """Write the problems of a source."""
    _known(options, "source", experiment.data.sources)
    from sbd.steps import problems

    problems.run(experiment, options.source, options.data)


def prepare(experiment: Experiment, options: argparse.Namespace) -> None:
    """Tokenise and pack."""
    _be_quiet()
    from sbd.steps import prepare

    if options.model is not None:
        _known(options, "model", experiment.models)
    prepare.run(experiment, options.model, options.data, options.threads)


def train(experiment: Experiment, options: argparse.Namespace) -> int | None:
    """Train here, or start the ranks of a run on several GPUs; returns their exit status."""
    _known(options, "model", experiment.models)
    _known(options, "run", experiment.runs)
    from sbd import launch

    finished = experiment.run_folder(options.model, options.run) / "checkpoint" / "training.json"
    if finished.is_file():
        raise UserError(f"{options.model} {options.run} is trained already; to train it again, delete {finished} first")
    status, gpus = 0, experiment.runs[options.run].gpus
    try:
        if ranks := launch.missing_ranks(gpus, f"run {options.run}"):
            _set_threads(options.threads and max(1, options.threads // ranks))
            again = ["train", "--experiment", options.experiment, "--model", options.model, "--run", options.run]
            status = launch.run_ranks(ranks, [*again, *(["--adopt"] if options.adopt else [])])
        else:
            # Ignored for the sake of the shell around (see the rule); until there is something to save, they end it.
            for number in StopRequest.SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            _set_threads(options.threads)
            from sbd.steps import train

            train.run(experiment, options.model, options.run, options.adopt)
    except Stopped:
        if "WORLD_SIZE" not in os.environ:
            _queue_again()
        raise
    if status == STOPPED:
        _queue_again()
    return status


def evaluate(experiment: Experiment, options: argparse.Namespace) -> None:
    """Generate and score; a signal stops it at once."""

    def stop(number: int, frame: object) -> None:
        name = " ".join([options.model, options.run, *options.decoder, *options.benchmark])
        raise Stopped(f"{name}: stopped by {signal.Signals(number).name}; generations of whole batches are kept")

    # At once, and not at the end of a batch, which may take longer than what is left. The shell around ignores it.
    before = {number: signal.signal(number, stop) for number in StopRequest.SIGNALS}
    try:
        _evaluation(experiment, options).run(experiment, options.model, options.run, options.decoder, options.benchmark)
    except Stopped:
        _queue_again()
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _queue_again() -> None:
    from sbd import slurm

    if said := slurm.requeue():
        print(said, file=sys.stderr)


def score(experiment: Experiment, options: argparse.Namespace) -> None:
    """Score saved generations."""
    _evaluation(experiment, options).score(experiment, options.model, options.run, options.decoder, options.benchmark)


def _evaluation(experiment: Experiment, options: argparse.Namespace) -> Any:
    """The steps of an evaluation, when all that it names is known."""
    _known(options, "model", experiment.models)
    _known(options, "run", experiment.runs)
    _known(options, "decoder", experiment.decoders)
    _known(options, "benchmark", experiment.benchmarks)
    from sbd import launch

    launch.missing_ranks(min(1, experiment.runs[options.run].gpus), f"the evaluation of {options.run}")
    os.environ["TQDM_DISABLE"] = "1"  # lm-eval's own bars; ours ask to be shown. tqdm reads it when it is imported
    _set_threads(options.threads)
    from sbd.steps import evaluate

    return evaluate


def masked_loss(experiment: Experiment, options: argparse.Namespace) -> None:
    """Measure the masked-token loss."""
    _known(options, "model", experiment.models)
    _known(options, "run", experiment.runs)
    _set_threads(options.threads)
    from sbd.steps import masked_loss

    masked_loss.run(experiment, options.model, options.run)


def collect(experiment: Experiment, options: argparse.Namespace) -> None:
    """Gather all records."""
    from sbd.steps import collect

    collect.run(experiment)


def tune(experiment: Experiment, options: argparse.Namespace) -> None:
    """Pick gamma, for a run of the experiment or for a checkpoint."""
    _known(options, "benchmark", experiment.benchmarks)
    if (options.model is None) == (options.checkpoint is None):
        raise UserError("say what to tune: either --model and --run, of the experiment, or --checkpoint, a folder")
    if options.checkpoint is None:
        if options.run is None or options.baseline_checkpoint is not None:
            raise UserError("--model needs --run, and is compared with a --baseline-run")
        options.baseline_run = options.baseline_run or options.run
        _known(options, "model", experiment.models)
        _known(options, "run", experiment.runs)
        _known(options, "baseline_run", experiment.runs)
    elif options.run is not None or options.baseline_run is not None or options.output is None:
        raise UserError("--checkpoint has no runs and no place among the results: give --output, and no run")
    os.environ["TQDM_DISABLE"] = "1"
    _set_threads(options.threads)
    from sbd.steps import tune

    if options.checkpoint is None:
        candidate = tune.of_experiment(experiment, options.model, str(options.run))
        baseline = tune.of_experiment(experiment, options.model, str(options.baseline_run))
    else:
        candidate, baseline = (
            tune.Candidate(name, name)
            for name in (options.checkpoint, options.baseline_checkpoint or options.checkpoint)
        )
    tune.run(
        experiment,
        candidate,
        baseline,
        options.benchmark,
        options.problems or tune.validation_problems(experiment, options.benchmark),
        options.output or experiment.folder / "tune" / options.model / options.run,
        gammas=options.gamma,
        block_sizes=options.block_size,
        margin=options.margin,
        confidence=options.confidence,
        limit=options.limit,
    )


def plan(experiment: Experiment, options: argparse.Namespace) -> None:
    """Reckon what the experiment costs."""
    from sbd.steps import plan

    changed = {name: getattr(options, name) for name in ("gpu", "memory_gib", "mfu", "price")}
    plan.run(experiment, **{name: value for name, value in changed.items() if value is not None})


def generate(experiment: Experiment, options: argparse.Namespace) -> None:
    """Continue prompts."""
    _known(options, "decoder", experiment.decoders)
    _set_threads(options.threads)
    from sbd.modeling import DTYPES
    from sbd.steps import generate

    names = ("max_new_tokens", "temperature", "top_k", "top_p", "seed", "samples", "stop", "stream", "execution")
    generate.run(
        options.model,
        options.prompt,
        options.decoder,
        experiment.decoders[options.decoder],
        generate.Options(
            **{name: getattr(options, name) for name in names},
            dtype=DTYPES[options.dtype],
            trace=options.trace,
        ),
    )


def traces(experiment: Experiment, options: argparse.Namespace) -> None:
    """Write the pages of the decoders that the experiment shows."""
    if experiment.traces is None:
        raise UserError(f"{options.experiment} has no key `traces`, which says what to show; see experiments/tiny.yaml")
    _set_threads(options.threads)
    from sbd.steps import traces

    traces.run(experiment, experiment.traces)


def speed(experiment: Experiment, options: argparse.Namespace) -> None:
    """Measure decoders side by side."""
    if (options.model is None) == (options.checkpoint is None):
        raise UserError("say what to measure: either --model, of the experiment, or --checkpoint, a folder or hub id")
    if options.checkpoint is None:
        _known(options, "model", experiment.models)
    elif options.run is not None or options.output is None:
        raise UserError("--checkpoint has no runs and no place among the results: give --output, and no --run")
    settings = _speed_settings(experiment, options)
    _set_threads(options.threads)
    from sbd.steps import speed
    from sbd.steps.checkpoints import trained_checkpoint

    if isinstance(settings, RunSpeedConfig):
        checkpoint: str | Path = trained_checkpoint(experiment, options.model, settings.run)
        shown, label = {"model": options.model, "run": settings.run}, f"{options.model} {settings.run}"
        output = options.output or experiment.work_folder / "speed" / options.model / f"{settings.run}.csv"
    else:
        checkpoint, output = str(options.checkpoint), options.output
        shown, label = {"model": checkpoint, "run": "checkpoint"}, checkpoint
    if options.figure is not None:
        require_writable(options.figure / "decoding_speed.csv")
    speed.run(experiment, checkpoint, settings, output, shown, label, options.execution, options.prompts)
    if options.figure is not None:
        from paper_figures import decoding_speed

        files = ["--experiment", str(experiment.file), "--speed", str(output), "--output", str(options.figure)]
        print(*decoding_speed.main(files), sep="\n")


def _speed_settings(experiment: Experiment, options: argparse.Namespace) -> SpeedConfig:
    """What ``speed`` of the experiment says, overlaid by what was asked."""
    asked = {
        "run": options.run,
        "decoders": options.decoder,
        "batch_sizes": options.batch_size,
        "problems": options.problems,
        "repeats": options.repeats,
        "dtype": options.dtype,
        "clock": options.clock,
        "in_step": options.in_step or None,
    }
    said = {} if experiment.speed is None else experiment.speed.model_dump()
    said |= {name: value for name, value in asked.items() if value is not None}
    needed = [("--run", "run"), ("--decoder", "decoders")]
    if options.checkpoint is not None:  # it stands in place of the run of a model
        needed.pop(0)
        said = {name: value for name, value in said.items() if name in SpeedConfig.model_fields}
    if missing := [flag for flag, key in needed if key not in said]:
        raise UserError(f"{options.experiment} has no key `speed`; say what to measure with {' and '.join(missing)}")
    for kind, names, allowed in (
        ("run", [said["run"]] if "run" in said else [], experiment.runs),
        ("decoder", said["decoders"], experiment.decoders),
    ):
        for name in names:
            if name not in allowed:
                raise UserError(f"unknown {kind} {name!r}; {options.experiment} has {', '.join(allowed)}")
    return SpeedConfig(**said) if options.checkpoint is not None else RunSpeedConfig(**said)


def lossless(experiment: Experiment, options: argparse.Namespace) -> None:
    """Compare self-speculative with autoregressive decoding."""
    _known(options, "model", experiment.models)
    _known(options, "run", experiment.runs)
    _known(options, "decoder", experiment.decoders)
    if experiment.decoders[options.decoder].kind != "self_speculative":
        raise UserError(f"decoder {options.decoder!r} is not self-speculative, and no other one promises equal text")
    _set_threads(options.threads)
    from sbd.modeling import DTYPES
    from sbd.steps import lossless

    output = options.output or experiment.folder / "lossless" / options.model / f"{options.run}.csv"
    lossless.run(
        experiment,
        options.model,
        options.run,
        options.decoder,
        options.batch_size,
        options.problems,
        output,
        DTYPES[options.dtype],
    )


def _known(options: argparse.Namespace, kind: str, allowed: Iterable[str]) -> None:
    given = getattr(options, kind)
    for name in given if isinstance(given, list) else [given]:
        if name not in allowed:
            raise UserError(f"unknown {kind} {name!r}; {options.experiment} has {', '.join(allowed)}")


def _be_quiet() -> None:
    """Leave the terminal to our own progress."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def _set_threads(threads: int | None) -> None:
    _be_quiet()
    if threads is None:
        return
    # Before torch is imported, so that no thread pool of the other size is ever made.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    import torch

    torch.set_num_threads(threads)
