#!/usr/bin/env bash
# What quantization by this library costs on a real model whose weights lie on no quantization grid (tests/golden/make_off_grid_twin.py):
# KL divergence from the original on 65 windows of WikiText-2, at most 0.2 for INT4 in groups of 32 and 0.003 for INT8.
# usage: tests/twin.sh QINFER     needs the downloaded SmolLM2, WikiText-2 in ../shared, and Python with numpy and gguf
set -euo pipefail
cd "$(dirname "$0")/.."
qinfer=$1
cache=$HOME/.cache/qinfer
original=$cache/SmolLM2-135M-Instruct.Q4_1.gguf
texts=../shared/data/text
python=${PYTHON:-python3}
for needed in "$original" $texts/wikitext2-128k.txt $texts/wikitext2-valid.txt; do
  [ -f "$needed" ] || { echo "skipped: $needed is not here"; exit 77; }
done
if [ ! -f "$cache/smollm2-twin.gguf" ]; then
  "$python" -c 'import numpy, gguf' 2> /dev/null || { echo "skipped: $python has no numpy and gguf (pip install numpy gguf)"; exit 77; }
  "$python" tests/golden/make_off_grid_twin.py "$original" "$cache/smollm2-twin.tmp"
  mv "$cache/smollm2-twin.tmp" "$cache/smollm2-twin.gguf"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# measure SCHEME MOST-KL
measure() {
  "$qinfer" quantize "$cache/smollm2-twin.gguf" -o "$work/$1.qinfer" --scheme "$1" --calibration $texts/wikitext2-valid.txt --no-evaluation > /dev/null
  "$qinfer" perplexity "$work/$1.qinfer" --file $texts/wikitext2-128k.txt --reference "$cache/smollm2-twin.gguf" --json > "$work/$1.json"
  local kl
  kl=$(grep -o '"kl_mean": *[0-9.e-]*' "$work/$1.json" | grep -o '[0-9.e-]*$')
  echo "SmolLM2's twin in $1: KL mean $kl, at most $2; $(stat -c %s "$work/$1.qinfer") bytes; $(grep -o '"\(perplexity\|top1\)": *[0-9.]*' "$work/$1.json" | tr '\n' ' ')"
  awk -v kl="$kl" -v most="$2" 'BEGIN { exit !(kl > 0 && kl <= most) }'
}
measure int4 0.2
measure int8 0.003
