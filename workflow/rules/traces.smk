# A page for each decoder that shows its passes, for an experiment that has the key `traces`.
TRACED = EXPERIMENT.traces.decoders or list(EXPERIMENT.decoders)


rule traces:
    input:
        checkpoint=lambda wildcards: checkpoint_file(EXPERIMENT.traces.model, EXPERIMENT.traces.run),
        problems=lambda wildcards: str(
            EXPERIMENT.source_file(EXPERIMENT.benchmark_of(EXPERIMENT.traces).source, "test")
        ),
    output:
        [
            report(
                f"results/{{scale}}/traces/{decoder}.html",
                caption="../report/traces.rst",
                category="Decoding, pass by pass",
                subcategory=f"Scale {EXPERIMENT.work_scale}",
                labels={"scale": EXPERIMENT.work_scale, "run": EXPERIMENT.traces.run, "decoder": decoder},
            )
            for decoder in TRACED
        ],
    log:
        "results/{scale}/logs/traces.log",
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        gpu=0,
    params:
        settings=settings(
            EXPERIMENT.traces,
            EXPERIMENT.benchmark_of(EXPERIMENT.traces),
            *(EXPERIMENT.decoders[name] for name in TRACED),
        ),
        code=code_fingerprint("sbd.steps.traces"),
    shell:
        'OMP_NUM_THREADS={threads} python -m sbd traces --experiment "$SBD_EXPERIMENT" --threads {threads}'
        " 2>&1 | tee {log}"
