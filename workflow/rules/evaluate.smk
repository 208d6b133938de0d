rule evaluate:
    input:
        checkpoint="results/{scale}/models/{model}/{run}/checkpoint/training.json",
        problems=test_file,
        task=lambda wildcards: EXPERIMENT.benchmarks[wildcards.benchmark].task,
    output:
        generations="results/{scale}/records/{model}/{run}/{decoder}/{benchmark}/generations.jsonl",
        record="results/{scale}/records/{model}/{run}/{decoder}/{benchmark}/record.json",
    log:
        "results/{scale}/logs/evaluate/{model}/{run}/{decoder}/{benchmark}.log",
    wildcard_constraints:
        benchmark=one_of(benchmarks_scored("at_once")),
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        gpu=0,
    params:
        experiment=EXPERIMENT_FILE,
        settings=lambda wildcards: settings(
            EXPERIMENT.decoders[wildcards.decoder],
            EXPERIMENT.benchmarks[wildcards.benchmark],
        ),
        code=code_fingerprint("sbd.steps.evaluate", "sbd.evaluation.tasks", "sbd._sandbox_child"),
    shell:
        "OMP_NUM_THREADS={threads} python -m sbd evaluate --experiment {params.experiment:q}"
        " --model {wildcards.model} --run {wildcards.run} --decoder {wildcards.decoder}"
        " --benchmark {wildcards.benchmark} --threads {threads} 2>&1 | tee {log}"


localrules:
    collect,


rule collect:
    input:
        records=[str(EXPERIMENT.record_folder(*job) / "record.json") for job in EXPERIMENT.jobs()],
        checkpoints=[checkpoint_file(model, run) for model in EXPERIMENT.models for run in EXPERIMENT.runs],
    output:
        records="results/{scale}/records.csv",
        losses="results/{scale}/losses.csv",
    log:
        "results/{scale}/logs/collect.log",
    conda:
        "../../environment.yml"
    params:
        experiment=EXPERIMENT_FILE,
        code=code_fingerprint("sbd.steps.collect"),
    shell:
        "python -m sbd collect --experiment {params.experiment:q} 2>&1 | tee {log}"
