# What the other files share: the experiment, checked before the DAG is built, and what of it a job depends on.
# Nothing here may import torch, transformers or pandas: every job reads this file again.
import re
import shlex
import sys
from pathlib import Path

from paper_figures import paper_index
from sbd.config import fingerprint, load_experiment, settings_of
from sbd.errors import UserError
from sbd.fingerprints import code_fingerprint

config.setdefault("experiment", "experiments/tiny.yaml")
config.setdefault("data", "data")

EXPERIMENT_FILE = Path(config["experiment"]).as_posix()

try:
    EXPERIMENT = load_experiment(EXPERIMENT_FILE)
except UserError as error:
    sys.exit(f"snakemake: error: {error}")

# The python that runs snakemake also runs the steps, whether its environment is activated or not.
# A prefix replaces Snakemake's own, which makes a failure at the head of a pipe count. It also names the experiment file: as a
# parameter of the rules the name would make another experiment that shares data and models with this one repeat their jobs.
shell.prefix(
    f"set -euo pipefail; export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH;"
    f" export EXPERIMENT={shlex.quote(EXPERIMENT_FILE)}; "
)


def one_of(names):
    """A wildcard that matches these names and no other."""
    return "|".join(map(re.escape, names)) or "(?!)"


wildcard_constraints:
    scale=re.escape(EXPERIMENT.work_scale),
    source=one_of(EXPERIMENT.data.sources),
    model=one_of(EXPERIMENT.models),
    run=one_of(EXPERIMENT.runs),
    decoder=one_of(EXPERIMENT.decoders),
    benchmark=one_of(EXPERIMENT.benchmarks),


def settings(*parts):
    """A hash of parts of the experiment, without what only names them or cannot change a result."""
    return fingerprint(*map(settings_of, parts))


def checkpoint_file(model, run):
    """The file that is written last of a trained run."""
    return str(EXPERIMENT.run_folder(model, run) / "checkpoint" / "training.json")


def parent_checkpoint(wildcards):
    """What a run starts from, if not from scratch."""
    parent = EXPERIMENT.runs[wildcards.run].parent
    return [] if parent is None else [checkpoint_file(wildcards.model, parent)]


def local_files(wildcards):
    """The files of the user that a source is made of. One that is missing is named by the step itself, in one line."""
    source = EXPERIMENT.data.sources[wildcards.source]
    names = [name for name in (source.train, source.validation, source.test) if isinstance(name, str)]
    return [str(path) for name in names if (path := Path(config["data"], name)).is_file()]


def test_file(wildcards):
    """The problems of a benchmark."""
    return str(EXPERIMENT.source_file(EXPERIMENT.benchmarks[wildcards.benchmark].source, "test"))


def in_report(entry, path):
    """A file of a table or figure; as CSV or PNG it is in the report, with its scale and the runs and decoders in it."""
    if not path.endswith((".csv", ".png")):
        return path
    runs, decoders = EXPERIMENT.shown_in(entry.section or entry.module)
    return report(
        path,
        caption=f"../report/{entry.module}.rst",
        category=entry.category,
        labels={
            "shows": Path(path).stem,
            "scale": EXPERIMENT.scale,
            "runs": ", ".join(runs),
            "decoders": ", ".join(decoders),
        },
    )
