# Wall-clock of decoding, for an experiment that has the key `speed`.
localrules:
    decoding_speed,


rule speed:
    input:
        checkpoint=lambda wildcards: checkpoint_file(wildcards.model, EXPERIMENT.speed.run),
        problems=lambda wildcards: str(EXPERIMENT.source_file(EXPERIMENT.benchmark_of(EXPERIMENT.speed).source, "test")),
    output:
        f"results/{{scale}}/speed/{{model}}/{EXPERIMENT.speed.run}.csv",
    log:
        "results/{scale}/logs/speed/{model}.log",
    conda:
        "../../environment.yml"
    # All cores of this machine, although few are used: nothing else may run beside a measurement of time.
    threads: ALL_CORES
    resources:
        gpu=0,
    params:
        threads=EXPERIMENT.speed.threads,
        settings=settings(
            EXPERIMENT.speed,
            EXPERIMENT.benchmark_of(EXPERIMENT.speed),
            *(EXPERIMENT.decoders[name] for name in EXPERIMENT.speed.decoders),
        ),
        code=code_fingerprint("sbd.steps.speed"),
    shell:
        'OMP_NUM_THREADS={params.threads} python -m sbd speed --experiment "$SBD_EXPERIMENT"'
        " --model {wildcards.model} --threads {params.threads} --output {output} 2>&1 | tee {log}"


rule decoding_speed:
    input:
        expand(
            "results/{{scale}}/speed/{model}/{run}.csv",
            model=EXPERIMENT.speed.models or EXPERIMENT.models,
            run=EXPERIMENT.speed.run,
        ),
    output:
        pdf="results/{scale}/figures/decoding_speed.pdf",
        png=report(
            "results/{scale}/figures/decoding_speed.png",
            caption="../report/decoding_speed.rst",
            category="Wall-clock of decoding",
            labels={"scale": "{scale}", "what": "figure"},
        ),
        csv=report(
            "results/{scale}/tables/decoding_speed.csv",
            caption="../report/decoding_speed.rst",
            category="Wall-clock of decoding",
            labels={"scale": "{scale}", "what": "table"},
        ),
        markdown="results/{scale}/tables/decoding_speed.md",
        tex="results/{scale}/tables/decoding_speed.tex",
    log:
        "results/{scale}/logs/decoding_speed.log",
    conda:
        "../../environment.yml"
    params:
        settings=fingerprint(EXPERIMENT),
        code=code_fingerprint("paper_figures.decoding_speed"),
    shell:
        'python -m paper_figures.decoding_speed --experiment "$SBD_EXPERIMENT" --speed {input}'
        " --output results/{wildcards.scale} 2>&1 | tee {log}"
