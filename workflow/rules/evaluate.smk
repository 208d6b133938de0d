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
        gpu=lambda wildcards: min(1, EXPERIMENT.runs[wildcards.run].gpus),
    params:
        settings=lambda wildcards: settings(
            EXPERIMENT.decoder(wildcards.decoder, wildcards.benchmark),
            EXPERIMENT.benchmarks[wildcards.benchmark],
        ),
        code=code_fingerprint("sbd.steps.evaluate", "sbd.evaluation.tasks", "sbd._sandbox_child"),
    shell:
        # As in a training: the step itself acts on Slurm's signal.
        "trap '' TERM USR1;"
        ' OMP_NUM_THREADS={threads} python -m sbd evaluate --experiment "$SBD_EXPERIMENT"'
        " --model {wildcards.model} --run {wildcards.run} --decoder {wildcards.decoder}"
        " --benchmark {wildcards.benchmark} --threads {threads} 2>&1 | tee {log}"


rule masked_loss:
    input:
        lambda wildcards: checkpoint_file(wildcards.model, wildcards.run),
    output:
        f"{EXPERIMENT.folder}/masked_loss/{{model}}/{{run}}.csv",
    log:
        f"{EXPERIMENT.folder}/logs/masked_loss/{{model}}/{{run}}.log",
    conda:
        "../../environment.yml"
    threads: 1
    params:
        settings=fingerprint(EXPERIMENT.figures.matp_loss),
        code=code_fingerprint("sbd.steps.masked_loss"),
    shell:
        'OMP_NUM_THREADS={threads} python -m sbd masked-loss --experiment "$SBD_EXPERIMENT"'
        " --model {wildcards.model} --run {wildcards.run} --threads {threads} 2>&1 | tee {log}"


rule collect:
    input:
        records=[str(EXPERIMENT.record_folder(*job) / "record.json") for job in EXPERIMENT.jobs()],
        checkpoints=[checkpoint_file(*training) for training in EXPERIMENT.trainings()],
        masked=[str(EXPERIMENT.masked_loss_file(*training)) for training in EXPERIMENT.masked_losses()],
    output:
        [str(EXPERIMENT.folder / name) for name in EXPERIMENT.collected()],
    log:
        f"{EXPERIMENT.folder}/logs/collect.log",
    localrule: True
    conda:
        "../../environment.yml"
    params:
        # Which differences are taken follows from what is drawn.
        settings=fingerprint(EXPERIMENT.figures, EXPERIMENT.table1, EXPERIMENT.pareto),
        code=code_fingerprint("sbd.steps.collect"),
    shell:
        'python -m sbd collect --experiment "$SBD_EXPERIMENT" 2>&1 | tee {log}'


# For the rooflines. It takes all cores, so that nothing else runs while it measures one of them.
rule machine:
    output:
        f"{EXPERIMENT.folder}/machine.csv",
    log:
        f"{EXPERIMENT.folder}/logs/machine.log",
    conda:
        "../../environment.yml"
    threads: ALL_CORES
    params:
        code=code_fingerprint("sbd.roofline"),
    shell:
        "python -m sbd.roofline --threads 1 --output {output} 2>&1 | tee {log}"
