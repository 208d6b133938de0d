rule problems:
    input:
        local_files,
    output:
        train="results/{scale}/data/{source}/train.jsonl",
        validation="results/{scale}/data/{source}/validation.jsonl",
        test="results/{scale}/data/{source}/test.jsonl",
    log:
        "results/{scale}/logs/problems/{source}.log",
    conda:
        "../../environment.yml"
    params:
        data=config["data"],
        settings=lambda wildcards: f"{settings(EXPERIMENT.data.sources[wildcards.source])}-{EXPERIMENT.seed}",
        code=code_fingerprint("sbd.steps.problems"),
    shell:
        'python -m sbd problems --experiment "$SBD_EXPERIMENT" --source {wildcards.source} --data {params.data:q}'
        " 2>&1 | tee {log}"


rule prepare:
    input:
        training_files,
        chat_template(EXPERIMENT.tokenizer),
    output:
        # Written last; the folders of both splits lie around it and beside it.
        "results/{scale}/data/train/manifest.json",
    log:
        "results/{scale}/logs/prepare.log",
    conda:
        "../../environment.yml"
    # Processes that tokenise streams; other sources are small.
    threads: 32 if EXPERIMENT.data.streamed else 1
    params:
        data=config["data"],
        model="",
        settings=f"{settings(EXPERIMENT.tokenizer, EXPERIMENT.data)}-{EXPERIMENT.seed}",
        code=code_fingerprint("sbd.steps.prepare"),
    shell:
        'python -m sbd prepare --experiment "$SBD_EXPERIMENT" {params.model} --data {params.data:q}'
        " --threads {threads} 2>&1 | tee {log}"


# The same rows in the words of a model's own tokenizer.
use rule prepare as prepare_model with:
    input:
        training_files,
        lambda wildcards: chat_template(EXPERIMENT.tokenizer_of(wildcards.model)),
    output:
        "results/{scale}/data/{model}/train/manifest.json",
    log:
        "results/{scale}/logs/prepare/{model}.log",
    wildcard_constraints:
        model=one_of(name for name, model in EXPERIMENT.models.items() if model.tokenizer),
    params:
        data=config["data"],
        model=lambda wildcards: f"--model {wildcards.model}",
        settings=lambda wildcards: (
            f"{settings(EXPERIMENT.tokenizer_of(wildcards.model), EXPERIMENT.data)}-{EXPERIMENT.seed}"
        ),
        code=code_fingerprint("sbd.steps.prepare"),
