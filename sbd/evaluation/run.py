"""One evaluation: generate, save, score, record. Scoring replays what was saved, so it can be repeated."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from lm_eval import evaluator
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.task import Task
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from sbd.device import device_name
from sbd.errors import UserError
from sbd.evaluation.decoders import describe_decoder
from sbd.evaluation.model import SBDLM, positive
from sbd.evaluation.partial import PARTIAL_NAME, Partial
from sbd.evaluation.task_files import load_task
from sbd.files import write_json, write_text
from sbd.records import (
    GENERATIONS_NAME,
    RECORD_NAME,
    Key,
    Provenance,
    Record,
    provenance,
    read_record,
    summarise,
    write_record,
)
from sbd.sandbox import STATUSES

Checkpoint = str | Path | tuple[PreTrainedModel, PreTrainedTokenizerBase]
GENERATED_NAME = "generated.json"


@dataclasses.dataclass(frozen=True)
class Settings:
    """How a benchmark is answered.

    prompt and thinking: see ``sbd.config.BenchmarkConfig``. generation: more generation_kwargs over those of the task
    (temperature, top_p, until, ...). resume: a hash of the code; with it, finished batches are kept in a file of the
    output, and the same evaluation goes on from them. keep: that file stays when all is done, so that the same
    evaluation once more generates nothing.
    """

    max_new_tokens: int | None = None
    limit: int | None = None
    batch_size: int = 16
    prompt: Literal["text", "chat"] = "text"
    thinking: bool = False
    generation: Mapping[str, Any] | None = None
    dtype: torch.dtype | None = None
    device: str = "auto"
    config_hash: str = ""
    resume: str | None = None
    keep: bool = False


class Replay(LM):
    """Answers with texts that were generated before, in the order of the requests."""

    def __init__(self, texts: Sequence[str]):
        super().__init__()
        self.texts = texts

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """The saved texts; there must be one for every request."""
        if len(requests) != len(self.texts):
            raise UserError(
                f"{len(self.texts)} generations are saved but the task has {len(requests)} problems; evaluate again"
            )
        return list(self.texts)

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Not saved."""
        raise NotImplementedError("saved texts have no log-likelihood")

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Not saved."""
        raise NotImplementedError("saved texts have no log-likelihood")


def evaluate(
    checkpoint: Checkpoint,
    task: str | Path,
    data: str | Path,
    decoder: Any,
    output: str | Path,
    key: Key | Mapping[str, Any],
    **settings: Any,
) -> Record:
    """Run a benchmark and write ``generations.jsonl`` and then ``record.json`` into the folder ``output``.

    task: an lm-eval YAML file; data: the problems it reads (JSONL); decoder: a decoder or its mapping; settings: those
    of :class:`Settings`. The record's seed is the seed.
    """
    output, given = Path(output), Settings(**settings)
    (output / RECORD_NAME).unlink(missing_ok=True)
    lines, made = _answer(checkpoint, task, data, decoder, key, given, output)
    if lines[0]["correct"] is None:
        _write_lines(lines, output)
        lines = _scored(load_task(task, data, given.thinking), lines, given.limit)
    record = _write_record(made, lines, output)
    _forget(output, given)
    return record


def generate(
    checkpoint: Checkpoint,
    task: str | Path,
    data: str | Path,
    decoder: Any,
    output: str | Path,
    key: Key | Mapping[str, Any],
    **settings: Any,
) -> dict[str, Any]:
    """As ``evaluate``, but without a score: writes ``generations.jsonl`` and then ``generated.json``, for ``score``."""
    output = Path(output)
    (output / GENERATED_NAME).unlink(missing_ok=True)
    given = Settings(**settings)
    lines, made = _answer(checkpoint, task, data, decoder, key, given, output)
    if lines[0]["correct"] is not None:
        raise UserError(f"{task} is a likelihood task, which leaves no texts to score apart; set scored: at_once")
    _write_lines(lines, output)
    write_json(output / GENERATED_NAME, made)
    _forget(output, given)
    return made


def _forget(output: Path, given: Settings) -> None:
    """Delete the finished batches of an evaluation that is done."""
    if not given.keep:
        (output / PARTIAL_NAME).unlink(missing_ok=True)


def score(
    generated: str | Path,
    output: str | Path,
    task: str | Path,
    data: str | Path,
    make: str = "python -m sbd evaluate",
) -> Record:
    """Score what ``generate`` left in one folder and write generations and record into another; needs no model.

    make: the command that generates again, for messages.
    """
    generated = Path(generated)
    try:
        made = json.loads((generated / GENERATED_NAME).read_text(encoding="utf-8"))
        # Now rather than when all is scored.
        Key.model_validate(made["key"])
        Provenance.model_validate(made["provenance"])
        for name, kind in (("seconds", float), ("batch_size", int), ("decoder_settings", dict)):
            kind(made[name])
        thinking = bool(dict(made["generation_settings"]).get("thinking"))
    except FileNotFoundError:
        raise UserError(f"no finished generations in {generated} (no {GENERATED_NAME}); evaluate first") from None
    except (ValueError, LookupError, TypeError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise UserError(f"{generated / GENERATED_NAME} is damaged ({reason}); run `{make}` again") from None
    lines = _read_texts(generated / GENERATIONS_NAME, make)
    loaded = load_task(task, data, thinking)
    return _write_record({**made, "metric": _metric(loaded)[0]}, _scored(loaded, lines, len(lines)), Path(output))


def _answer(
    checkpoint: Checkpoint,
    task: str | Path,
    data: str | Path,
    decoder: Any,
    key: Key | Mapping[str, Any],
    given: Settings,
    output: Path,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The lines of all problems (scored only for a likelihood task), and the fields of the record they do not give."""
    key = key if isinstance(key, Key) else Key(**key)
    loaded = load_task(task, data, given.thinking)
    arguments = {**(given.generation or {})}
    if given.max_new_tokens is not None:
        arguments["max_gen_toks"] = positive("max_new_tokens", given.max_new_tokens)
    model, tokenizer = checkpoint if isinstance(checkpoint, tuple) else (checkpoint, None)
    lm = SBDLM(
        model,
        tokenizer,
        decoder,
        batch_size=given.batch_size,
        device=given.device,
        dtype=given.dtype,
        seed=key.seed,
        thinking=given.thinking,
        label=f"{key.model} {key.run} {key.decoder} {key.benchmark}",
    )
    chat = given.prompt == "chat"
    if chat and not lm.tokenizer.chat_template:
        raise UserError("the benchmark asks for a chat, but the checkpoint's tokenizer has no chat template")
    generates = loaded.get_config("output_type") == "generate_until"
    asked: dict[str, Any] = {}
    # Before hours are spent: what is hashed here is what is read.
    origin = provenance(
        device=device_name(lm.model.device),
        dtype=str(lm.model.dtype).removeprefix("torch."),
        threads=torch.get_num_threads(),
        config_hash=given.config_hash,
        task=task,
        data=data,
        checkpoint=checkpoint if isinstance(checkpoint, (str, Path)) else None,
    ).model_dump()
    described = describe_decoder(lm.decoder) if generates else {"kind": "loglikelihood"}
    started = time.perf_counter()
    if generates:
        loaded.set_config(key="generation_kwargs", value=arguments, update=True)
        asked = {
            **(loaded.get_config("generation_kwargs") or {}),
            "prompt": given.prompt,
            "thinking": given.thinking,
            "num_fewshot": loaded.get_config("num_fewshot") or 0,
        }
        if given.resume is not None:
            named = {name: value for name, value in origin.items() if not name.startswith(("git_", "config_", "date"))}
            output.mkdir(parents=True, exist_ok=True)
            lm.partial = Partial(
                output / PARTIAL_NAME,
                [named, key.model_dump(), described, asked, given.batch_size, given.resume],
            )
        samples = _run_task(lm, loaded, given.limit, score=False, chat=chat)
        lines = [_line(sample["doc"], sample["doc_id"], lm.statistics[i]) for i, sample in enumerate(samples)]
        seconds = sum(statistic["seconds"] for statistic in lm.statistics)
        first_prompt = lm.statistics[0]["prompt_ids"]
    else:
        lines = [_likelihood_line(s, loaded) for s in _run_task(lm, loaded, given.limit, score=True, chat=chat)]
        seconds, first_prompt = time.perf_counter() - started, lm.tok_encode(lines[0]["prompt"])
    made = {
        "key": key.model_dump(),
        "seconds": seconds,
        "metric": _metric(loaded)[0],
        "decoder_settings": described,
        "generation_settings": asked,
        "batch_size": given.batch_size,
        "first_prompt_ids": first_prompt,
        "provenance": origin,
    }
    return lines, made


