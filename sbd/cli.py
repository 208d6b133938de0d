"""The command line: ``python -m sbd VERB``, one verb per step of the workflow.

Nothing heavy is imported before a verb runs, so that help and mistakes answer at once. A mistake of the user ends with
one line on the error stream and exit status 2.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from sbd.config import Experiment, RunSpeedConfig, SpeedConfig
from sbd.errors import UserError, of_the_place
from sbd.experiment_files import experiment_file, load_experiment
from sbd.interruption import STOPPED, Stopped, StopRequest

_DTYPES = ("auto", "float32", "bfloat16")
_EXECUTIONS = ("eager", "compile", "graphs")

Handler = Callable[[Experiment, argparse.Namespace], int | None]


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; returns the exit status: 0, 2 after a mistake of the user, 75 when it was stopped and saved."""
    options = _parser().parse_args(arguments)
    try:
        experiment = load_experiment(options.experiment)
        return options.handler(experiment, options) or 0
    except UserError as error:
        status, message = 2, f"error: {' '.join(str(error).split())}"
    except OSError as error:
        if (said := of_the_place(error)) is None:
            raise
        status, message = 2, f"error: {said}"
    except Stopped as stopped:
        status, message = STOPPED, f"{stopped}; the same command goes on from there"
    except KeyboardInterrupt:
        status, message = 130, "interrupted; the same command goes on where it can"
    # Outside the handlers, where the failed step and its progress bar are gone: this is the last line.
    # Of ranks that fail alike the first speaks; it ends the others while they wait.
    if int(os.environ.get("RANK", 0)):
        if status == STOPPED:
            return status  # all of them were; the first says so
        time.sleep(3)
    print(f"sbd {options.verb}: {message}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="sbd", description="Set Block Decoding: the steps of an experiment, one verb each.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser)

    def verb(name: str, handler: Handler, help: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        added.add_argument(
            "--experiment",
            default="experiments/tiny.yaml",
            metavar="FILE",
            help="what to run; paper is short for experiments/paper.yaml (default: %(default)s)",
        )
        added.set_defaults(handler=handler)
        return added

    verb("check", _check, "check an experiment file and list what it would run")
    verb("pin", _pin, "say which commits the hub's data sets and models are at, for the experiment file")
    problems = verb("problems", _problems, "write the problems of a source: train, validation and test")
    problems.add_argument("--source", required=True, help="a source of the experiment")
    prepare = verb("prepare", _prepare, "train or load the tokenizer and pack the training and validation rows")
    prepare.add_argument("--model", help="a model with a tokenizer of its own (default: the experiment's tokenizer)")
    prepare.add_argument("--threads", type=_positive, default=1, metavar="N", help="processes that tokenise streams")
    for added in (problems, prepare):
        added.add_argument(
            "--data", default="data", metavar="FOLDER", help="where files of local sources lie (default: %(default)s)"
        )
    train = verb("train", _train, "train a run of a model, or go on where it was stopped")
    evaluate = verb("evaluate", _evaluate, "generate and score a benchmark with a trained run and a decoder")
    masked = verb("masked-loss", _masked_loss, "measure the masked-token loss by slot of the block and by mask rate")
    score = verb("score", _score, "score a benchmark from its saved generations (for those that are scored apart)")
    for added in (train, evaluate, masked, score):
        added.add_argument("--model", required=True, help="a model of the experiment")
        added.add_argument("--run", required=True, help="a run of the experiment")
        added.add_argument("--threads", type=_positive, metavar="N", help="CPU threads (default: as torch decides)")
    train.add_argument(
        "--adopt",
        action="store_true",
        default=os.environ.get("SBD_ADOPT", "").lower() in ("1", "true", "yes"),  # as `adopt` of the workflow
        help="go on from a saved state of other settings too, and past what stopped it (or SBD_ADOPT=1)",
    )
    for added in (evaluate, score):
        added.add_argument("--decoder", required=True, help="a decoder of the experiment")
        added.add_argument("--benchmark", required=True, help="a benchmark of the experiment")
    verb("collect", _collect, "gather the records of all evaluations, and all held-out losses, in a CSV file each")
    tune = verb("tune", _tune, "pick the largest gamma that costs no more accuracy than you allow")
    tune.add_argument("--model", help="a model of the experiment")
    tune.add_argument("--run", help="a run of the experiment")
    tune.add_argument("--checkpoint", metavar="FOLDER", help="tune a folder or hub id, in place of --model and --run")
    tune.add_argument("--benchmark", required=True, help="a benchmark: its task, and its source's validation problems")
    tune.add_argument(
        "--problems", type=Path, metavar="FILE.jsonl", help="validation problems of your own for the task"
    )
    tune.add_argument("--baseline-run", metavar="RUN", help="what to compare with (default: the run itself)")
    tune.add_argument("--baseline-checkpoint", metavar="FOLDER", help="the same for --checkpoint")
    tune.add_argument("--output", type=Path, metavar="FOLDER", help="default: tune/MODEL/RUN of the results")
    grid = [0.01, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 1.5]
    tune.add_argument("--gamma", nargs="+", type=_not_negative, default=grid, metavar="G", help="default: %(default)s")
    tune.add_argument("--block-size", nargs="+", type=_positive, default=[16], metavar="K", help="default: 16")
    tune.add_argument("--margin", type=_not_negative, default=2.0, metavar="POINTS", help="default: %(default)s")
    tune.add_argument("--confidence", type=_share, default=0.95, metavar="C", help="default: %(default)s")
    tune.add_argument("--limit", type=_positive, metavar="N", help="use the first N problems (default: all)")
    plan = verb("plan", _plan, "reckon memory, time and cost of every job before it is run, and refuse what cannot fit")
    plan.add_argument(
        "--gpu", choices=["H100", "H200", "B200"], help="default of this and the others: the experiment's"
    )
    plan.add_argument("--memory-gib", type=float, metavar="N", help="of a GPU")
    plan.add_argument("--mfu", type=float, metavar="SHARE", help="share of the peak that is reached, 0 to 1")
    plan.add_argument("--price", type=float, metavar="N", help="of an hour of one GPU")
    generate = verb("generate", _generate, "continue prompts with any decoder of the experiment, and show how")
    generate.add_argument("prompt", nargs="+", help="the text to continue, or several")
    generate.add_argument("--model", required=True, metavar="FOLDER", help="a checkpoint folder or hub id")
    generate.add_argument("--decoder", default="gamma_0.1", help="a decoder of the experiment (default: %(default)s)")
    generate.add_argument("--max-new-tokens", type=_positive, default=128, metavar="N", help="default: %(default)s")
    generate.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default: %(default)s)")
    generate.add_argument("--top-k", type=_positive, metavar="N", help="sample among the N likeliest tokens only")
    generate.add_argument("--top-p", type=float, metavar="P", help="sample among the fewest tokens that hold P only")
    generate.add_argument("--samples", type=_positive, default=1, metavar="N", help="of each prompt (default: 1)")
    generate.add_argument("--seed", type=int, default=0, help="of sampling (default: %(default)s)")
    generate.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end at this text; repeatable")
    generate.add_argument("--stream", action="store_true", help="print the text as it becomes final")
    generate.add_argument("--dtype", choices=_DTYPES, default="auto", help="of the weights (default: the checkpoint's)")
    generate.add_argument("--trace", type=Path, metavar="FILE.html", help="write a page that shows every pass")
    traces = verb("traces", _traces, "write the page of `generate --trace` for each decoder, as the experiment asks")
    speed = verb("speed", _speed, "measure decoders side by side: tokens per second, time per pass, gain")
    speed.add_argument("--model", help="a model of the experiment")
    speed.add_argument("--run", help="a run of the experiment (default: as `speed` in the experiment says)")
    speed.add_argument(
        "--checkpoint", metavar="FOLDER", help="measure a folder or hub id, in place of --model and --run"
    )
    speed.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE.jsonl",
        help="problems of your own, a `prompt` and `solution` a line",
    )
    speed.add_argument("--decoder", nargs="+", metavar="NAME", help="decoders of the experiment (default: as it says)")
    speed.add_argument("--batch-size", nargs="+", type=_positive, metavar="N", help="default: as it says, or 1 8")
    speed.add_argument("--problems", type=_positive, metavar="N", help="default: as it says, or 16")
    speed.add_argument("--dtype", choices=_DTYPES, help="of the weights (default: as it says, or the checkpoint's)")
    speed.add_argument(
        "--clock", choices=("wall", "cpu"), help="cpu: the processor's time (default: as it says, or wall)"
    )
    speed.add_argument(
        "--output",
        type=Path,
        metavar="FILE.csv",
        help="default: speed/MODEL/RUN.csv of the results",
    )
    speed.add_argument("--figure", type=Path, metavar="FOLDER", help="draw the figure and the table of it there")
    lossless = verb("lossless", _lossless, "compare self-speculative with autoregressive decoding, token for token")
    lossless.add_argument("--model", required=True, help="a model of the experiment")
    lossless.add_argument("--run", required=True, help="a run of the experiment")
    lossless.add_argument("--decoder", default="self_speculative", help="default: %(default)s")
    lossless.add_argument("--batch-size", nargs="+", type=_positive, default=[1, 8], metavar="N", help="default: 1 8")
    lossless.add_argument(
        "--problems", type=_positive, default=500, metavar="N", help="of every benchmark (default: %(default)s)"
    )
    lossless.add_argument("--dtype", choices=_DTYPES, default="auto", help="of the weights (default: the checkpoint's)")
    lossless.add_argument(
        "--output", type=Path, metavar="FILE.csv", help="default: lossless/MODEL/RUN.csv of the results"
    )
    for added in (generate, speed):
        added.add_argument("--execution", choices=_EXECUTIONS, default="eager", help="of passes (default: %(default)s)")
    for added in (generate, traces, speed, lossless, tune):
        added.add_argument("--threads", type=_positive, metavar="N", help="CPU threads (default: as torch decides)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


_positive.__name__ = "whole number"  # what argparse calls a value that is none


def _not_negative(text: str) -> float:
    number = float(text)
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"must be 0 or more, not {number:g}")
    return number


