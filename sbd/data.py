"""Prompts and solutions -> a tokenizer and packed rows of documents (Arrow).

A problem is a JSON object with "prompt" and "solution"; a document is ``BOS prompt solution EOS``. Prompt and solution
are tokenised apart and joined, here and at evaluation, so that no token straddles the point where decoding begins.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, concatenate_datasets, load_from_disk
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from sbd.batching import Document
from sbd.errors import UserError
from sbd.files import half_character, write_json

SPECIAL_TOKENS = {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>", "mask_token": "<|mask|>"}

_BATCH = 1000
"""Documents that are tokenised at once."""


def read_problems(path: str | Path, limit: int | None = None) -> list[dict[str, Any]]:
    """The problems of a JSONL file; a missing, empty or damaged file is a UserError that names the line."""
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file of problems in it")
    if not path.is_file():
        raise UserError(f"no such data file: {path}; check the path, or run the step that makes it")
    problems = []
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            if limit is not None and len(problems) == limit:
                break
            try:
                problem = json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise UserError(f"{path}, line {number}: not UTF-8 ({error}); save it in that encoding") from None
            except ValueError as error:  # of JSON, or of a number too long for Python
                reason = error.msg if isinstance(error, json.JSONDecodeError) else error
                raise UserError(
                    f"{path}, line {number}: not JSON ({reason}); is the file cut off? make or copy it again"
                ) from None
            if not isinstance(problem, dict):
                raise UserError(f'{path}, line {number}: no problem such as {{"prompt": "...", "solution": "..."}}')
            for key in ("prompt", "solution"):
                if not isinstance(text := problem.get(key), str) or not text:
                    what = "missing or empty" if text in (None, "") else "is no text"
                    raise UserError(f"{path}, line {number}: {key} {what}; each problem needs a text there")
            if half := half_character(problem):
                raise UserError(f"{path}, line {number}: {half} is half of a character; take it out of the text")
            problems.append(problem)
    if not problems:
        raise UserError(f"{path} holds no problem; make or copy it again")
    return problems


def train_tokenizer(texts: Iterable[str], vocab_size: int, split_digits: bool = False) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with BOS, EOS, padding and mask tokens of their own, trained on ``texts``."""
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    steps = [pre_tokenizers.Digits(individual_digits=True), byte_level] if split_digits else [byte_level]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)  # type: ignore[assignment]
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **SPECIAL_TOKENS)


def encode_prompt(tokenizer: PreTrainedTokenizerBase, prompt: str) -> list[int]:
    """Token ids of a prompt, with exactly one BOS in front (none where the tokenizer has no BOS).

    A text that spells BOS itself, as chat templates do, gets no second one; a second one is an error.
    """
    return _encode_prompts(tokenizer, [prompt])[0]


def _encode_prompts(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str]) -> list[list[int]]:
    for prompt in prompts:
        if half := half_character(prompt):
            raise UserError(f"a prompt holds {half}, half of a character; take it out of the text")
    bos: Any = tokenizer.bos_token_id
    encoded = []
    for ids in _encode(tokenizer, prompts):
        if not ids:
            raise UserError("the prompt is empty; give it at least one character")
        if bos is not None:
            ids = ids if ids[0] == bos else [bos, *ids]
            if ids.count(bos) != 1:
                raise UserError(f"a prompt holds {ids.count(bos)} start tokens, not one; remove them from its text")
        encoded.append(ids)
    return encoded


def encode_document(tokenizer: PreTrainedTokenizerBase, prompt: str, solution: str, sample: int) -> Document:
    """``BOS prompt solution EOS`` as a document; text that spells the mask token is refused."""
    return encode_documents(tokenizer, [(prompt, solution)], sample)[0]


