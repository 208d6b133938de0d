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
        'python -m sbd problems --experiment "$EXPERIMENT" --source {wildcards.source} --data {params.data:q}'
        " 2>&1 | tee {log}"


rule prepare:
    input:
        expand(
            "results/{{scale}}/data/{source}/{split}.jsonl",
            source=EXPERIMENT.data.sources,
            split=["train", "validation"],
        ),
    output:
        # Written last; the folders of both splits lie around it and beside it.
        "results/{scale}/data/train/manifest.json",
    log:
        "results/{scale}/logs/prepare.log",
    conda:
        "../../environment.yml"
    params:
        settings=f"{settings(EXPERIMENT.tokenizer, EXPERIMENT.data)}-{EXPERIMENT.seed}",
        code=code_fingerprint("sbd.steps.prepare"),
    shell:
        'python -m sbd prepare --experiment "$EXPERIMENT" 2>&1 | tee {log}'
