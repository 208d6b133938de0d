# Set Block Decoding (arXiv 2509.04185): an experiment file -> models, records, table, figure, report.
# The experiment is chosen with `--config experiment=NAME` (experiments/NAME.yaml, or a path); results go to results/SCALE/.
from snakemake.utils import min_version

min_version("9.27")


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/score.smk"
include: "workflow/rules/paper.smk"


if EXPERIMENT.speed:

    include: "workflow/rules/speed.smk"


if EXPERIMENT.traces:

    include: "workflow/rules/traces.smk"


localrules:
    all,
    models,
    records,


rule models:
    input:
        [checkpoint_file(*training) for training in EXPERIMENT.trainings()],


rule records:
    input:
        f"{EXPERIMENT.folder}/records.csv",


rule all:
    default_target: True
    input:
        [entry.writes(EXPERIMENT.folder)[0] for entry in paper_index.drawn(EXPERIMENT)],
        [page.format(scale=EXPERIMENT.work_scale) for page in rules.traces.output] if EXPERIMENT.traces else [],
