#!/usr/bin/env bash
# The long tiers behind `tests/run.sh --full`: clang-tidy, ASan+UBSan with fuzzing, TSan, and the aarch64 cross build. Where CI=true each is
# shortened to fit. Prints what failed and exits 1.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
short=${CI:-false}
fuzz_seconds=60
[ "$short" = true ] && fuzz_seconds=10
say() { printf '\n== %s (%s)\n' "$1" "$(date +%H:%M:%S)"; }

say "clang-tidy"
git ls-files 'src/*.cpp' 'kernels/ref/*.cpp' 'kernels/cpu/*.cpp' |
  xargs -P "$jobs" -n 4 clang-tidy-14 --quiet -p build/release 2>/dev/null

say "address and undefined-behaviour sanitizers, fuzzers: build"
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz -j "$jobs"
say "address and undefined-behaviour sanitizers: tests"
export ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
ctest --test-dir build/fuzz --output-on-failure -j "$jobs" -LE "native|models"
for target in build/fuzz/tests/fuzz/fuzz_*; do
  [ -f "$target" ] && [ -x "$target" ] || continue
  name=${target##*/fuzz_}
  say "fuzz $name, $fuzz_seconds s"
  mkdir -p "build/fuzz/corpus/$name"
  "$target" -max_total_time="$fuzz_seconds" -rss_limit_mb=1024 -timeout=20 -max_len=65536 -print_final_stats=0 -verbosity=0 \
    -artifact_prefix="build/fuzz/$name-" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name"
done

say "thread sanitizer: build"
cmake --preset tsan >/dev/null
cmake --build --preset tsan -j "$jobs"
say "thread sanitizer: tests"
ctest --test-dir build/tsan --output-on-failure -j 1 -LE "native|models|fuzz"

say "aarch64 cross build: packages"
sh src/cmake/fetch_sysroot.sh build/sysroot-arm64 arm64 libpcre2-dev libutf8proc-dev nlohmann-json3-dev libeigen3-dev libxxhash-dev \
  libcli11-dev googletest
say "aarch64 cross build"
cmake --preset aarch64 >/dev/null
cmake --build --preset aarch64 -j "$jobs" --target qinfer unit_core unit_kernels
say "aarch64: kernel tests under qemu"
ctest --test-dir build/aarch64 --output-on-failure -R '^unit_(core|kernels)$'
