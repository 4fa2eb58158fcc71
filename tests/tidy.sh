#!/usr/bin/env bash
# clang-tidy over our own sources, with the compile commands of a build folder. Prints the findings of every file that has any, and
# exits 1.
# usage: tests/tidy.sh BUILD_DIR [--quick] [FILE...]     (--quick leaves out the static analyzer, which takes half of the time)
set -euo pipefail
cd "$(dirname "$0")/.."
build=$1
[ -f "$build/compile_commands.json" ] || { echo "tidy.sh: no compile commands in $build" >&2; exit 1; }
shift
checks=
if [ "${1:-}" = --quick ]; then
  checks='-clang-analyzer-*'
  shift
fi
[ $# -gt 0 ] || set -- 'src/*.cpp' 'kernels/ref/*.cpp' 'kernels/cpu/*.cpp' 'samples/*.cpp'
export build checks

check() {
  local output
  # What it says of success is how many warnings it hid in other people's headers.
  output=$(clang-tidy-14 --quiet -p "$build" --checks="$checks" --extra-arg=-Wno-unknown-warning-option "$1" 2>&1) && return 0
  printf '%s\n' "$output" | grep -v ' warnings\? generated\.$'
  echo "clang-tidy: $1 FAILED"
  return 1
}
export -f check

# Files that are not compiled here (another processor's) have no compile command.
files=$(git ls-files "$@" |
  while read -r file; do if grep -qF "/$file\"" "$build/compile_commands.json"; then echo "$file"; fi; done)
echo "$(printf '%s\n' "$files" | wc -l) files"
# shellcheck disable=SC2016
printf '%s\n' "$files" | xargs -P "$(nproc)" -n 1 bash -c 'check "$0"'
