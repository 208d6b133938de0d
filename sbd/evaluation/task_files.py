"""Task files of lm-eval, and ours, which include those and swap what is needed.

``include: lm-eval:gsm8k/gsm8k.yaml`` names a file in the tasks of the installed lm-eval; ``!function`` there may be
``lm-eval:aime/utils.process_results`` too. Reading the files here rather than through lm-eval's index resolves only the
functions that are still used after the swap, needs no absolute path, and scans nothing.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import lm_eval.tasks
import yaml
from lm_eval.api.task import ConfigurableTask, Task

from sbd.errors import UserError

STOCK = "lm-eval:"


class _Function(NamedTuple):
    """``!function module.name`` in a file of ``folder``, not yet imported."""

    folder: Path
    name: str


class _Loader(yaml.SafeLoader):
    """YAML in which ``!function`` stands for itself."""

    folder: Path


def _function(loader: _Loader, node: yaml.ScalarNode) -> _Function:
    return _Function(loader.folder, str(loader.construct_scalar(node)))


_Loader.add_constructor("!function", _function)


def load_task(task: str | Path, data: str | Path, thinking: bool = False) -> Task:
    """The lm-eval task of a YAML file, over the problems in ``data``.

    thinking: whether prompts ask for a thought; it must be what the file's extraction expects (``metadata.thinking``).
    """
    path = Path(task)
    if not path.is_file():
        near = ", ".join(sorted(path.name for path in path.parent.glob("*.yaml"))) or "none"
        raise UserError(f"no such task file: {task}; task files there: {near}")
    logging.getLogger("lm_eval").setLevel(logging.ERROR)  # its warnings are about its own command line
    config = read(path)
    metadata = dict(config.get("metadata") or {})
    if not isinstance(config.get("task"), str) or "score" not in metadata:
        raise UserError(f"{task} must define one task, and name its score in metadata, e.g. `score: exact_match,none`")
    if bool(metadata.get("thinking")) != thinking:
        raise UserError(
            f"{task} reads answers {'without' if thinking else 'behind'} a thought, but the benchmark has "
            f"thinking: {str(thinking).lower()}; use another task file or change it"
        )
    for name in ("tag", "group"):
        config.pop(name, None)
    return ConfigurableTask(config={**_resolve(config), "metadata": {**metadata, "data": str(data)}})


def read(path: Path) -> dict[str, Any]:
    """A task file laid over the one that it includes; functions are not imported yet, and null takes a key out."""
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"there is no task file {path}; is it of another version of lm-eval?") from None
    loader.folder = path.parent
    try:
        own = loader.get_single_data()
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(own, dict):
        raise UserError(f"{path}: a task file is a mapping of keys; this one is not")
    included = own.pop("include", None)
    base = read(_stock(included) if included.startswith(STOCK) else path.parent / included) if included else {}
    return {key: value for key, value in {**base, **own}.items() if value is not None}


def _stock(name: str) -> Path:
    return Path(lm_eval.tasks.__file__).parent / name.removeprefix(STOCK)


def _resolve(value: Any) -> Any:
    if isinstance(value, _Function):
        return _import(value)
    if isinstance(value, dict):
        return {key: _resolve(inner) for key, inner in value.items()}
    return [_resolve(inner) for inner in value] if isinstance(value, list) else value


def _import(function: _Function) -> Any:
    module_name, _, name = function.name.rpartition(".")
    if module_name.startswith(STOCK):
        path = _stock(module_name).with_suffix(".py")
    else:
        path = function.folder / f"{module_name.replace('.', '/')}.py"
    try:
        module = _module(path) if path.is_file() else importlib.import_module(module_name)
        return getattr(module, name)
    except (ImportError, AttributeError) as error:
        raise UserError(f"!function {function.name} in {function.folder} cannot be imported: {error}") from None


@lru_cache
def _module(path: Path) -> types.ModuleType:
    spec = importlib.util.spec_from_file_location(f"task_functions_{path.parent.name}_{path.stem}", path)
    assert spec is not None, "a file of Python has a spec"
    assert spec.loader is not None, "and a loader"
    module = importlib.util.module_from_spec(spec)
    with _no_code_eval():
        spec.loader.exec_module(module)
    return module


@contextmanager
def _no_code_eval() -> Iterator[None]:
    """Stand in for Hugging Face's ``evaluate`` while a stock module is imported.

    Those of code tasks fetch ``code_eval`` from the hub and run a program with it as they are imported. Here programs
    run in the sandbox, so their metrics are never called; the stand-in has no results, so that a call would fail.
    """
    stand_in: Any = types.ModuleType("evaluate")
    stand_in.load = lambda *_, **__: types.SimpleNamespace(compute=lambda *_, **__: None)
    before = sys.modules.get("evaluate")
    sys.modules["evaluate"] = stand_in
    try:
        yield
    finally:
        if before is None:
            del sys.modules["evaluate"]
        else:
            sys.modules["evaluate"] = before
