"""Whole evaluations: scores, records, what is saved, and going on after an interruption."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import sbd
from sbd import evaluation, records
from sbd.data import encode_prompt
from sbd.errors import UserError
from sbd.evaluation import tasks
from sbd.evaluation.partial import Partial
from sbd.problems import split
from tests.evaluation_helpers import (
    KEY,
    TASKS,
    evaluate_texts,
    gsm8k_problems,
    jsonl,
    problems_of,
    scripted,
    tiny_stub,
)


@pytest.mark.parametrize("task", ["tiny_gsm", "tiny_code", "gsm8k"])
def test_gold_solutions_score_100_and_wrong_ones_0(task: str, tokenizer, tmp_path: Path, monkeypatch) -> None:
    problems = problems_of(task)
    gold = [problem["solution"] for problem in problems]
    made = evaluate_texts(gold, problems, task, tmp_path, tokenizer, monkeypatch)
    assert (made.n, made.score, made.score_high) == (len(problems), 100.0, 100.0)
    assert 40 < made.score_low < 100
    wrong = {
        "tiny_gsm": [text.replace("answer is ", "answer is 1") for text in gold],
        "tiny_code": [text.rsplit("return ", 1)[0] + "return 0.5" for text in gold],
        "gsm8k": [text + "1" for text in gold],
    }[task]
    made = evaluate_texts(wrong, problems, task, tmp_path, tokenizer, monkeypatch)
    assert (made.score, made.score_low) == (0.0, 0.0)
    made = evaluate_texts([gold[0], *wrong[1:]], problems, task, tmp_path, tokenizer, monkeypatch)
    assert made.score == pytest.approx(100 / len(problems))
    lines = evaluation.read_generations(tmp_path / "out" / "generations.jsonl")
    assert [line["correct"] for line in lines] == [1.0] + [0.0] * (len(problems) - 1)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("#### 5", 1),
        ("nonsense 7\n#### 5", 1),
        ("#### 5\n#### 6", 1),  # the first counts, as in GSM8K's own code
        ("#### 6\n#### 5", 0),
        ("#### 5.", 1),
        ("####5", 0),
        ("The answer is 5", 0),
        ("", 0),
    ],
)
def test_extraction_of_gsm8k(text: str, right: int, tokenizer, tmp_path: Path, monkeypatch) -> None:
    assert evaluate_texts([text], gsm8k_problems()[:1], "gsm8k", tmp_path, tokenizer, monkeypatch).score == 100 * right


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs Linux")
def test_code_that_misbehaves_is_named_in_the_record(tokenizer, tmp_path: Path, monkeypatch) -> None:
    problems = problems_of("tiny_code")[:5]
    bodies = [
        problems[0]["solution"],
        "    return (",
        "    import socket; socket.socket()",
        "    return 0.5",
        "    exit()",
    ]
    made = evaluate_texts(bodies, problems, "tiny_code", tmp_path, tokenizer, monkeypatch)
    assert made.outcomes == {"denied": 1, "error": 2, "failed": 1, "passed": 1}
    assert made.score == 20.0


def test_record_and_generations(tokenizer, tmp_path: Path, monkeypatch) -> None:
    problems = problems_of("tiny_gsm")
    made = evaluate_texts([p["solution"] for p in problems], problems, "tiny_gsm", tmp_path, tokenizer, monkeypatch)
    assert records.read_record(tmp_path / "out" / "record.json") == made
    lines = evaluation.read_generations(tmp_path / "out" / "generations.jsonl")
    assert [line["id"] for line in lines] == [problem["id"] for problem in problems]
    assert {
        "id", "prompt", "text", "tokens", "token_ids", "forward_passes", "prefill_passes", "revealed_at", "seconds",
        "truncated", "correct",
    } <= set(lines[0])  # fmt: skip
    for line, problem in zip(lines, problems, strict=True):
        assert (line["prompt"], line["text"]) == (problem["prompt"], problem["solution"])
        assert line["tokens"] == len(line["token_ids"]) == len(line["revealed_at"])
    assert made.tokens == sum(line["tokens"] for line in lines)
    assert made.forward_passes == sum((line["tokens"] + 1) // 2 for line in lines)
    assert made.tokens_per_forward == made.tokens / made.forward_passes
    assert made.prefill_passes == len(problems)
    assert made.seconds == pytest.approx(sum(line["seconds"] for line in lines))
    assert made.decoder_settings["sampler"]["gamma"] == 0.1
    assert made.generation_settings["max_gen_toks"] == 400
    assert made.first_prompt_ids == encode_prompt(tokenizer, problems[0]["prompt"])
    assert made.metric == "exact_match,answer"
    assert made.provenance.data_hash
    assert made.provenance.task_hash
    assert made.key.seed == 0


def test_limit_and_truncation(tokenizer, tmp_path: Path, monkeypatch) -> None:
    problems = problems_of("tiny_gsm")
    eos = tokenizer.eos_token_id
    monkeypatch.setitem(vars(sbd), "generate", scripted({n: [*range(50, 60)] if n else [60, eos] for n in range(2)}))
    made = evaluation.evaluate(
        (tiny_stub(tokenizer), tokenizer),
        TASKS / "tiny_gsm.yaml",
        jsonl(tmp_path / "test.jsonl", problems),
        sbd.Autoregressive(),
        tmp_path / "out",
        KEY,
        limit=2,
        max_new_tokens=10,
        batch_size=4,
    )
    assert (made.n, made.truncated, made.tokens) == (2, 1, 12)
    assert made.decoder_settings == {"kind": "Autoregressive"}


def test_scores_are_recomputed_from_the_saved_texts(tokenizer, tmp_path: Path, monkeypatch) -> None:
    problems = problems_of("tiny_code")
    gold = [problem["solution"] for problem in problems]
    made = evaluate_texts(gold, problems, "tiny_code", tmp_path, tokenizer, monkeypatch)
    monkeypatch.setitem(vars(sbd), "generate", None)  # no model is asked
    out, task, data = tmp_path / "out", TASKS / "tiny_code.yaml", tmp_path / "test.jsonl"
    assert evaluation.rescore(out, task, data) == made
    lines = evaluation.read_generations(out / "generations.jsonl")
    lines[2]["text"] = "    return None"
    jsonl(out / "generations.jsonl", lines)
    again = evaluation.rescore(out, task, data)
    assert again.score == pytest.approx(100 * 6 / 7)
    assert again.tokens == made.tokens
    assert records.read_record(out / "record.json") == again
    jsonl(data, [*problems[1:], problems[0]])
    with pytest.raises(UserError, match="meets another problem in the data"):
        evaluation.rescore(out, task, data)
    jsonl(data, problems[:3])
    with pytest.raises(UserError, match="7 generations are saved but the task has 3 problems"):
        evaluation.rescore(out, task, data)


def test_a_saved_text_may_hold_what_unicode_calls_a_line_break(tmp_path: Path) -> None:
    path, lines = tmp_path / "generations.jsonl", [{"text": "a\u2028b\x85c"}, {"text": "d"}]
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    assert evaluation.read_generations(path) == lines
    path.write_bytes(b"\xff\n")
    with pytest.raises(UserError, match=r"generations\.jsonl is damaged .*; delete it and evaluate again"):
        evaluation.read_generations(path)


def test_texts_are_kept_when_scoring_fails_and_no_record_looks_finished(tokenizer, tmp_path, monkeypatch) -> None:
    problems = problems_of("tiny_code")
    texts = [problem["solution"] for problem in problems]
    evaluate_texts(texts, problems, "tiny_code", tmp_path, tokenizer, monkeypatch)

    def refuse(*_: Any) -> None:
        raise UserError("this kernel cannot contain generated code")

    monkeypatch.setattr(tasks, "check_function", refuse)
    with pytest.raises(UserError, match="cannot contain"):
        evaluate_texts(texts, problems, "tiny_code", tmp_path, tokenizer, monkeypatch)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["generations.jsonl"]
    lines = evaluation.read_generations(tmp_path / "out" / "generations.jsonl")
    assert [line["text"] for line in lines] == texts
    assert {line["correct"] for line in lines} == {None}


@pytest.mark.parametrize(
    "decoder", [{"kind": "autoregressive"}, {"kind": "set_block", "block_size": 4, "sampler": {"gamma": 1}}]
)
def test_a_real_model_end_to_end(model, tokenizer, decoder: dict, tmp_path: Path) -> None:
    problems = problems_of("tiny_gsm")[:3]
    model.save_pretrained(tmp_path / "checkpoint")
    tokenizer.save_pretrained(tmp_path / "checkpoint")
    made = evaluation.evaluate(
        tmp_path / "checkpoint",
        TASKS / "tiny_gsm.yaml",
        jsonl(tmp_path / "test.jsonl", problems),
        decoder,
        tmp_path / "out",
        KEY,
        max_new_tokens=9,
        batch_size=2,
        device="cpu",
        config_hash="abc",
    )
    assert made.n == 3
    assert made.provenance.checkpoint_hash
    assert made.provenance.config_hash == "abc"
    assert made.provenance.dtype == "float32"
    assert made.tokens == 27
    assert made.forward_passes >= 9
    for line in evaluation.read_generations(tmp_path / "out" / "generations.jsonl"):
        assert not {tokenizer.mask_token_id, tokenizer.pad_token_id, tokenizer.bos_token_id} & set(line["token_ids"])


class Interrupted(Exception):
    """What ends an evaluation in the middle."""


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_an_interrupted_evaluation_goes_on_and_gives_the_same_record(
    model, tokenizer, tmp_path: Path, monkeypatch, torn: bool, apart: bool
) -> None:
    problems = problems_of("tiny_gsm")[:5]
    model.save_pretrained(tmp_path / "checkpoint")
    tokenizer.save_pretrained(tmp_path / "checkpoint")
    data, generate, batches = jsonl(tmp_path / "test.jsonl", problems), sbd.generate, []

    def answer(folder: str, last: int | None = None, **changed: Any) -> dict[str, Any]:
        """The record of an evaluation that is interrupted after its batch number ``last``; its batches are noted."""
        batches.clear()

        def limited(*args: Any, **kwargs: Any) -> Any:
            if len(batches) == last:
                raise Interrupted
            batches.append(kwargs["sample_ids"])
            return generate(*args, **kwargs)

        monkeypatch.setitem(vars(sbd), "generate", limited)
        task, decoder = TASKS / "tiny_gsm.yaml", {"kind": "set_block", "block_size": 4, "sampler": {"gamma": 1}}
        given = {"max_new_tokens": 9, "batch_size": 2, "device": "cpu", "resume": "code", **changed}
        run = evaluation.generate if apart else evaluation.evaluate
        made = run(tmp_path / "checkpoint", task, data, decoder, tmp_path / folder, KEY, **given)
        return made if isinstance(made, dict) else made.model_dump()

    whole = answer("whole")
    assert [len(rows) for rows in batches] == [2, 2, 1]
    order = list(batches)
    partial = tmp_path / "out/partial.jsonl"
    for begun, last in ((0, 1), (1, 1)):
        with pytest.raises(Interrupted):
            answer("out", last=last)
        assert batches == order[begun : begun + 1]
        if torn:
            with open(partial, "a") as file:
                file.write(partial.read_text().splitlines()[-1][:50])
    made = answer("out")
    assert batches == order[2:]
    assert [path.name for path in (tmp_path / "out").glob("partial*")] == []
    lines = [evaluation.read_generations(tmp_path / f / "generations.jsonl") for f in ("whole", "out")]
    assert made["seconds"] == pytest.approx(sum(line["seconds"] for line in lines[1]))
    free = {"seconds": 0, "tokens_per_second": 0}
    assert [{**line, **free} for line in lines[0]] == [{**line, **free} for line in lines[1]]
    for record in (whole, made):
        record.update(free)
        record["provenance"]["date"] = ""
    assert made == whole
    # Other settings, other code, another checkpoint: nothing is taken over.
    with pytest.raises(Interrupted):
        answer("out", last=1)
    before = partial.read_text()
    for change in ({"max_new_tokens": 8}, {"resume": "other code"}, {}):
        partial.write_text(before)
        if not change:
            (tmp_path / "checkpoint/training.json").write_text("{}")
        with pytest.raises(Interrupted):
            answer("out", last=1, **change)
        assert batches == order[:1]


@pytest.mark.parametrize("line", ["[]", "3", '{"1": 5}', '{"x": {}}'])
def test_a_damaged_line_of_what_was_generated_ends_what_is_kept(line: str, tmp_path: Path) -> None:
    path = tmp_path / "partial.jsonl"
    Partial(path, "code").begin(["a", "b"])
    Partial(path, "code").add({0: {"text": "kept"}})
    sound = path.read_text()
    path.write_text(sound + line + "\n" + '{"1": {"text": "behind it"}}\n')
    assert Partial(path, "code").begin(["a", "b"]) == {0: {"text": "kept"}}
    assert path.read_text() == sound


def test_the_likelihood_task(model, tokenizer, tmp_path: Path) -> None:
    data = jsonl(tmp_path / "test.jsonl", problems_of("tiny_gsm")[:3])
    made = evaluation.evaluate(
        (model, tokenizer), TASKS / "tiny_choice.yaml", data, {"kind": "autoregressive"}, tmp_path / "out", KEY
    )
    assert made.tokens_per_forward is None
    assert made.decoder_settings == {"kind": "loglikelihood"}
    lines = evaluation.read_generations(tmp_path / "out" / "generations.jsonl")
    for line, doc in zip(lines, tasks.next_steps(str(data))["test"], strict=True):
        expected = []
        whole = len(encode_prompt(tokenizer, doc["prompt"]))
        for choice in doc["choices"]:
            ids = torch.tensor([encode_prompt(tokenizer, doc["prompt"] + choice)])
            with torch.no_grad():
                scores = model(ids).logits[0, whole - 1 : -1].double().log_softmax(-1)
            expected.append(float(scores.gather(-1, ids[0, whole:, None]).sum()))
        assert line["loglikelihoods"] == pytest.approx(expected, abs=1e-3)
        assert line["correct"] == float(max(range(4), key=expected.__getitem__) == doc["label"])
    assert made.score == pytest.approx(100 * sum(line["correct"] for line in lines) / len(lines))
    with pytest.raises(UserError, match="saves no texts"):
        evaluation.rescore(tmp_path / "out", TASKS / "tiny_choice.yaml", data)


def test_bodies_differ_in_one_number_and_one_is_right(tmp_path: Path) -> None:
    problems = split("tiny_code", 3, train=0, validation=0, test=120)["test"]
    docs = tasks.bodies(str(jsonl(tmp_path / "test.jsonl", problems)))["test"]
    assert docs == tasks.bodies(str(tmp_path / "test.jsonl"))["test"]
    solutions = {problem["id"]: problem["solution"] for problem in problems}
    for doc in docs:
        right = [choice == solutions[doc["id"]] for choice in doc["choices"]]
        assert right == [index == doc["label"] for index in range(4)]
        words = [re.findall(r"\d+|\D+", choice) for choice in doc["choices"]]
        changed = [{*column} for column in zip(*words, strict=True) if len({*column}) > 1]
        assert len(changed) == 1
        assert len(changed[0]) == 4
    assert {doc["label"] for doc in docs} == {0, 1, 2, 3}
    assert len(docs) > 100


def test_choices_hold_one_right_step_at_varying_places(tmp_path: Path) -> None:
    problems = split("tiny_gsm", 3, train=0, validation=0, test=300)["test"]
    docs = tasks.next_steps(str(jsonl(tmp_path / "test.jsonl", problems)))["test"]
    for doc, problem in zip(docs, problems, strict=True):
        whole = problem["prompt"] + problem["solution"]
        fits = [whole.startswith(doc["prompt"] + choice) for choice in doc["choices"]]
        assert fits == [number == doc["label"] for number in range(4)]
        assert len(set(doc["choices"])) == 4
    assert all(45 < sum(doc["label"] == place for doc in docs) < 105 for place in range(4))
    assert sum("The answer is" in doc["choices"][0] for doc in docs) > 30


# ------------------------------------------------------------------------------------------------ bad input


def test_wrong_tasks_data_and_numbers_are_named(tokenizer, tmp_path: Path, monkeypatch) -> None:
    problems = problems_of("tiny_gsm")

    def run(**change: Any) -> None:
        given = {
            "task": TASKS / "tiny_gsm.yaml",
            "data": jsonl(tmp_path / "t.jsonl", problems),
            "batch_size": 1,
            **change,
        }
        task, data = given.pop("task"), given.pop("data")
        evaluation.evaluate((tiny_stub(tokenizer), tokenizer), task, data, None, tmp_path / "o", KEY, **given)

    with pytest.raises(UserError, match=r"no such task file.*there: gsm8k.yaml, tiny_choice.yaml"):
        run(task=TASKS / "tiny_gms.yaml")
    with pytest.raises(UserError, match="no such data file"):
        run(data=tmp_path / "nothing.jsonl")
    cut = tmp_path / "cut.jsonl"
    cut.write_text(json.dumps(problems[0]) + "\n" + json.dumps(problems[1])[:50])
    with pytest.raises(UserError, match=r"cut.jsonl, line 2: not JSON"):
        run(data=cut)
    with pytest.raises(UserError, match="line 1: no text `answer`"):
        run(data=jsonl(tmp_path / "a.jsonl", [{"prompt": "a\n", "solution": "b"}]))
    with pytest.raises(UserError, match="line 1: no entry_point or no tests"):
        run(task=TASKS / "tiny_code.yaml")
    for name in ("batch_size", "limit", "max_new_tokens"):
        with pytest.raises(UserError, match=f"{name} must be a whole number of 1 or more, not 0"):
            run(**{name: 0})
    assert not (tmp_path / "o" / "record.json").exists()


@pytest.mark.parametrize("task", sorted(path.stem for path in TASKS.glob("*.yaml")))
def test_task_files_load_and_their_prompts_are_those_of_the_data(task: str, tmp_path: Path) -> None:
    source = {"tiny_choice": "tiny_gsm", "tiny_code_choice": "tiny_code"}.get(task, task)
    problems = problems_of(source)
    loaded: Any = evaluation.load_task(TASKS / f"{task}.yaml", jsonl(tmp_path / "test.jsonl", problems))
    assert loaded.task_name == task
    loaded.build_all_requests(limit=3, rank=0, world_size=1)
    first = loaded.instances[0].args[0]
    assert first.startswith(problems[0]["prompt"])
    if task != "tiny_choice":
        assert first == problems[0]["prompt"]
