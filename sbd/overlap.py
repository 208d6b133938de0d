"""How much of the benchmarks stands in the training text: whole questions, and runs of 13 words.

Words are runs of letters, digits and underscores in lower case, so layout and punctuation do not hide a copy (13
words as in GPT-3's report, arXiv 2005.14165, appendix C). Of a benchmark its questions are compared; of a training
document the last question (exact) and all of its text (13 words). A question of fewer words has no such run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sbd.errors import UserError
from sbd.files import replacing
from sbd.sources import open_rows

GRAM = 13
COLUMNS = ("question_content", "question", "Question", "problem", "prompt", "text", "ctx", "sentence")
"""Where benchmarks keep their question; the first that a row has is taken."""

_WORD = re.compile(r"\w+")
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that powers of it never vanish modulo 2**64


class Hits(NamedTuple):
    """Problems of each benchmark (by number) that a document holds."""

    exact: dict[str, list[int]]
    grams: dict[str, list[int]]


class Index:
    """The questions of all benchmarks, by the hashes of the whole and of every 13 words."""

    def __init__(self, names: Sequence[str], sizes: Sequence[int], short: Sequence[int], tables: Mapping[str, Any]):
        self.names, self.sizes, self.short = list(names), list(sizes), list(short)
        self.tables = {name: np.asarray(tables[name]) for name in ("grams", "gram_owners", "whole", "whole_owners")}

    @staticmethod
    def of(benchmarks: Mapping[str, Iterable[str]]) -> Index:
        """From the questions of each benchmark."""
        pieces: dict[str, list[np.ndarray]] = {"grams": [], "gram_owners": [], "whole": [], "whole_owners": []}
        sizes, short = [], []
        for benchmark, questions in enumerate(benchmarks.values()):
            problems = too_short = 0
            for question in questions:
                words = _hashes(question)
                grams, owner = _grams(words), np.array([benchmark, problems])
                pieces["grams"].append(grams)
                pieces["gram_owners"].append(np.repeat(owner[None], len(grams), axis=0))
                pieces["whole"].append(_whole(words))
                pieces["whole_owners"].append(owner[None])
                problems += 1
                too_short += len(grams) == 0
            sizes.append(problems)
            short.append(too_short)
        tables = {}
        for keys, owners in (("grams", "gram_owners"), ("whole", "whole_owners")):
            values = np.concatenate([np.empty(0, np.uint64), *pieces[keys]])
            order = np.argsort(values, kind="stable")
            tables[keys] = values[order]
            tables[owners] = np.concatenate([np.empty((0, 2), np.int64), *pieces[owners]])[order]
        return Index(list(benchmarks), sizes, short, tables)

    def save(self, path: Path) -> None:
        """Write to an ``.npz`` file."""
        counts = np.array([self.sizes, self.short]).reshape(2, -1)
        with replacing(path) as temporary:
            tables: dict[str, Any] = {"names": np.array(self.names, dtype=str), "counts": counts, **self.tables}
            np.savez(temporary, **tables)

    @staticmethod
    def load(path: str | Path) -> Index:
        """Read what ``save`` wrote."""
        with np.load(path) as kept:
            sizes, short = kept["counts"].tolist()
            return Index(kept["names"].tolist(), sizes, short, kept)

    def find(self, question: str, text: str) -> Hits:
        """Which problems stand in a document: its question as a whole, 13 words of theirs in its text."""
        exact = self._owners(_whole(_hashes(question)), "whole")
        return Hits(exact, self._owners(_grams(_hashes(text)), "grams"))

    def _owners(self, values: np.ndarray, table: str) -> dict[str, list[int]]:
        keys, owners = self.tables[table], self.tables["gram_owners" if table == "grams" else "whole_owners"]
        values = np.unique(values)
        first, last = np.searchsorted(keys, values), np.searchsorted(keys, values, side="right")
        found = [owners[a:b] for a, b in zip(first, last, strict=True) if b > a]
        pairs = np.unique(np.concatenate(found), axis=0).tolist() if found else []
        return {
            name: problems
            for number, name in enumerate(self.names)
            if (problems := [problem for benchmark, problem in pairs if benchmark == number])
        }


def questions(path: Path) -> list[str]:
    """The questions of a benchmark's file; a file without a known column is a UserError."""
    found = []
    for number, row in enumerate(open_rows(str(path), ".").read(), 1):
        column = next((name for name in COLUMNS if isinstance(row.get(name), str)), None)
        if column is None:
            known = ", ".join(COLUMNS)
            raise UserError(f"{path}, line {number}: no question to compare; a benchmark has one of {known}")
        found.append(row[column])
    return found


def _hashes(text: str) -> np.ndarray:
    return np.fromiter((_hash(word) for word in _WORD.findall(text.lower())), dtype=np.uint64)


@lru_cache(maxsize=1 << 18)
def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")


def _grams(words: np.ndarray) -> np.ndarray:
    """A hash of every 13 words in a row: ``[words - 12]``, from ``[words]``."""
    count = len(words) - GRAM + 1
    if count < 1:
        return np.empty(0, np.uint64)
    total = np.zeros(count, np.uint64)
    for place in range(GRAM):
        total = total * _BASE + words[place : place + count]
    return total


def _whole(words: np.ndarray) -> np.ndarray:
    """One hash of all words; none of no words."""
    if not len(words):
        return np.empty(0, np.uint64)
    return np.frombuffer(blake2b(words.tobytes(), digest_size=8).digest(), dtype=np.uint64)