def _write_record(made: dict[str, Any], lines: list[dict[str, Any]], output: Path) -> Record:
    """Write the scored lines and then the record that counts them."""
    _write_lines(lines, output)
    record = Record.model_validate({**made, **summarise(lines, made["seconds"])})
    write_record(record, output / RECORD_NAME)
    return record


def rescore(output: str | Path, task: str | Path, data: str | Path) -> Record:
    """Score the saved generations of ``output`` again, with today's task file, and rewrite record and generations."""
    output = Path(output)
    record = read_record(output / RECORD_NAME)
    if record.decoder_settings.get("kind") == "loglikelihood":
        raise UserError(f"{output} is of a likelihood task, which saves no texts to score again; evaluate it again")
    lines = _read_texts(output / GENERATIONS_NAME)
    thinking = bool(record.generation_settings.get("thinking"))
    lines = _scored(load_task(task, data, thinking), lines, limit=len(lines))
    counted = summarise(lines, record.seconds)
    _write_lines(lines, output)
    changed = record.model_copy(update={**counted, "metric": _metric(load_task(task, data, thinking))[0]})
    write_record(changed, output / RECORD_NAME)
    return changed


def read_generations(path: str | Path) -> list[dict[str, Any]]:
    """The lines of a generations file; a missing or damaged one is a UserError."""
    try:
        # Not str.splitlines, which also splits at signs that a text may hold, such as U+2028.
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file]
    except FileNotFoundError:
        raise UserError(f"no generations at {path}; evaluate first") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is damaged ({error}); delete it and evaluate again") from None


