"""What an evaluation has generated so far, so that one that is stopped goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sbd.config import fingerprint
from sbd.files import write_text

PARTIAL_NAME = "partial.jsonl"


class Partial:
    """A file with a fingerprint in its first line and then a line for each finished batch of requests.

    identity: all that the texts depend on besides the prompts. A batch counts when its line is whole.
    """

    def __init__(self, path: Path, identity: Any):
        self.path, self.identity = path, identity

    def begin(self, texts: Sequence[str]) -> dict[int, dict[str, Any]]:
        """The statistics of the requests that are finished, by number; none where they were made otherwise."""
        header = json.dumps({"fingerprint": fingerprint(self.identity, list(texts))}) + "\n"
        try:
            content = self.path.read_text(encoding="utf-8")
        except (FileNotFoundError, UnicodeDecodeError):
            content = ""
        whole = content[: content.rfind("\n") + 1]
        if not whole.startswith(header):
            whole = header
        found: dict[int, dict[str, Any]] = {}
        sound = header
        for line in whole.splitlines()[1:]:
            try:
                found |= {int(number): dict(statistic) for number, statistic in json.loads(line).items()}
            except (ValueError, TypeError, AttributeError):  # damaged: from here on it is generated again
                break
            sound += line + "\n"
        # Without a line that was cut off: the next one is appended.
        write_text(self.path, sound)
        return found

    def add(self, batch: dict[int, dict[str, Any]]) -> None:
        """Append a finished batch."""
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(batch) + "\n")
            file.flush()
            os.fsync(file.fileno())
