#!/usr/bin/env bash
# Everything that tells whether the project is sound. Installs what it needs, builds, runs, and ends with ctest's summary.
# usage: tests/run.sh [--full]
#   default  release build, all tests with replayed fuzz corpora, formatting; under 15 minutes on two cores
#   --full   also clang-tidy, address, undefined and thread sanitizers, fuzzing, the aarch64 cross build (shortened where CI=true)
set -euo pipefail
cd "$(dirname "$0")/.."
full=no
for argument in "$@"; do
  case $argument in
    --full) full=yes ;;
    *) echo "usage: tests/run.sh [--full]" >&2; exit 2 ;;
  esac
done
jobs=$(nproc)
say() { printf '\n== %s (%s)\n' "$1" "$(date +%H:%M:%S)"; }
packages() { sed -n "s/^$1: //p" src/cmake/packages.txt; }

say "packages"
# shellcheck disable=SC2046
sh src/cmake/install_packages.sh $(packages build) $(packages test)
if [ $full = yes ]; then
  # shellcheck disable=SC2046
  sh src/cmake/install_packages.sh $(packages full)
fi

say "test models"
bash tests/fetch_models.sh || echo "some test models are absent: their tests will be counted as skipped"

say "formatting"
git ls-files '*.h' '*.cpp' '*.c' | xargs clang-format-14 --dry-run -Werror

say "release build"
cmake --preset release -DQINFER_BUILD_TESTS=ON >/dev/null
cmake --build --preset release -j "$jobs"

if [ $full = yes ]; then
  bash tests/full.sh
fi

say "tests"
ctest --test-dir build/release --output-on-failure -j "$jobs"