_not_negative.__name__ = "number"


def _share(text: str) -> float:
    number = float(text)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"must lie between 0 and 1, not be {number:g}")
    return number


_share.__name__ = "number"


def _check(experiment: Experiment, options: argparse.Namespace) -> None:
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


def _pin(experiment: Experiment, options: argparse.Namespace) -> None:
    from sbd import hub

    print(f"{experiment_file(options.experiment)}: to read the same on another day, write as `revision` of")
    for key, commit in hub.pins_of(experiment):
        print(f"  {key}: {commit}")
    print(f"Until then the steps of this folder keep to them, as {experiment.revisions_folder} says.")


def _problems(experiment: Experiment, options: argparse.Namespace) -> None:
    _known(options, "source", experiment.data.sources)
    from sbd.steps import problems

    problems.run(experiment, options.source, options.data)


def _prepare(experiment: Experiment, options: argparse.Namespace) -> None:
    _be_quiet()
    from sbd.steps import prepare

    if options.model is not None:
        _known(options, "model", experiment.models)
    prepare.run(experiment, options.model, options.data, options.threads)


def _train(experiment: Experiment, options: argparse.Namespace) -> int | None:
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


def _evaluate(experiment: Experiment, options: argparse.Namespace) -> None:
    def stop(number: int, frame: object) -> None:
        name = f"{options.model} {options.run} {options.decoder} {options.benchmark}"
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


