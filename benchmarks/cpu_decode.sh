#!/usr/bin/env bash
# Decoders of a random Llama of 135 million parameters on a CPU, float32 and bf16: a quarter of an hour on a quiet machine
# that multiplies bf16 itself, and much longer elsewhere. No draft of random weights is ever accepted, so self-speculative
# decoding is left to trained models. Eight blocks of 16: equation 16 counts a commit for each block, and the last one of
# a text needs none, which in a text of four (--new 64) is worth up to 10%.
# Usage: benchmarks/cpu_decode.sh [output folder] [more options of random_llama.py, such as --threads 1 --clock cpu]
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-benchmarks/results}"
shift || true
for dtype in float32 bfloat16; do
    PYTHONPATH=. "${PYTHON:-python}" benchmarks/random_llama.py --shape 135m --dtype "$dtype" --prompt 64 --new 128 --repeats 7 \
        --decoders set_block_16_4_per_pass set_block_16_8_per_pass \
        --output "$out/llama_135m_$dtype.csv" "$@"
done
