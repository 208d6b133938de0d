"""Training rows from streams: read once, tokenised and packed in parallel, in pieces that a rerun does not repeat.

One process reads the rows of a source in order and hands pieces of them to workers; each turns its piece into packed
rows of whole documents, written as ``shards/SOURCE/NUMBER.arrow`` and then ``NUMBER.json``, which says what became of
every row. ``manifest.json`` of the folder is written last. Sources are mixed by an index of rows with repeats
(``order.npy``), so that a mixing ratio costs no second copy.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from sbd import conversations
from sbd.batching import Document
from sbd.data import encode_document, pack
from sbd.errors import UserError
from sbd.files import half_character, replacing, write_json, write_text
from sbd.overlap import Index
from sbd.progress import progress
from sbd.sources import Row, Rows

PIECE = 4096
"""Rows that a worker takes at a time: about 100 MB of long reasoning."""

SAMPLES = 1 << 40
"""Document numbers of a source: its place times this, plus the number of the row. Noise is drawn by them."""

SCHEMA = pa.schema(
    [
        ("input_ids", pa.list_(pa.int32())),
        ("lengths", pa.list_(pa.int32())),
        ("prompt_lengths", pa.list_(pa.int32())),
        ("samples", pa.list_(pa.int64())),
    ]
)
OVERLAP_COLUMNS = (
    "source",
    "benchmark",
    "problems",
    "problems_under_13_words",
    "documents",
    "exact_documents",
    "exact_problems",
    "gram_documents",
    "gram_problems",
    "dropped_documents",
)


@dataclass(frozen=True)
class Recipe:
    """What workers need to know. validation: how many documents at the start of the stream are held out."""

    tokenizer: str
    format: str
    thinking: str
    sequence_length: int
    too_long: str
    index: str
    overlap: str
    first_sample: int
    validation: int


class Pool(NamedTuple):
    """Processes to work with, or this one alone."""

    executor: ProcessPoolExecutor | None
    workers: int


def stream(
    name: str,
    rows: Rows,
    recipe: Recipe,
    train: Path,
    held_out: Path,
    *,
    identity: Mapping[str, Any],
    limit: int | None = None,
    pool: Pool,
    piece: int = PIECE,
) -> dict[str, Any]:
    """Write the shards of a source and return their sums.

    Pieces that an earlier run finished are kept, if they came from the same files or commit by the same recipe
    (``identity`` adds what the recipe only names: contents of tokenizer and index).
    """
    shards = train / "shards" / name
    settings = {key: value for key, value in asdict(recipe).items() if key not in ("tokenizer", "index")}
    origin = {"origin": rows.origin, "recipe": settings, "limit": limit, "piece": piece, **identity}
    if _read(shards / "origin.json") != json.loads(json.dumps(origin)):
        shutil.rmtree(shards, ignore_errors=True)
        shards.mkdir(parents=True)
        write_json(shards / "origin.json", origin)
    # What a damaged file says is not known: its piece is made again.
    done = {int(path.stem) for path in shards.glob("*.json") if path.stem.isdigit() and _is_sound(_read(path))}
    if recipe.validation and not (held_out / "shards" / name / _file(0)).is_file():
        done.discard(0)
    first = next(number for number in range(len(done) + 1) if number not in done)
    ended = first > 0 and _read(shards / f"{first - 1:05d}.json")["read"] < piece
    bar = progress(None if limit is None else -(-limit // piece), name, initial=first, unit="piece")
    with bar:
        if not ended:
            pieces = _pieces(rows.read(first * piece, limit), piece, first)
            missing = ((number, found) for number, found in pieces if number not in done)
            _run(missing, (recipe, str(shards), str(held_out / "shards" / name), piece), pool, bar.update)
    found = [_read(path) for path in sorted(shards.glob("*.json")) if path.stem.isdigit()]
    return {"origin": rows.origin, **_sum(found, recipe.sequence_length)}


def _pieces(rows: Iterator[Row], size: int, number: int) -> Iterator[tuple[int, list[Row]]]:
    while found := list(islice(rows, size)):
        yield number, found
        number += 1


@contextmanager
def pool_of(workers: int) -> Iterator[Pool]:
    """Processes that tokenise, with how many there are; none where one is asked for."""
    if workers == 1:
        yield Pool(None, 1)
        return
    # Forked from a process that has imported everything once and runs no threads, as this one may.
    context = get_context("forkserver")
    context.set_forkserver_preload(["sbd.streaming"])
    executor = ProcessPoolExecutor(workers, mp_context=context)
    try:
        yield Pool(executor, workers)
    except BrokenProcessPool:
        raise UserError(
            "a process that tokenises was killed, perhaps for want of memory; use fewer --threads. "
            "The same command goes on with the pieces that are missing"
        ) from None
    finally:
        executor.shutdown(cancel_futures=True)


def _run(
    pieces: Iterator[tuple[int, list[Row]]], job: tuple[Recipe, str, str, int], pool: Pool, report: Callable[[], Any]
) -> None:
    """Never more pieces are in memory than two for each process."""
    waiting: set[Future[None]] = set()
    for number, rows in pieces:
        if pool.executor is None:
            pack_piece(*job, number, rows)
            report()
            continue
        waiting.add(pool.executor.submit(pack_piece, *job, number, rows))
        if len(waiting) >= 2 * pool.workers:
            waiting = _collect(waiting, report)
    while waiting:
        waiting = _collect(waiting, report)


def _collect(waiting: set[Future[None]], report: Callable[[], Any]) -> set[Future[None]]:
    finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
    for future in finished:
        future.result()
        report()
    return waiting


def pack_piece(recipe: Recipe, shards: str, held_out: str, piece: int, number: int, rows: list[Row]) -> None:
    """Turn a piece of rows into a shard; its ``.json`` is written last and marks it as done."""
    try:
        _pack_piece(recipe, Path(shards), Path(held_out), piece, number, rows)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"no space left for {shards}: make room; the same command goes on with the pieces that are missing"
            ) from None
        raise


def _pack_piece(recipe: Recipe, shards: Path, held_out: Path, piece: int, number: int, rows: list[Row]) -> None:
    tokenizer, index = _tokenizer(recipe.tokenizer), _index(recipe.index)
    reserved = _reserved(recipe.tokenizer)
    documents: list[Document] = []
    dropped: Counter[str] = Counter()
    hits = {name: {"exact": set(), "grams": set(), "exact_documents": 0, "gram_documents": 0} for name in index.names}
    for place, row in enumerate(rows):
        found = conversations.read(row, recipe.format, recipe.thinking)
        if isinstance(found, str):
            dropped[found] += 1
            continue
        texts = [message["content"] for message in found.messages] + [found.answer]
        if any(map(half_character, texts)):
            dropped["half of a character in the text"] += 1
            continue
        if any(reserved.search(text) for text in texts):
            dropped["special token in the text"] += 1
            continue
        if _count_overlap(index, texts, hits) and recipe.overlap == "drop":
            dropped["benchmark overlap"] += 1
            continue
        prompt = conversations.render(tokenizer, found.messages, found.thinks)
        document = encode_document(tokenizer, prompt, found.answer, recipe.first_sample + number * piece + place)
        if len(document.tokens) <= recipe.sequence_length:
            documents.append(document)
        elif recipe.too_long == "drop":
            dropped["too long"] += 1
        else:
            raise UserError(
                f"{shards.name}, row {number * piece + place + 1}: a document of {len(document.tokens)} tokens, over "
                f"sequence_length {recipe.sequence_length}; raise it, or set too_long: drop"
            )
    result: dict[str, Any] = {"read": len(rows), "dropped": dict(sorted(dropped.items()))}
    if number == 0 and recipe.validation:
        if recipe.validation >= len(documents):
            raise UserError(
                f"source {shards.name!r}: validation takes {recipe.validation} of the {len(documents)} documents "
                f"among its first {len(rows)} rows (dropped: {dict(dropped)}); nothing is left to train on; lower it"
            )
        held, documents = documents[: recipe.validation], documents[recipe.validation :]
        result["validation"] = _write(held, held_out / _file(0), recipe.sequence_length)
    result |= _write(documents, shards / _file(number), recipe.sequence_length)
    result["overlap"] = {
        name: {key: sorted(value) if isinstance(value, set) else value for key, value in kept.items()}
        for name, kept in hits.items()
    }
    write_json(shards / f"{number:05d}.json", result)


def _count_overlap(index: Index, texts: Sequence[str], hits: dict[str, dict[str, Any]]) -> bool:
    found = index.find(texts[-2], "\n".join(texts))
    for kind, problems in (("exact", found.exact), ("grams", found.grams)):
        for name, numbers in problems.items():
            hits[name][kind].update(numbers)
            hits[name]["exact_documents" if kind == "exact" else "gram_documents"] += 1
    return bool(found.exact or found.grams)


def _write(documents: list[Document], path: Path, sequence_length: int) -> dict[str, int]:
    """Pack documents into rows and write them (no file for no rows); returns their counts."""
    packed = pack([len(document.tokens) for document in documents], sequence_length)
    members = [[documents[index] for index in row] for row in packed]
    table = pa.table(
        {
            "input_ids": [np.concatenate([d.tokens for d in row]).astype(np.int32) for row in members],
            "lengths": [[len(d.tokens) for d in row] for row in members],
            "prompt_lengths": [[d.prompt_length for d in row] for row in members],
            "samples": [[d.sample for d in row] for row in members],
        },
        schema=SCHEMA,
    )
    if members:
        with (
            replacing(path) as temporary,
            pa.OSFile(str(temporary), "wb") as sink,
            pa.ipc.new_stream(sink, SCHEMA) as writer,
        ):
            writer.write_table(table)
    return {
        "documents": len(documents),
        "rows": len(members),
        "tokens": sum(len(document.tokens) for document in documents),
        "solution_tokens": sum(len(document.tokens) - document.prompt_length for document in documents),
    }


@lru_cache(maxsize=4)
def _tokenizer(folder: str) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(folder)


@lru_cache(maxsize=4)
def _index(path: str) -> Index:
    return Index.load(path)


@lru_cache(maxsize=4)
def _reserved(folder: str) -> re.Pattern[str]:
    """Text that spells a special token would end a document, or mask it."""
    return re.compile("|".join(map(re.escape, sorted(_tokenizer(folder).all_special_tokens))) or "(?!)")


def _file(number: int) -> str:
    return f"{number:05d}.arrow"


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # of JSON or of UTF-8
        return None


def _is_sound(piece: Any) -> bool:
    known = {"read", "dropped", "overlap", "documents", "rows", "tokens", "solution_tokens"}
    return isinstance(piece, dict) and known <= piece.keys()


def _sum(found: Sequence[dict[str, Any]], sequence_length: int) -> dict[str, Any]:
    total: dict[str, Any] = {
        key: sum(piece[key] for piece in found) for key in ("read", "documents", "rows", "tokens", "solution_tokens")
    }
    dropped = Counter()
    for piece in found:
        dropped.update(piece["dropped"])
    total["dropped"] = dict(sorted(dropped.items()))
    total["padding_share"] = _padding(total, sequence_length)
    total["validation"] = next((piece["validation"] for piece in found if "validation" in piece), None)
    overlap: dict[str, dict[str, Any]] = {}
    for piece in found:
        for name, kept in piece["overlap"].items():
            sums = overlap.setdefault(name, {"exact": set(), "grams": set(), "exact_documents": 0, "gram_documents": 0})
            for key in ("exact", "grams"):
                sums[key] |= set(kept[key])
                sums["exact_documents" if key == "exact" else "gram_documents"] += kept[
                    "exact_documents" if key == "exact" else "gram_documents"
                ]
    total["overlap"] = overlap
    return total


def _padding(counts: Mapping[str, int], sequence_length: int) -> float:
    return round(1 - counts["tokens"] / (counts["rows"] * sequence_length), 4) if counts["rows"] else 0.0


def mixture(rows: Mapping[str, int], weights: Mapping[str, float], seed: int) -> np.ndarray:
    """Row numbers in which every source has its share, each row at least once and as evenly as whole passes allow.

    ``rows`` are those of each source, in the order in which they are numbered. Rows are all nearly full, so a share of
    rows is a share of tokens.
    """
    total = sum(weights.values())
    length = max(count / (weights[name] / total) for name, count in rows.items())
    chosen, first = [], 0
    for place, (name, count) in enumerate(rows.items()):
        wanted = max(count, round(length * weights[name] / total))
        passes, rest = divmod(wanted, count)
        chosen += [np.tile(np.arange(first, first + count), passes)]
        chosen += [first + np.random.default_rng([seed, place]).permutation(count)[:rest]]
        first += count
    return np.concatenate(chosen).astype(np.int64)


def write_overlap(path: Path, index: Index, sources: Mapping[str, Mapping[str, Any]]) -> None:
    """The overlap of every source with every benchmark, as CSV: how many documents and problems it touches."""
    text = io.StringIO()
    writer = csv.DictWriter(text, OVERLAP_COLUMNS, lineterminator="\n")
    writer.writeheader()
    for source, sums in sources.items():
        read = sums["documents"] + (sums["validation"] or {"documents": 0})["documents"]
        for name, size, short in zip(index.names, index.sizes, index.short, strict=True):
            kept = sums["overlap"].get(name, {"exact": (), "grams": (), "exact_documents": 0, "gram_documents": 0})
            writer.writerow(
                {
                    "source": source,
                    "benchmark": name,
                    "problems": size,
                    "problems_under_13_words": short,
                    "documents": read,
                    "exact_documents": kept["exact_documents"],
                    "exact_problems": len(kept["exact"]),
                    "gram_documents": kept["gram_documents"],
                    "gram_problems": len(kept["grams"]),
                    "dropped_documents": sums["dropped"].get("benchmark overlap", 0),
                }
            )
    write_text(path, text.getvalue())
