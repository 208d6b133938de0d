"""What is trained on and tested with: sources of problems and documents."""

from __future__ import annotations

import re
from datetime import date
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from sbd.files import is_file_name
from sbd.problems import GENERATORS
from sbd.selection import Name, Strict

STREAMED = {
    "open_math_reasoning": ("problem", "generated_solution"),
    "open_code_reasoning": ("input", "output"),
    "conversations": ("messages",),
}
"""Formats that are read as a stream, and the columns that their rows must have."""


class SourceConfig(Strict):
    """Problems from a seeded generator (with counts) or rows of files (path, folder or pattern) or of the hub.

    A hub source is written ``owner/name`` or ``owner/name:configuration``. Formats of `STREAMED` are for training only:
    they are never copied, but tokenised and packed as they are read. ``benchmark`` is for testing only: rows as they
    were published, whose columns the task file names.
    """

    generator: str | None = None
    format: Literal["problems", "gsm8k", "benchmark", "open_math_reasoning", "open_code_reasoning", "conversations"] = (
        "problems"
    )
    train: int | str | None = None
    validation: int | str = Field(0, description="a count is taken from the end of the training file; a stream's start")
    test: int | str | None = None
    split: str | None = Field(None, description="split of a hub data set, when it is not called as ours")
    revision: str = Field("main", description="commit, tag or branch of a hub data set; what it meant is recorded")
    rows: PositiveInt | None = Field(None, description="read no more than this many rows of a stream")
    weight: PositiveFloat | None = Field(None, description="share of the training tokens; for all streams or none")
    thinking: Literal["keep", "remove"] = Field("keep", description="the text between <think> and </think> of a stream")
    dates: tuple[date, date] | None = Field(None, description="first and last contest_date of a benchmark")
    expected: PositiveInt | None = Field(None, description="how many problems a benchmark must have")

    @property
    def streamed(self) -> bool:
        """Whether rows are tokenised as they are read."""
        return self.format in STREAMED

    @field_validator("generator")
    @classmethod
    def _generator_is_known(cls, name: str | None) -> str | None:
        if name is not None and name not in GENERATORS:
            raise ValueError(f"unknown generator; known are {', '.join(sorted(GENERATORS))}")
        return name

    @model_validator(mode="after")
    def _counts_or_paths(self) -> SourceConfig:
        needed = ("train",) if self.streamed else ("test",) if self.format == "benchmark" else ("train", "test")
        wanted = int if self.generator else str
        for split in ("train", "test"):
            if split in needed and not isinstance(getattr(self, split), wanted):
                raise ValueError(f"{split} must be a {'count' if self.generator else 'path'} for such a source")
            if split not in needed and getattr(self, split) is not None:
                raise ValueError(f"the format {self.format} has no {split} split; leave it out")
        for split, given in (("train", self.train), ("validation", self.validation), ("test", self.test)):
            if isinstance(given, int) and given < 0:
                raise ValueError(f"{split} must be a count of 0 or more, not {given}")
        if (self.generator or self.streamed) and not isinstance(self.validation, int):
            raise ValueError(f"validation must be a count for a {'generated' if self.generator else 'streamed'} source")
        if self.format == "benchmark" and self.validation:
            raise ValueError("a benchmark is not trained on; leave validation out")
        if self.format != "benchmark" and (self.dates or self.expected):
            raise ValueError("dates and expected are of the format benchmark")
        if not self.streamed and (self.weight or self.rows):
            raise ValueError(f"weight and rows are of streamed formats ({', '.join(STREAMED)})")
        return self


class DataConfig(Strict):
    """What is trained on. sequence_length: tokens of a packed row.

    validation as a count in a file source takes that many problems from the end of its training file.
    overlap: whether streamed documents that share 13 words in a row with a benchmark are only counted, or left out.
    """

    sequence_length: PositiveInt
    too_long: Literal["refuse", "drop"] = "refuse"
    overlap: Literal["report", "drop"] = "report"
    sources: dict[Name, SourceConfig]

    @property
    def streamed(self) -> bool:
        """Whether the training rows come from streams."""
        return any(source.streamed for source in self.sources.values())

    def unpinned(self) -> list[str]:
        """Sources of the hub whose revision is no commit."""
        return [
            name
            for name, source in self.sources.items()
            if any(isinstance(given, str) and not is_file_name(given) for given in (source.train, source.test))
            and not re.fullmatch("[0-9a-f]{40}", source.revision)
        ]

    @model_validator(mode="after")
    def _streams_mix(self) -> DataConfig:
        trained = {name: source for name, source in self.sources.items() if source.train}
        if not trained:
            raise ValueError("sources: none has anything to train on; give one of them a `train`")
        if taken := {"train", "validation", "revisions"} & self.sources.keys():
            raise ValueError(f"sources.{min(taken)}: the folder of that name is for other files; choose another name")
        if not self.streamed:
            return self
        if copied := sorted(name for name, source in trained.items() if not source.streamed):
            raise ValueError(f"sources.{copied[0]}: streamed and copied training sources do not mix; use one kind")
        if len({source.weight is None for source in trained.values()}) > 1:
            raise ValueError("give every streamed source a weight, or none of them (each row once)")
        return self
