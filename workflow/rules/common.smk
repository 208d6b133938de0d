# What the other files share: the experiment, checked before the DAG is built, and what of it a job depends on.
# Nothing here may import torch, transformers or pandas: every job reads this file again.
import re
import shlex
import sys
from pathlib import Path

from paper_figures import paper_index
from sbd.config import fingerprint, settings_of
from sbd.experiment_files import experiment_file, load_experiment
from sbd.errors import UserError
from sbd.fingerprints import code_fingerprint
from sbd.planning import host_memory_mb, refuse_what_cannot_fit
from sbd.sources import find_files

config.setdefault("experiment", "experiments/tiny.yaml")
config.setdefault("data", "data")

EXPERIMENT_FILE = experiment_file(config["experiment"]).as_posix()

try:
    EXPERIMENT = load_experiment(EXPERIMENT_FILE)
    refuse_what_cannot_fit(EXPERIMENT)
except UserError as error:
    sys.exit(f"snakemake: error: {error}")

# Snakemake takes True for a truth, and true for a word.
ADOPT = str(config.get("adopt", "")).lower() in ("1", "true", "yes")

# None where a cluster gives out the cores.
ALL_CORES = workflow.resource_settings.cores or 1

# The python that runs snakemake also runs the steps, whether its environment is activated or not.
# A prefix replaces Snakemake's own, which makes a failure at the head of a pipe count.
# Commands take the experiment from the environment: as a parameter of a rule, its name would make another experiment that
# shares the data and models of this one repeat their jobs. So with `adopt`, which would repeat every finished training.
shell.prefix(
    f"set -euo pipefail; export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"
    f" SBD_EXPERIMENT={shlex.quote(EXPERIMENT_FILE)} SBD_ADOPT={'1' if ADOPT else ''}; "
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
    return [str(path) for name in names for path in find_files(Path(config["data"], name))]


def training_files(wildcards):
    """What the packed rows are made of: problems of the sources; or files of streams, and the questions to look for."""
    sources = EXPERIMENT.data.sources
    if not EXPERIMENT.data.streamed:
        trained = [name for name, source in sources.items() if source.train]
        return [str(EXPERIMENT.source_file(name, split)) for name in trained for split in ("train", "validation")]
    streams = [source.train for source in sources.values() if source.streamed]
    found = [str(path) for name in streams for path in find_files(Path(config["data"], name))]
    return found + [str(EXPERIMENT.source_file(name, "test")) for name in EXPERIMENT.tested_sources()]


def chat_template(tokenizer):
    """The file of a chat template, if there is one."""
    return [] if tokenizer.chat_template in (None, "own") else [tokenizer.chat_template]


def data_manifest(wildcards):
    """The file that is written last of the rows that a model is trained on."""
    return str(EXPERIMENT.data_folder("train", wildcards.model) / "manifest.json")


def benchmarks_scored(when):
    """The benchmarks whose score is made at once, or apart from the generations."""
    return [name for name, benchmark in EXPERIMENT.benchmarks.items() if benchmark.scored == when]


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
        subcategory=f"Scale {EXPERIMENT.scale}",  # Snakemake heads with "Other" what has none
        labels={
            "shows": Path(path).stem,
            "scale": EXPERIMENT.scale,
            "runs": ", ".join(runs),
            "decoders": ", ".join(decoders),
        },
    )