def _score(experiment: Experiment, options: argparse.Namespace) -> None:
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


def _masked_loss(experiment: Experiment, options: argparse.Namespace) -> None:
    _known(options, "model", experiment.models)
    _known(options, "run", experiment.runs)
    _set_threads(options.threads)
    from sbd.steps import masked_loss

    masked_loss.run(experiment, options.model, options.run)


def _collect(experiment: Experiment, options: argparse.Namespace) -> None:
    from sbd.steps import collect

    collect.run(experiment)


def _tune(experiment: Experiment, options: argparse.Namespace) -> None:
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


def _plan(experiment: Experiment, options: argparse.Namespace) -> None:
    from sbd.steps import plan

    changed = {name: getattr(options, name) for name in ("gpu", "memory_gib", "mfu", "price")}
    plan.run(experiment, **{name: value for name, value in changed.items() if value is not None})


def _generate(experiment: Experiment, options: argparse.Namespace) -> None:
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


def _traces(experiment: Experiment, options: argparse.Namespace) -> None:
    if experiment.traces is None:
        raise UserError(f"{options.experiment} has no key `traces`, which says what to show; see experiments/tiny.yaml")
    _set_threads(options.threads)
    from sbd.steps import traces

    traces.run(experiment, experiment.traces)


def _speed(experiment: Experiment, options: argparse.Namespace) -> None:
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
        shown = {"model": options.model, "run": settings.run}
        output = options.output or experiment.folder / "speed" / options.model / f"{settings.run}.csv"
    else:
        checkpoint, output = str(options.checkpoint), options.output
        shown = {"model": checkpoint, "run": "checkpoint"}
    speed.run(experiment, checkpoint, settings, output, shown, options.execution, options.prompts)
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
        "dtype": options.dtype,
        "clock": options.clock,
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


def _lossless(experiment: Experiment, options: argparse.Namespace) -> None:
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
    name = getattr(options, kind)
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
