# One rule for each table or figure that the experiment asks for, all of one form: see paper_figures/paper_index.py.
for entry in paper_index.drawn(EXPERIMENT):

    rule:
        name:
            entry.module
        input:
            entry.reads(EXPERIMENT, EXPERIMENT.folder),
        output:
            [in_report(entry, path) for path in entry.writes(EXPERIMENT.folder)],
        log:
            f"{EXPERIMENT.folder}/logs/{entry.module}.log",
        localrule: True
        conda:
            "../../environment.yml"
        params:
            command=entry.command(EXPERIMENT, EXPERIMENT.folder, EXPERIMENT.folder),
            settings=fingerprint(EXPERIMENT) if entry.experiment else "",
            code=code_fingerprint(f"paper_figures.{entry.module}"),
        shell:
            "{params.command} 2>&1 | tee {log}"


REFERENCE = Path("results/reference")


# Nothing is trained for these: they are drawn from the CSV files that are kept in the repository.
rule figures:
    input:
        [str(path) for path in sorted(REFERENCE.glob("*/*.csv"))],
        [str(path) for path in sorted(REFERENCE.glob("*/speed/*/*.csv"))],
        [f"experiments/{path.name}.yaml" for path in sorted(REFERENCE.glob("*")) if path.is_dir()],
        sorted(map(str, Path(paper_index.REPORTED[1]).glob("*.csv"))),
        paper_index.STYLE,
    output:
        directory("results/rebuilt"),
    log:
        "results/logs/rebuilt.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        code=lambda wildcards: code_fingerprint(
            "paper_figures.rebuild", *(f"paper_figures.{entry.module}" for entry in paper_index.ENTRIES)
        ),
    shell:
        "python -m paper_figures.rebuild --output {output} 2>&1 | tee {log}"
