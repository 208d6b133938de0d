"""``prepare`` for streamed sources: shards of every source, their mixture, and the overlap with the benchmarks."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from sbd import streaming
from sbd.config import STREAMED, Experiment
from sbd.errors import UserError
from sbd.files import replacing, write_json
from sbd.overlap import Index, questions
from sbd.sources import Rows, check_columns, open_rows
from sbd.streaming import Recipe


def run(
    experiment: Experiment,
    tokenizer: PreTrainedTokenizerBase,
    model: str | None,
    folder: str | Path,
    workers: int,
    piece: int = streaming.PIECE,
) -> None:
    """Write the folders of training and validation rows; what an earlier run finished is kept."""
    train, held_out = (experiment.data_folder(split, model) for split in ("train", "validation"))
    sources = {name: source for name, source in experiment.data.sources.items() if source.streamed}
    # All sources are opened before the first is read: a mistake in the last one shows now, not after a day.
    opened = {name: _open(experiment, name, folder) for name in sources}
    (train / "manifest.json").unlink(missing_ok=True)
    (held_out / "manifest.json").unlink(missing_ok=True)
    for place in (train, held_out):
        tokenizer.save_pretrained(place / "tokenizer")
        for old in (place / "shards").glob("*"):
            if old.name not in sources:
                shutil.rmtree(old)
    index = Index.of({name: questions(path) for name, path in _benchmarks(experiment).items()})
    index.save(train / "benchmarks.npz")
    identity = {"tokenizer": _digest(train / "tokenizer"), "benchmarks": _digest(train / "benchmarks.npz")}
    sums: dict[str, dict[str, Any]] = {}
    with streaming.pool_of(workers) as pool:
        for place, name in enumerate(sources):
            sums[name] = _stream(experiment, name, opened[name], place, train, held_out, identity, pool, piece)
    streaming.write_overlap(train / "overlap.csv", index, sums)
    held = {name: made["validation"] for name, made in sums.items() if made["validation"]}
    if held:
        write_json(held_out / "manifest.json", _manifest(experiment, tokenizer, held))
    write_json(train / "manifest.json", _mixed(experiment, tokenizer, sums, train))
    print(f"{train}: manifest.json, overlap.csv")


def _stream(
    experiment: Experiment,
    name: str,
    rows: Rows,
    place: int,
    train: Path,
    held_out: Path,
    identity: dict[str, str],
    pool: streaming.Pool,
    piece: int,
) -> dict[str, Any]:
    source = experiment.data.sources[name]
    recipe = Recipe(
        tokenizer=str(train / "tokenizer"),
        format=source.format,
        thinking=source.thinking,
        sequence_length=experiment.data.sequence_length,
        too_long=experiment.data.too_long,
        index=str(train / "benchmarks.npz"),
        overlap=experiment.data.overlap,
        first_sample=place * streaming.SAMPLES,
        validation=int(source.validation),
    )
    made = streaming.stream(
        name, rows, recipe, train, held_out, identity=identity, limit=source.rows, pool=pool, piece=piece
    )
    if not made["rows"]:
        raise UserError(f"source {name!r}: none of its {made['read']} rows can be used ({_reasons(made)})")
    counts = f"{made['documents']:,} documents of {made['read']:,} rows, {made['tokens']:,} tokens"
    print(f"{name}: {counts}; {_reasons(made)}")
    return made


def _open(experiment: Experiment, name: str, folder: str | Path) -> Rows:
    source = experiment.data.sources[name]
    rows = open_rows(
        str(source.train),
        folder,
        split=source.split or "train",
        revision=source.revision,
        what=f"train of source {name!r}",
        pins=experiment.revisions_folder,
    )
    check_columns(rows, STREAMED[source.format])
    return rows


def _benchmarks(experiment: Experiment) -> dict[str, Path]:
    """The file of every source that is tested on."""
    return {name: experiment.source_file(name, "test") for name in experiment.tested_sources()}


def _mixed(
    experiment: Experiment, tokenizer: PreTrainedTokenizerBase, sums: dict[str, dict[str, Any]], train: Path
) -> dict[str, Any]:
    """The manifest of the training rows; writes their order where sources have weights."""
    manifest = _manifest(experiment, tokenizer, sums)
    weights = {name: weight for name in sums if (weight := experiment.data.sources[name].weight)}
    if not weights:
        (train / "order.npy").unlink(missing_ok=True)
        return manifest
    rows = {name: made["rows"] for name, made in sums.items()}
    order = streaming.mixture(rows, weights, experiment.seed)
    with replacing(train / "order.npy") as temporary, open(temporary, "wb") as file:
        np.save(file, order)
    first = 0
    for name, count in rows.items():
        chosen = int(((order >= first) & (order < first + count)).sum())
        manifest["sources"][name] |= {"weight": weights[name], "passes": round(chosen / count, 3)}
        first += count
    return {**manifest, "rows": len(order)}


def _manifest(
    experiment: Experiment, tokenizer: PreTrainedTokenizerBase, sums: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Counts over all sources and of each; those of the whole are without repeats."""
    length = experiment.data.sequence_length
    total = {
        key: sum(made[key] for made in sums.values()) for key in ("documents", "rows", "tokens", "solution_tokens")
    }
    return {
        **total,
        "packed_rows": total["rows"],
        "streamed": True,
        "sequence_length": length,
        "padding_share": round(1 - total["tokens"] / (total["rows"] * length), 4),
        "vocabulary": len(tokenizer),
        "sources": {name: {k: v for k, v in made.items() if k != "overlap"} for name, made in sums.items()},
    }


def _reasons(made: dict[str, Any]) -> str:
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in made["dropped"].items())
    return f"dropped: {dropped}" if dropped else "none dropped"


def _digest(path: Path) -> str:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()[:12]
