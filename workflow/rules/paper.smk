localrules:
    table1,
    losses,
    pareto,


rule table1:
    input:
        "results/{scale}/records.csv",
    output:
        csv=report(
            "results/{scale}/tables/table1.csv",
            caption="../report/table1.rst",
            category="Table 1",
            labels={"scale": "{scale}"},
        ),
        markdown="results/{scale}/tables/table1.md",
        tex="results/{scale}/tables/table1.tex",
    log:
        "results/{scale}/logs/table1.log",
    conda:
        "../../environment.yml"
    params:
        experiment=EXPERIMENT_FILE,
        settings=fingerprint(EXPERIMENT),
        code=code_fingerprint("paper_figures.table1"),
    shell:
        "python -m paper_figures.table1 --experiment {params.experiment:q} --records {input}"
        " --output results/{wildcards.scale}/tables 2>&1 | tee {log}"


rule losses:
    input:
        "results/{scale}/losses.csv",
    output:
        csv=report(
            "results/{scale}/tables/losses.csv",
            caption="../report/losses.rst",
            category="Held-out losses",
            labels={"scale": "{scale}"},
        ),
        markdown="results/{scale}/tables/losses.md",
        tex="results/{scale}/tables/losses.tex",
    log:
        "results/{scale}/logs/losses.log",
    conda:
        "../../environment.yml"
    params:
        experiment=EXPERIMENT_FILE,
        settings=fingerprint(EXPERIMENT),
        code=code_fingerprint("paper_figures.losses"),
    shell:
        "python -m paper_figures.losses --experiment {params.experiment:q} --losses {input}"
        " --output results/{wildcards.scale}/tables 2>&1 | tee {log}"


rule pareto:
    input:
        "results/{scale}/records.csv",
    output:
        pdf="results/{scale}/figures/pareto.pdf",
        png=report(
            "results/{scale}/figures/pareto.png",
            caption="../report/pareto.rst",
            category="Accuracy against speed",
            labels={"scale": "{scale}"},
        ),
    log:
        "results/{scale}/logs/pareto.log",
    conda:
        "../../environment.yml"
    params:
        experiment=EXPERIMENT_FILE,
        settings=fingerprint(EXPERIMENT),
        code=code_fingerprint("paper_figures.pareto"),
    shell:
        "python -m paper_figures.pareto --experiment {params.experiment:q} --records {input}"
        " --output results/{wildcards.scale}/figures 2>&1 | tee {log}"
