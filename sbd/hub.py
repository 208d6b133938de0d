"""What a revision of the hub means: asked once for an experiment, so that all its steps and models read one commit.

The answers are files of one line, ``revisions/KIND--OWNER--NAME--REVISION`` beside the experiment's data. A commit in
the experiment file needs none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from sbd.config import Experiment
from sbd.errors import UserError
from sbd.files import is_file_name

GATED = "it is gated: accept its terms on its page and give a token (HF_TOKEN or `hf auth login`)"


def dataset_commit(name: str, revision: str, pins: Path | None) -> str:
    """The commit of a data set; a hub that cannot be reached, or gives no access, is a UserError."""

    def ask() -> str:
        from huggingface_hub import HfApi

        return str(HfApi().dataset_info(name, revision=revision).sha)

    return _pinned("dataset", name, revision, pins, ask, f"{name!r} is no file and", "configuration, split, ")


def model_commit(name: str, revision: str | None, pins: Path) -> str | None:
    """The commit of a model or tokenizer, whose configuration is fetched to see that access is given; None of a folder.

    What an earlier download left in the cache is enough where the hub is offline.
    """
    if Path(name).is_dir():
        return None

    def ask() -> str:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(name, "config.json", revision=revision or "main")).parent.name

    return _pinned("model", name, revision or "main", pins, ask, f"{name!r} is no folder and", "")


def check_models(experiment: Experiment) -> None:
    """Open the configuration of every public model and tokenizer now, and not after the data is made."""
    models = [model for model in experiment.models.values() if model.path is not None]
    tokenizers = [experiment.tokenizer, *(model.tokenizer for model in models)]
    for found in (*models, *tokenizers):
        if found is not None and found.path is not None:
            model_commit(found.path, found.revision, experiment.revisions_folder)


def pins_of(experiment: Experiment) -> list[tuple[str, str]]:
    """Every key of the experiment file that may hold a commit, with the commit that it means; asks the hub."""
    pins, found = experiment.revisions_folder, []
    for name, source in experiment.data.sources.items():
        given = next((g for g in (source.train, source.test) if isinstance(g, str) and not is_file_name(g)), None)
        if given is not None and not Path(given).exists():
            found.append((f"data.sources.{name}", dataset_commit(given.partition(":")[0], source.revision, pins)))
    parts = {"tokenizer": experiment.tokenizer}
    for name, model in experiment.models.items():
        parts |= {f"models.{name}": model, f"models.{name}.tokenizer": model.tokenizer}
    for key, part in parts.items():
        if part is not None and part.path is not None and (commit := model_commit(part.path, part.revision, pins)):
            found.append((key, commit))
    return found


def unreachable(where: str, revision: str, error: Exception, names: str = "configuration, split, ") -> UserError:
    """One line for whatever the hub's client raises; ``names`` are more things that may be misspelt."""
    kind = type(error).__name__
    text = str(error)
    remedy = (
        GATED
        if "gated" in (kind + text).lower() or "401" in text or "403" in text
        else f"check name, {names}revision and the network, or give local files"
    )
    first = (text.strip() or kind).splitlines()[0]
    return UserError(f"{where} could not be read from the hub{revision} ({kind}: {first}); {remedy}")


def _pinned(
    kind: str, name: str, revision: str, pins: Path | None, ask: Callable[[], str], where: str, names: str
) -> str:
    path = pins and pins / "--".join((kind, *name.split("/"), *revision.split("/")))
    if path and path.is_file():
        return path.read_text(encoding="utf-8").strip()
    try:
        commit = ask()
    except Exception as error:
        raise unreachable(where, f" at revision {revision}", error, names) from None
    if path is None or re.fullmatch("[0-9a-f]{40}", revision):
        return commit
    path.parent.mkdir(parents=True, exist_ok=True)
    own = path.with_name(f".{path.name}.{os.getpid()}")
    own.write_text(f"{commit}\n", encoding="utf-8")
    try:
        os.link(own, path)  # of jobs that ask at the same time, the first one's answer holds for all
    except FileExistsError:
        pass
    finally:
        own.unlink()
    return path.read_text(encoding="utf-8").strip()
