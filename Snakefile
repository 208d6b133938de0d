# Set Block Decoding (arXiv 2509.04185): an experiment file -> models, records, table, figure, report.
# The experiment is chosen with `--config experiment=experiments/NAME.yaml`; its results go to results/SCALE/.
from snakemake.utils import min_version

min_version("9.27")


report: "workflow/report/workflow.rst"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/score.smk"
include: "workflow/rules/paper.smk"


localrules:
    all,
    models,
    records,
    tables,
    figures,


rule models:
    input:
        [checkpoint_file(model, run) for model in EXPERIMENT.models for run in EXPERIMENT.runs],


rule records:
    input:
        f"{EXPERIMENT.folder}/records.csv",


rule tables:
    input:
        f"{EXPERIMENT.folder}/tables/table1.csv",
        f"{EXPERIMENT.folder}/tables/losses.csv",


rule figures:
    input:
        f"{EXPERIMENT.folder}/figures/pareto.pdf",


rule all:
    default_target: True
    input:
        rules.tables.input,
        rules.figures.input,
