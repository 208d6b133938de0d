"""The command line: ``python -m sbd VERB``, one verb per step of the workflow.

Nothing heavy is imported before a verb runs, so that help and mistakes answer at once. A mistake of the user ends with
one line on the error stream and exit status 2.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from sbd.config import Experiment, load_experiment
from sbd.errors import UserError

Handler = Callable[[Experiment, argparse.Namespace], None]


class _Parser(argparse.ArgumentParser):
    """A parser whose complaint is one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; returns the exit status: 0, or 2 after a mistake of the user."""
    options = _parser().parse_args(arguments)
    try:
        experiment = load_experiment(options.experiment)
        options.handler(experiment, options)
        return 0
    except UserError as error:
        status, message = 2, f"error: {' '.join(str(error).split())}"
    except KeyboardInterrupt:
        status, message = 130, "interrupted; the same command goes on where it can"
    # Outside the handlers, where the failed step and its progress bar are gone: this is the last line.
    print(f"sbd {options.verb}: {message}", file=sys.stderr)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="sbd", description="Set Block Decoding: the steps of an experiment, one verb each.")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=_Parser)

    def verb(name: str, handler: Handler, help: str) -> argparse.ArgumentParser:
        added = verbs.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        added.add_argument(
            "--experiment", default="experiments/tiny.yaml", metavar="FILE", help="what to run (default: %(default)s)"
        )
        added.set_defaults(handler=handler)
        return added

    verb("check", _check, "check an experiment file and list what it would run")
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
    score = verb("score", _score, "score a benchmark from its saved generations (for those that are scored apart)")
    for added in (train, evaluate, score):
        added.add_argument("--model", required=True, help="a model of the experiment")
        added.add_argument("--run", required=True, help="a run of the experiment")
        added.add_argument("--threads", type=_positive, metavar="N", help="CPU threads (default: as torch decides)")
    for added in (evaluate, score):
        added.add_argument("--decoder", required=True, help="a decoder of the experiment")
        added.add_argument("--benchmark", required=True, help="a benchmark of the experiment")
    verb("collect", _collect, "gather the records of all evaluations, and all held-out losses, in a CSV file each")
    generate = verb("generate", _generate, "continue one prompt with any decoder of the experiment, and show how")
    generate.add_argument("prompt", help="the text to continue")
    generate.add_argument("--model", required=True, metavar="FOLDER", help="a checkpoint folder or hub id")
    generate.add_argument("--decoder", default="gamma_0.1", help="a decoder of the experiment (default: %(default)s)")
    generate.add_argument("--max-new-tokens", type=_positive, default=128, metavar="N", help="default: %(default)s")
    generate.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (default: %(default)s)")
    generate.add_argument("--seed", type=int, default=0, help="of sampling (default: %(default)s)")
    generate.add_argument("--trace", type=Path, metavar="FILE.html", help="write a page that shows every pass")
    speed = verb("speed", _speed, "measure decoders side by side: tokens per second, time per pass, gain")
    speed.add_argument("--model", required=True, help="a model of the experiment")
    speed.add_argument("--run", required=True, help="a run of the experiment")
    speed.add_argument("--decoder", nargs="+", required=True, metavar="NAME", help="decoders of the experiment")
    speed.add_argument("--batch-size", nargs="+", type=_positive, default=[1, 8], metavar="N", help="default: 1 8")
    speed.add_argument("--problems", type=_positive, default=16, metavar="N", help="default: %(default)s")
    for added in (generate, speed):
        added.add_argument("--threads", type=_positive, metavar="N", help="CPU threads (default: as torch decides)")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be 1 or more, not {number}")
    return number


_positive.__name__ = "whole number"  # what argparse calls a value that is none


def _check(experiment: Experiment, options: argparse.Namespace) -> None:
    runs = [f"{name} (from {run.parent})" if run.parent else name for name, run in experiment.runs.items()]
    print(f"{options.experiment} is valid")
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
    trainings: set[tuple[str, str]] = set()
    for model, run, _, _ in jobs:
        ancestor: str | None = run
        while ancestor is not None:
            trainings.add((model, ancestor))
            ancestor = experiment.runs[ancestor].parent
    print(f"{len(trainings)} trainings and {len(jobs)} evaluations; results go to {experiment.folder}/")


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


def _train(experiment: Experiment, options: argparse.Namespace) -> None:
    _known(options, "model", experiment.models)
    _known(options, "run", experiment.runs)
    _set_threads(options.threads)
    from sbd.steps import train

    train.run(experiment, options.model, options.run)


def _evaluate(experiment: Experiment, options: argparse.Namespace) -> None:
    _evaluation(experiment, options).run(experiment, options.model, options.run, options.decoder, options.benchmark)


def _score(experiment: Experiment, options: argparse.Namespace) -> None:
    _evaluation(experiment, options).score(experiment, options.model, options.run, options.decoder, options.benchmark)


def _evaluation(experiment: Experiment, options: argparse.Namespace) -> Any:
    """The steps of an evaluation, when all that it names is known."""
    _known(options, "model", experiment.models)
    _known(options, "run", experiment.runs)
    _known(options, "decoder", experiment.decoders)
    _known(options, "benchmark", experiment.benchmarks)
    os.environ["TQDM_DISABLE"] = "1"  # lm-eval's own bars; ours ask to be shown. tqdm reads it when it is imported
    _set_threads(options.threads)
    from sbd.steps import evaluate

    return evaluate


def _collect(experiment: Experiment, options: argparse.Namespace) -> None:
    from sbd.steps import collect

    collect.run(experiment)


def _generate(experiment: Experiment, options: argparse.Namespace) -> None:
    _known(options, "decoder", experiment.decoders)
    _set_threads(options.threads)
    from sbd.steps import generate

    generate.run(
        options.model,
        options.prompt,
        options.decoder,
        experiment.decoders[options.decoder],
        options.max_new_tokens,
        options.temperature,
        options.seed,
        options.trace,
    )


def _speed(experiment: Experiment, options: argparse.Namespace) -> None:
    _known(options, "model", experiment.models)
    _known(options, "run", experiment.runs)
    for name in options.decoder:
        if name not in experiment.decoders:
            raise UserError(f"unknown decoder {name!r}; {options.experiment} has {', '.join(experiment.decoders)}")
    _set_threads(options.threads)
    from sbd.steps import speed

    speed.run(experiment, options.model, options.run, options.decoder, options.batch_size, options.problems)


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
