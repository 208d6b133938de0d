# Wall-clock of decoding, for an experiment that has the key `speed`.
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
