"""A hash of the code that a step runs, so that a change of the code repeats that step and nothing else.

The modules are found by reading import statements, without running anything. Comments, docstrings and layout do not
count.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("sbd", "paper_figures")

UNCOUNTED = {f"sbd.{name}" for name in ("cli", "config", "errors", "files", "fingerprints", "progress", "selection")}
"""Modules that cannot change a result: what they hand on is fingerprinted as values, or is only shown."""


def code_fingerprint(*modules: str) -> str:
    """A short hash of ``modules`` (dotted names of this project) and of all they import of it, directly or not."""
    contents = [f"{name} {_content(_file(name))}\n" for name in sorted(code_of(*modules))]
    return hashlib.sha256("".join(contents).encode()).hexdigest()[:12]


def code_of(*modules: str) -> set[str]:
    """``modules`` and all modules of this project that they import, less those that cannot change a result."""
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found and name not in UNCOUNTED:
            found.add(name)
            waiting.extend(_imports(name))
    return found


@cache
def _imports(module: str) -> frozenset[str]:
    return frozenset(name for statement in _statements(_tree(_file(module)).body) for name in _imported(statement))


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


@cache
def _content(path: Path) -> str:
    return hashlib.sha256(ast.dump(_tree(path)).encode()).hexdigest()