def _read_texts(path: Path, make: str = "python -m sbd evaluate") -> list[dict[str, Any]]:
    """The lines of a generations file, each with all that a record counts."""
    lines = read_generations(path)
    known = ("id", "text", "tokens", "forward_passes", "prefill_passes", "truncated")
    for number, line in enumerate(lines, 1):
        missing = [name for name in known if not isinstance(line, dict) or name not in line]
        if missing:
            raise UserError(f"{path}, line {number}: {', '.join(missing)} missing; delete it and run `{make}` again")
    return lines


def _run_task(lm: LM, task: Task, limit: int | None, score: bool, chat: bool = False) -> list[dict[str, Any]]:
    """lm-eval's samples of a task, one per problem in the order of the file (with the filter that is scored)."""
    if limit is not None:
        positive("limit", limit)
    if not score:
        task.override_metric("bypass")
    task.set_fewshot_seed(seed=0)
    task_name = task.task_name
    results: Any = evaluator.evaluate(
        lm,
        {task_name: task},
        limit=limit,
        bootstrap_iters=0,
        log_samples=True,
        apply_chat_template=chat,
        fewshot_as_multiturn=chat,
    )
    samples = results["samples"][task_name]
    wanted = _metric(task)[1] if score else samples[0]["filter"]
    chosen = [sample for sample in samples if sample["filter"] == wanted]
    if not chosen:
        filters = sorted({sample["filter"] for sample in samples})
        raise UserError(f"task {task_name} scores the filter {wanted!r}, which it has not; it has {filters}")
    return sorted(chosen, key=lambda sample: sample["doc_id"])


def _scored(task: Task, lines: list[dict[str, Any]], limit: int | None) -> list[dict[str, Any]]:
    """The lines with ``correct`` and, for code, ``outcome``, by replaying their texts through the task."""
    metric = _metric(task)[0].split(",")[0]
    task.set_config(key="num_fewshot", value=0)  # the prompts were asked long ago; making them again takes minutes
    samples = _run_task(Replay([line["text"] for line in lines]), task, limit, score=True)
    scored = []
    for line, sample in zip(lines, samples, strict=True):
        if str(sample["doc"].get("id", sample["doc_id"])) != line["id"]:
            raise UserError(f"the generation of {line['id']} meets another problem in the data; evaluate again")
        outcome = next((status for status in STATUSES if sample.get(status)), None)
        scored.append({**line, "correct": float(sample[metric]), **({"outcome": outcome} if outcome else {})})
    return scored


def _metric(task: Task) -> tuple[str, str]:
    """The score's name as lm-eval writes it ("exact_match,strict-match"), and its filter alone."""
    name = str(task.config.metadata["score"])  # type: ignore[index]
    return name, name.partition(",")[2] or "none"


def _line(doc: dict[str, Any], doc_id: int, statistic: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in statistic.items() if name != "prompt_ids"}
    return {"id": str(doc.get("id", doc_id)), **kept, "correct": None}


def _likelihood_line(sample: dict[str, Any], task: Task) -> dict[str, Any]:
    """A line of a likelihood task: nothing is generated; the log-likelihood of every choice stands in its place."""
    metric = _metric(task)[0].split(",")[0]
    return {
        "id": str(sample["doc"].get("id", sample["doc_id"])),
        "prompt": sample["arguments"][0][0],
        "loglikelihoods": [response[0] for response in sample["filtered_resps"]],
        "tokens": 0,
        "forward_passes": 0,
        "prefill_passes": 0,
        "truncated": False,
        "correct": float(sample[metric]),
    }


def _write_lines(lines: Sequence[dict[str, Any]], output: Path) -> None:
    write_text(output / GENERATIONS_NAME, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
