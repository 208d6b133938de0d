"""A hash of the code that a step runs, so that a change of the code repeats that step and nothing else.

The modules are found by reading import statements, without running anything. Comments, docstrings and layout do not
count.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from sbd.files import write_text

ROOT = Path(__file__).parent.parent
PACKAGES = ("sbd", "paper_figures")

UNCOUNTED = {
    *("sbd.cli", "sbd.config", "sbd.errors", "sbd.experiment_files", "sbd.files", "sbd.fingerprints", "sbd.planning"),
    *("sbd.progress", "sbd.selection"),
}
"""Modules and packages that cannot change a result: what they hand on is fingerprinted as values, or is only shown."""


def code_fingerprint(*modules: str) -> str:
    """A short hash of ``modules`` (dotted names of this project) and of all they import of it, directly or not."""
    contents = [f"{name} {_facts(_file(name)).content}\n" for name in sorted(code_of(*modules))]
    _save()
    return hashlib.sha256("".join(contents).encode()).hexdigest()[:12]


def code_of(*modules: str) -> set[str]:
    """``modules`` and all modules of this project that they import, less those that cannot change a result."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found and not _is_uncounted(name):
            found.add(name)
            waiting.extend(_facts(_file(name)).imports)
    return found


def _is_uncounted(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in UNCOUNTED)


class _Facts(NamedTuple):
    """A hash of what a file says, without comments, docstrings and layout; and what it imports of this project."""

    content: str
    imports: list[str]


def _facts(path: Path) -> _Facts:
    """Kept on disk for as long as the file is not touched: every job of a workflow asks for them all again."""
    status = path.stat()
    key = f"{path.relative_to(ROOT)} {status.st_size} {status.st_mtime_ns}"
    known = _known()
    if key not in known:
        tree = _tree(path)
        imports = {name for statement in _statements(tree.body) for name in _imported(statement)}
        known[key] = _Facts(hashlib.sha256(ast.dump(tree).encode()).hexdigest(), sorted(imports))
        _new.add(key)
    return known[key]


_new: set[str] = set()


@cache
def _kept_in() -> Path:
    own = Path(__file__).stat()
    # Another version of this very file may read the others in another way.
    return ROOT / ".snakemake" / f"code-{sys.version_info.minor}-{own.st_size}-{own.st_mtime_ns}.json"


@cache
def _known() -> dict[str, _Facts]:
    try:
        kept = json.loads(_kept_in().read_text(encoding="utf-8"))
        return {key: _Facts(content, imports) for key, (content, imports) in kept.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _save() -> None:
    # Only beside a workflow; who reads the project without writing to it does without.
    if _new and _kept_in().parent.is_dir():
        with suppress(OSError):
            write_text(_kept_in(), json.dumps(_known()))
        _new.clear()


def _imported(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.Import):
        for name in (alias.name for alias in statement.names if alias.name.split(".")[0] in PACKAGES):
            # A bare `import sbd` gives all its public names, which are loaded on first use.
            yield from _public_modules() if name == "sbd" else [name]
    elif isinstance(statement, ast.ImportFrom) and (statement.module or "").split(".")[0] in PACKAGES:
        package = str(statement.module)
        if package not in PACKAGES:
            yield package
        yield from (name for alias in statement.names if _file(name := f"{package}.{alias.name}").is_file())


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of ``body`` and of all blocks in it; much faster than ast.walk, which visits expressions too."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from _statements(getattr(statement, name, []))


@cache
def _public_modules() -> frozenset[str]:
    strings = (node.value for node in ast.walk(_tree(_file("sbd"))) if isinstance(node, ast.Constant))
    return frozenset(s for s in strings if isinstance(s, str) and s.startswith("sbd.") and _file(s).is_file())


def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@cache
def _tree(path: Path) -> ast.Module:
    """The syntax tree of a file without its docstrings."""
    tree = ast.parse(path.read_bytes(), str(path))
    for statement in (tree, *_statements(tree.body)):
        if isinstance(statement, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(statement, False):
            statement.body[0] = ast.Pass()
    return tree
