#!/bin/sh
# Compiles the whole program that docs/c-api.md prints, as it is printed, and runs it.
# usage: docs_program.sh SOURCE_DIR LIBRARY WORK_DIR SHARED_DIR
set -eu
source=$1 library=$2 work=$3 shared=$4
mkdir -p "$work"
awk '/^```c$/ { if (!done) inside = 1; next } /^```$/ { if (inside) done = 1; inside = 0 } inside' \
  "$source/docs/c-api.md" > "$work/program.c"
grep -q 'int main' "$work/program.c"
folder=$(dirname "$library")
gcc -std=c99 -Wall -Wextra -Wpedantic -Werror -I"$source/include" "$work/program.c" -o "$work/program" \
  -L"$folder" -lqinfer -Wl,-rpath,"$folder"
model=$source/samples/models/tiny-llama
[ -d "$model" ] || model=$shared/models/tiny-llama
[ -d "$model" ] || { echo "no test model"; exit 77; }
text=$("$work/program" "$model" "In the beginning")
[ "${#text}" -gt 20 ] || { echo "it wrote only: $text"; exit 1; }
# A model that is not there gives a message and an exit code.
if "$work/program" /no/such/model x > "$work/out"; then echo "no error for a missing model"; exit 1; fi
grep -q '/no/such/model' "$work/out"