def encode_documents(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[tuple[str, str]], first_sample: int
) -> list[Document]:
    """The same of several (prompt, solution), as samples from ``first_sample`` on; a tokenizer is fast in batches."""
    if not texts:
        return []
    heads = _encode_prompts(tokenizer, [prompt for prompt, _ in texts])
    bodies = _encode(tokenizer, [solution for _, solution in texts])
    mask = tokenizer.mask_token_id
    documents = []
    for sample, (head, body) in enumerate(zip(heads, bodies, strict=True), first_sample):
        if mask in head or mask in body:
            raise UserError(
                f"problem {sample} contains the mask token {tokenizer.mask_token!r}; remove it from the data"
            )
        tokens = np.array([*head, *body, tokenizer.eos_token_id], dtype=np.int64)
        documents.append(Document(tokens, len(head), sample))
    return documents


def _encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    return tokenizer(list(texts), add_special_tokens=False)["input_ids"]  # type: ignore[return-value]


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Put documents into rows of at most ``capacity`` tokens: best fit, in the given order; returns indices per row."""
    rows: list[list[int]] = []
    open_rows: list[list[int]] = [[] for _ in range(capacity + 1)]  # by free space
    for index, length in enumerate(lengths):
        if length > capacity:
            raise UserError(
                f"document {index} has {length} tokens, more than the row length {capacity}; raise sequence_length"
            )
        free = next((space for space in range(length, capacity + 1) if open_rows[space]), None)
        if free is None:
            rows.append([])
            row, free = len(rows) - 1, capacity
        else:
            row = open_rows[free].pop(0)
        rows[row].append(index)
        open_rows[free - length].append(row)
    return rows


def prepare(
    sources: Sequence[str | Path],
    output: str | Path,
    tokenizer: PreTrainedTokenizerBase,
    sequence_length: int,
    seed: int,
    too_long: str = "refuse",
) -> dict[str, Any]:
    """Tokenise, shuffle and pack the problems of ``sources`` into ``output``; returns the manifest it writes there.

    ``output`` gets a Hugging Face dataset, ``tokenizer/`` and ``manifest.json`` (rows, tokens, padding, drops).
    Documents longer than ``sequence_length`` are refused, or dropped and counted when ``too_long`` is "drop".
    """
    output = Path(output)
    problems = [(str(path), problem) for path in sources for problem in read_problems(path)]
    order = np.random.default_rng([seed, len(problems)]).permutation(len(problems))
    documents, dropped = [], 0
    for first in range(0, len(order), _BATCH):
        batch = [problems[index] for index in order[first : first + _BATCH]]
        texts = [(problem["prompt"], problem["solution"]) for _, problem in batch]
        for (path, _), document in zip(batch, encode_documents(tokenizer, texts, first), strict=True):
            if len(document.tokens) <= sequence_length:
                documents.append(document)
            elif too_long == "drop":
                dropped += 1
            else:
                raise UserError(
                    f"{path}: a document has {len(document.tokens)} tokens, over sequence_length {sequence_length}; "
                    "raise it, or set too_long: drop to leave such documents out and count them"
                )
    if not documents:
        raise UserError(f"no document fits sequence_length {sequence_length}; raise it")
    rows = pack([len(document.tokens) for document in documents], sequence_length)
    table = {"input_ids": [], "lengths": [], "prompt_lengths": [], "samples": []}
    for row in rows:
        members = [documents[index] for index in row]
        table["input_ids"].append(np.concatenate([member.tokens for member in members]).astype(np.int32))
        table["lengths"].append([len(member.tokens) for member in members])
        table["prompt_lengths"].append([member.prompt_length for member in members])
        table["samples"].append([member.sample for member in members])
    tokens = sum(len(document.tokens) for document in documents)
    manifest = {
        "documents": len(documents),
        "dropped_too_long": dropped,
        "rows": len(rows),
        "sequence_length": sequence_length,
        "tokens": tokens,
        "solution_tokens": sum(len(document.tokens) - document.prompt_length for document in documents),
        "padding_share": round(1 - tokens / (len(rows) * sequence_length), 4),
        "vocabulary": len(tokenizer),
        "sources": [Path(path).name for path in sources],
    }
    # The manifest is written last and names the data complete; until then it is a folder of another name.
    partial = output.with_name(f".{output.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    Dataset.from_dict(table).save_to_disk(partial / "rows")
    tokenizer.save_pretrained(partial / "tokenizer")
    write_json(partial / "manifest.json", manifest)
    replace_folder(partial, output)
    return manifest


def replace_folder(new: Path, target: Path) -> None:
    """Move the folder ``new`` to ``target``, in place of what was there."""
    if target.exists():
        old = target.with_name(f".{target.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        new.rename(target)
        shutil.rmtree(old)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        new.rename(target)


def shard_files(folder: Path, source: str) -> list[Path]:
    """The finished shards of a streamed source, in order."""
    return sorted(path for path in (folder / "shards" / source).glob("*.arrow") if path.stem.isdigit())


class PackedRows:
    """The packed rows of a prepared folder: ``rows[i]`` is a list of documents.

    They lie in ``rows/``, or in ``shards/SOURCE/NUMBER.arrow`` (see :mod:`sbd.streaming`) with an order that mixes.
    make: the command that prepares the folder, for messages.
    """

    def __init__(self, folder: str | Path, make: str = "python -m sbd prepare"):
        folder = Path(folder)
        part = folder / "manifest.json"
        if not part.is_file():
            raise UserError(f"{folder} is no prepared data (no manifest.json); run `{make}` first")
        self._order: np.ndarray | None = None
        try:
            self.manifest = json.loads(part.read_text(encoding="utf-8"))
            if not isinstance(self.manifest, dict) or not {"rows", "sources"} <= self.manifest.keys():
                raise ValueError("it says nothing of rows and sources")
            part = folder / "tokenizer"
            self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder / "tokenizer")
            part = folder / ("shards" if self.manifest.get("streamed") else "rows")
            if self.manifest.get("streamed"):
                files = [str(path) for name in self.manifest["sources"] for path in shard_files(folder, name)]
                rows = concatenate_datasets([Dataset.from_file(path) for path in files])
                if (folder / "order.npy").is_file():
                    self._order = np.load(folder / "order.npy", mmap_mode="r")
            else:
                rows = load_from_disk(str(folder / "rows"))
        # Errors of pyarrow are among the first two; the others are of JSON that is of another shape.
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            raise UserError(f"{part} is damaged ({reason}); run `{make}` again") from None
        self._rows: Any = rows.with_format("numpy")
        for found, said in ((len(rows), self.manifest.get("packed_rows")), (len(self), self.manifest["rows"])):
            if said is not None and found != said:
                raise UserError(f"{folder}: {found} rows, but the manifest says {said}; run `{make}` again")

    def __len__(self) -> int:
        return len(self._rows) if self._order is None else len(self._order)

    def __getitem__(self, index: int) -> list[Document]:
        row: dict[str, Any] = self._rows[index if self._order is None else int(self._order[index])]
        ends = np.cumsum(row["lengths"])
        parts = np.split(row["input_ids"].astype(np.int64), ends[:-1])
        return [
            Document(tokens, int(prompt), int(sample))
            for tokens, prompt, sample in zip(parts, row["prompt_lengths"], row["samples"], strict=True)
        ]


def row_order(rows: int, batch: int, seed: int, step: int) -> np.ndarray:
    """The rows of a training step: consecutive pieces of one permutation per epoch, a pure function of (seed, step)."""
    positions = np.arange(step * batch, (step + 1) * batch)
    epochs = positions // rows
    orders: dict[int, np.ndarray] = {
        epoch: np.random.default_rng([seed, epoch]).permutation(rows) for epoch in np.unique(epochs).tolist()
    }
    return np.array(
        [orders[epoch][position % rows] for epoch, position in zip(epochs.tolist(), positions, strict=True)]
    )


def iterate_batches(rows: PackedRows, batch: int) -> Iterator[list[list[Document]]]:
    """All rows once, in order, ``batch`` at a time (for validation)."""
    for start in range(0, len(rows), batch):
        yield [rows[index] for index in range(start, min(start + batch, len(rows)))]
