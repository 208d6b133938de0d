"""Write files so that a reader sees the old content or the new one, never half of it."""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sbd.errors import UserError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside ``path``; when the block ends without an error it takes the place of ``path``."""
    path = Path(path)
    require_writable(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp{path.suffix}")
    try:
        yield temporary
        with open(temporary, "rb") as handle:
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def require_writable(path: str | Path) -> None:
    """UserError unless a file can be written at ``path``, whose folder is made if need be. For what takes long."""
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder {path.parent}: {error.strerror}") from error
    if not os.access(path.parent, os.W_OK):
        raise UserError(f"cannot write into the folder {path.parent}")


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold ``folder`` (made if need be) against other processes that ask the same; UserError where one does.

    The system gives the lock back when the process ends, however it ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is at work in {folder}; let it end, or stop it, and run again") from None
        except OSError:  # a file system that has no locks
            pass
        yield


def write_text(path: str | Path, text: str) -> None:
    """Write ``text`` in UTF-8, atomically; half of a surrogate pair becomes ``\\ud800``, which JSON reads back."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically; NaN is refused since JSON has none."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def half_character(value: Any) -> str | None:
    """The first lone surrogate in a text, or of plain JSON, as ``\\ud800``; no tokenizer takes such text."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    found = re.search("[\ud800-\udfff]", text)
    return f"\\u{ord(found[0]):04x}" if found else None


def is_file_name(name: str) -> bool:
    """Whether the name of a source can only be that of files, and not ``owner/name`` of the hub."""
    return bool(re.search(r"\.(jsonl?|parquet|csv)$|^[./~]|[*?]", name)) or name.count("/") > 1
