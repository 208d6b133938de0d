"""Reading an experiment file: what it extends, what its entries are like, and what it shares with another one.

An error is one line that names the file, the key and what is allowed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from sbd.config import Experiment, settings_of
from sbd.errors import UserError


def experiment_file(name: str | Path) -> Path:
    """The file that is meant: a bare name is that of a file in ``experiments/``."""
    path = Path(name)
    bare = path.name == str(name) and not path.suffix and not path.is_file()
    return Path("experiments", f"{name}.yaml") if bare else path


def load_experiment(path: str | Path) -> Experiment:
    """Read and check an experiment file, or that of a bare name.

    ``extends: other.yaml`` in it overlays its keys on another file's; a key with the value null is left out, and a list
    under a key with a plus (``evaluations+``) is added to the other file's. An entry of models, runs, decoders or
    benchmarks that has ``like: NAME`` is the entry NAME with its own keys over it.
    """
    path = experiment_file(path)
    raw = _read_yaml(path)
    for kind in ("models", "runs", "decoders", "benchmarks"):
        if isinstance(entries := raw.get(kind), dict):
            raw[kind] = {name: _resolved(entries, name, f"{path}: {kind}") for name in entries}
    try:
        experiment = Experiment.model_validate(raw)
    except ValidationError as error:
        raise UserError(f"{path}: {'; '.join(_explain(item, raw) for item in error.errors())}") from None
    if experiment.shares is not None:
        _check_shared(experiment, path)
    experiment.read_from(path)
    return experiment


class _Loader(yaml.SafeLoader):
    """YAML whose keys are texts, each once in its mapping: of two equal keys YAML would silently take the second."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """A mapping as it stands in the file, before what it merges is filled in."""
        node = super().compose_mapping_node(anchor)
        assert node is not None
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.tag != "tag:yaml.org,2002:str":
                raise yaml.MarkedYAMLError(
                    problem="a key that is no text; put it in quotes", problem_mark=key.start_mark
                )
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} a second time", problem_mark=key.start_mark)
            seen.add(key.value)
        return node


def _resolved(entries: dict[str, Any], name: str, where: str, below: tuple[str, ...] = ()) -> Any:
    """An entry with what it is ``like`` (or ``repeats``) filled in; labels are not taken over."""
    entry = entries[name]
    key = next((key for key in ("like", "repeats") if isinstance(entry, dict) and entry.get(key) is not None), None)
    if key is None:
        return entry
    other = entry[key]
    if not isinstance(other, str) or other not in entries:
        raise UserError(f"{where}.{name}.{key}: unknown name {other!r}; known are {', '.join(sorted(entries))}")
    if other in (name, *below):
        raise UserError(f"{where}.{name}.{key}: the entries form a circle through {other!r}")
    base = _resolved(entries, other, where, (name, *below))
    inherited = {k: v for k, v in base.items() if k not in ("label", "repeats")} if isinstance(base, dict) else {}
    return _overlay(inherited, {k: v for k, v in entry.items() if k != "like"})


def _check_shared(experiment: Experiment, path: Path) -> None:
    """What both experiments have must be the same in both, since it is one file on disk."""
    file = path.with_name(f"{experiment.shares}.yaml")
    if experiment.shares == experiment.scale:
        raise UserError(f"{path}: shares: {experiment.scale!r} is its own scale; leave it out")
    other = load_experiment(file)
    if other.shares is not None or other.scale != experiment.shares:
        raise UserError(f"{path}: shares: {file} has results of its own at the scale {other.scale!r} or shares others")
    for part in ("seed", "tokenizer", "data"):
        if getattr(experiment, part) != getattr(other, part):
            raise UserError(f"{path}: {part} differs from {file}, whose results it shares; make it the same")
    for kind in ("models", "runs", "decoders", "benchmarks"):
        ours, theirs = getattr(experiment, kind), getattr(other, kind)
        for name in ours.keys() & theirs.keys():
            if settings_of(ours[name]) != settings_of(theirs[name]):
                raise UserError(
                    f"{path}: {kind}.{name} differs from the one in {file}, whose results it shares; "
                    "make it the same or give it another name"
                )


def _read_yaml(path: Path, below: tuple[Path, ...] = ()) -> dict[str, Any]:
    if path.resolve() in below:
        raise UserError(f"{path}: `extends` leads back to the file itself; remove it")
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except FileNotFoundError:
        near = ", ".join(sorted(str(p) for p in path.parent.glob("*.yaml"))) or "none"
        raise UserError(f"no such experiment file: {path}; experiment files there: {near}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UserError(f"{path} cannot be read as an experiment file ({reason})") from None
    except yaml.YAMLError as error:
        raise UserError(f"{path}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(raw, dict):
        raise UserError(f"{path}: an experiment file is a mapping of keys; this one is not")
    raw.pop("x-defaults", None)
    parent = raw.pop("extends", None)
    if parent and not isinstance(parent, str):
        raise UserError(f"{path}: extends: give the name of one file, not {parent!r}")
    return _overlay(_read_yaml(path.parent / parent, (*below, path.resolve())), raw) if parent else raw


def _overlay(base: dict[str, Any], top: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in top.items():
        if key.endswith("+") and isinstance(value, list) and isinstance(base.get(key[:-1]), list):
            merged[key[:-1]] = [*base[key[:-1]], *value]
            continue
        if value is None:
            merged.pop(key, None)
            continue
        below = base.get(key)
        merged[key] = _overlay(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _explain(item: Any, raw: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in item["loc"])
    message = re.sub(r"^Value error, ", "", item["msg"])
    if item["type"] == "extra_forbidden":
        message = f"unknown key; allowed are {', '.join(_allowed_keys(item['loc']))}"
    elif item["type"] == "missing":
        message = "this key is missing"
    elif "input" in item and not isinstance(item["input"], dict | list):
        message += f" (got {item['input']!r})"
    return f"{where}: {message}" if where else message


def _allowed_keys(location: tuple[Any, ...]) -> list[str]:
    """The fields of the model that a path of keys leads to, less its last key."""
    current: Any = Experiment
    for part in location[:-1]:
        if isinstance(current, type) and issubclass(current, BaseModel):
            current = current.model_fields[part].annotation if part in current.model_fields else current
        else:
            arguments = [a for a in get_args(current) if a is not type(None)]
            current = arguments[-1] if arguments else current
        while not isinstance(current, type) and type(None) in get_args(current):
            current = next(a for a in get_args(current) if a is not type(None))
    return sorted(current.model_fields) if isinstance(current, type) and issubclass(current, BaseModel) else []
