EVALUATION_CODE = code_fingerprint("sbd.steps.evaluate", "sbd.evaluation.tasks", "sbd._sandbox_child")


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
        benchmark=one_of(() if EXPERIMENT.evaluate_together else benchmarks_scored("at_once")),
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
        code=EVALUATION_CODE,
    shell:
        # As in a training: the step itself acts on Slurm's signal.
        "trap '' TERM USR1;"
        ' OMP_NUM_THREADS={threads} python -m sbd evaluate --experiment "$SBD_EXPERIMENT"'
        " --model {wildcards.model} --run {wildcards.run} --decoder {wildcards.decoder}"
        " --benchmark {wildcards.benchmark} --threads {threads} 2>&1 | tee {log}"


# One process for evaluations that take about as long as a process does to start. The file of finished batches is no output,
# so what is made again with the rest of its group is not generated again.
for number, group in enumerate(EXPERIMENT.groups()):

    rule:
        name:
            f"evaluate_{group.model}_{group.run}_{number}"
        input:
            checkpoint=checkpoint_file(group.model, group.run),
            problems=[
                str(EXPERIMENT.source_file(EXPERIMENT.benchmarks[name].source, "test")) for name in group.benchmarks
            ],
            task=[EXPERIMENT.benchmarks[name].task for name in group.benchmarks],
        output:
            [
                str(EXPERIMENT.record_folder(*job) / name)
                for job in group.jobs()
                for name in ("generations.jsonl", "record.json")
            ],
        log:
            f"{EXPERIMENT.work_folder}/logs/evaluate/{group.model}/{group.run}/{number}.log",
        # The longest first, but no evaluation before a training.
        priority: min(9, len(group.jobs()))
        conda:
            "../../environment.yml"
        threads: 1
        resources:
            gpu=min(1, EXPERIMENT.runs[group.run].gpus),
        params:
            asked=shlex.join(
                [
                    *("--model", group.model, "--run", group.run),
                    *("--decoder", *group.decoders, "--benchmark", *group.benchmarks),
                ]
            ),
            settings=fingerprint(
                *(settings_of(EXPERIMENT.decoder(*job[2:])) for job in group.jobs()),
                *(settings_of(EXPERIMENT.benchmarks[name]) for name in group.benchmarks),
            ),
            code=EVALUATION_CODE,
        shell:
            # As in rule evaluate; Snakemake's lint would have the words twice rather than joined with a plus.
            "trap '' TERM USR1;"
            ' OMP_NUM_THREADS={threads} python -m sbd evaluate --experiment "$SBD_EXPERIMENT"'
            " {params.asked} --threads {threads} 2>&1 | tee {log}"


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
