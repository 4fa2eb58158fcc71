#!/usr/bin/env bash
# The long tiers behind `tests/run.sh --full`: the aarch64 cross build, quality on downloaded models, ASan+UBSan with fuzzing, TSan,
# clang-tidy. Where CI=true they are shortened to fit, and say how. Stops at what fails; prints what each stage took.
# usage: tests/full.sh [STAGE...]     (all by default; models and tidy need the release build)
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
ci=${CI:-false}
fuzz_seconds=60
fuzz_seed=0  # another one each time
stages=("$@")
if [ $# = 0 ]; then
  stages=(aarch64 models fuzz tsan tidy)
  if [ "$ci" = true ]; then
    stages=(aarch64 tidy fuzz tsan)
    echo "shortened: of the long tiers, CI runs ${stages[*]}"
  fi
fi

. tests/stages.sh

run_tidy() {
  begin "clang-tidy"
  if [ "$ci" = true ]; then
    echo "shortened: without the static analyzer (clang-analyzer-*)"
    bash tests/tidy.sh build/release --quick
  else
    bash tests/tidy.sh build/release
  fi
}

run_models() {
  begin "models: perplexity against llama.cpp, build and tests"
  cmake -DQINFER_FULL_TESTS=ON build/release > /dev/null
  cmake --build --preset release -j "$jobs" --target unit_evaluate
  ctest --test-dir build/release --output-on-failure -j 1 -L models
  begin "models: what quantization costs"
  local python=$HOME/.cache/qinfer/python
  [ -d "$python/gguf" ] || python3 -m pip install -q --target "$python" numpy gguf || echo "numpy and gguf cannot be fetched"
  PYTHONPATH=$python bash tests/twin.sh build/release/samples/cli/qinfer || { [ $? = 77 ] && [ "$ci" != true ]; }
}

run_fuzz() {
  begin "address and undefined-behaviour sanitizers, fuzzers: build"
  cmake --preset fuzz > /dev/null
  cmake --build --preset fuzz -j "$jobs"
  begin "address and undefined-behaviour sanitizers: tests"
  ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    ctest --test-dir build/fuzz --output-on-failure -j "$jobs" -LE "native|models"
  begin "fuzzing"
  if [ "$ci" = true ]; then echo "shortened: about 10 s a target, always the same inputs"; fi
  local targets target
  targets=$(find build/fuzz/tests/fuzz -maxdepth 1 -type f -name 'fuzz_*' -perm -u+x | sort)
  [ "$(wc -l <<< "$targets")" -ge 8 ] || { echo "fuzz targets are missing"; return 1; }
  for target in $targets; do
    fuzz_one "$target"
  done
}

# What takes about 10 s. A number of inputs with one seed, from an empty corpus, finds what a change breaks, on every machine alike; what
# is new by chance is for longer runs.
ci_inputs() {
  case $1 in
    calibration) echo 6000 ;;
    config) echo 15000 ;;
    model) echo 30000 ;;
    tokenizer_compiled) echo 500000 ;;
    *) echo 100000 ;;
  esac
}

fuzz_one() {
  local name=${1##*/fuzz_} limit=(-seed="$fuzz_seed" -max_total_time="$fuzz_seconds")
  if [ "$ci" = true ]; then
    limit=(-seed=1 -runs="$(ci_inputs "$name")")
    rm -rf "build/fuzz/corpus/$name"
  fi
  echo "-- $name: ${limit[*]}"
  mkdir -p "build/fuzz/corpus/$name"
  "$1" "${limit[@]}" -rss_limit_mb=2048 -timeout=20 -max_len=65536 -verbosity=0 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" > "build/fuzz/$name.log" 2>&1 ||
    { tail -n 100 "build/fuzz/$name.log"; echo "the input is in build/fuzz/$name-*"; return 1; }
  grep number_of_executed_units "build/fuzz/$name.log"
}

# What has several threads (tests/CMakeLists.txt says what that leaves out).
run_tsan() {
  begin "thread sanitizer: build"
  cmake --preset tsan > /dev/null
  cmake --build --preset tsan -j "$jobs"
  begin "thread sanitizer: tests"
  TSAN_OPTIONS=halt_on_error=1 ctest --test-dir build/tsan --output-on-failure -j "$jobs"
}

run_aarch64() {
  begin "aarch64: packages, cross build"
  sh src/cmake/fetch_sysroot.sh build/sysroot-arm64 arm64 libpcre2-dev libutf8proc-dev nlohmann-json3-dev libxxhash-dev \
    libcli11-dev googletest
  cmake --preset aarch64 > /dev/null
  if [ "$ci" = true ]; then
    echo "shortened: what the kernel tests need, not the whole library"
    cmake --build --preset aarch64 -j "$jobs" --target unit_core unit_kernels
  else
    cmake --build --preset aarch64 -j "$jobs" --target qinfer unit_core unit_kernels
  fi
  begin "aarch64: kernel tests under qemu"
  ctest --test-dir build/aarch64 --output-on-failure -j "$jobs" -R '^(unit_(core|kernels)|isa_objects_.*)$'
  # The run above compares both NEON tables with the reference; this one shows that a processor without dot product instructions is
  # given the table that it can run.
  begin "aarch64: kernel tests on a processor without dot product instructions"
  qemu-aarch64 -cpu cortex-a53 -L /usr/aarch64-linux-gnu build/aarch64/tests/unit_kernels --gtest_brief=1 \
    --gtest_filter='Dispatch.*:Vector.*:FloatMatmul.*:Matmul.*:Attention.Planes*:Attention.Nan*:*EveryTable*_g32'
}

for stage in "${stages[@]}"; do
  case $stage in
    aarch64 | models | fuzz | tsan | tidy) "run_$stage" ;;
    *) echo "usage: tests/full.sh [aarch64|models|fuzz|tsan|tidy]..." >&2; exit 2 ;;
  esac
done
print_stages
