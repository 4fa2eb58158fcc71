#!/usr/bin/env bash
# The long tiers behind `tests/run.sh --full`: clang-tidy, ASan+UBSan with fuzzing, TSan, and the aarch64 cross build. Where CI=true each is
# shortened to fit, and says how. Stops at what fails; prints what each stage took.
# usage: tests/full.sh [STAGE...]     (tidy, fuzz, tsan, aarch64; all by default; needs a configured release build for tidy)
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
ci=${CI:-false}
fuzz_seconds=60
[ "$ci" = true ] && fuzz_seconds=10
stages=("$@")
[ $# -gt 0 ] || stages=(aarch64 fuzz tsan tidy)

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

run_fuzz() {
  begin "address and undefined-behaviour sanitizers, fuzzers: build"
  cmake --preset fuzz > /dev/null
  cmake --build --preset fuzz -j "$jobs"
  begin "address and undefined-behaviour sanitizers: tests"
  ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
    ctest --test-dir build/fuzz --output-on-failure -j "$jobs" -LE "native|models"
  begin "fuzzing"
  [ "$ci" = true ] && echo "shortened: $fuzz_seconds s a target"
  local targets target
  targets=$(find build/fuzz/tests/fuzz -maxdepth 1 -type f -name 'fuzz_*' -perm -u+x | sort)
  [ "$(wc -l <<< "$targets")" -ge 8 ] || { echo "fuzz targets are missing"; return 1; }
  for target in $targets; do
    fuzz_one "$target"
  done
}

fuzz_one() {
  local name=${1##*/fuzz_}
  echo "-- $name, $fuzz_seconds s"
  mkdir -p "build/fuzz/corpus/$name"
  "$1" -max_total_time="$fuzz_seconds" -rss_limit_mb=2048 -timeout=20 -max_len=65536 -verbosity=0 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" > "build/fuzz/$name.log" 2>&1 ||
    { tail -n 100 "build/fuzz/$name.log"; echo "the input is in build/fuzz/$name-*"; return 1; }
  grep number_of_executed_units "build/fuzz/$name.log"
}

run_tsan() {
  begin "thread sanitizer: build"
  cmake --preset tsan > /dev/null
  cmake --build --preset tsan -j "$jobs"
  begin "thread sanitizer: tests"
  ctest --test-dir build/tsan --output-on-failure -j 1 -LE "native|models|fuzz"
}

run_aarch64() {
  begin "aarch64: packages, cross build"
  sh src/cmake/fetch_sysroot.sh build/sysroot-arm64 arm64 libpcre2-dev libutf8proc-dev nlohmann-json3-dev libeigen3-dev libxxhash-dev \
    libcli11-dev googletest
  cmake --preset aarch64 > /dev/null
  cmake --build --preset aarch64 -j "$jobs" --target qinfer unit_core unit_kernels
  begin "aarch64: kernel tests under qemu"
  ctest --test-dir build/aarch64 --output-on-failure -j "$jobs" -R '^unit_(core|kernels)$'
}

for stage in "${stages[@]}"; do
  case $stage in
    tidy | fuzz | tsan | aarch64) "run_$stage" ;;
    *) echo "usage: tests/full.sh [tidy|fuzz|tsan|aarch64]..." >&2; exit 2 ;;
  esac
done
print_stages
