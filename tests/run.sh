#!/usr/bin/env bash
# Everything that tells whether the project is sound. Installs what it needs, builds, runs, and ends with ctest's summary.
# usage: tests/run.sh [--full]
#   default  release build, all tests with replayed fuzz corpora, formatting; under 15 minutes on two cores
#   --full   the long tiers of tests/full.sh first (shortened where CI=true)
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
. tests/stages.sh
# What another checkout has compiled is taken from ccache, where that is installed.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1 CCACHE_SLOPPINESS=pch_defines,time_macros
packages() { sed -n "s/^$1: //p" src/cmake/packages.txt; }

begin "packages"
# shellcheck disable=SC2046
sh src/cmake/install_packages.sh $(packages build) $(packages test)
if [ $full = yes ]; then
  # shellcheck disable=SC2046
  sh src/cmake/install_packages.sh $(packages full)
fi

begin "test models"
bash tests/fetch_models.sh || echo "some test models are absent: their tests will be counted as skipped"

begin "formatting"
git ls-files '*.h' '*.cpp' '*.c' | xargs clang-format-14 --dry-run -Werror

begin "release build"
cmake --preset release -DQINFER_BUILD_TESTS=ON >/dev/null
cmake --build --preset release -j "$jobs"

if [ $full = yes ]; then
  begin "the long tiers"
  bash tests/full.sh
fi

print_stages
begin "tests"
ctest --test-dir build/release --output-on-failure -j "$jobs" -LE models
