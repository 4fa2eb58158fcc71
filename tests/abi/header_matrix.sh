#!/bin/sh
# Compiles every public header alone, and a program that uses every *_INIT macro and every *_init function, as each
# language standard that we promise, with each compiler that is installed. Nothing is linked or run.
# usage: header_matrix.sh INCLUDE_DIR WORK_DIR
set -eu
include=$1
work=$2
rm -rf "$work"
mkdir -p "$work"
flags="-I$include -Wall -Wextra -Wpedantic -Werror -fsyntax-only"

# One file per header, and one with all of them that instantiates what cannot be seen by including alone.
for header in "$include"/qinfer/*.h; do
  name=$(basename "$header" .h)
  printf '#include "qinfer/%s.h"\n#include "qinfer/%s.h"\ntypedef int qinfer_not_empty;\n' "$name" "$name" > "$work/$name.c"
done
{
  echo '#include "qinfer/qinfer.h"'
  echo 'void qinfer_use_all(void);'
  echo 'void qinfer_use_all(void) {'
  sed -n 's/^#define QINFER_\([A-Z_]*\)_INIT\( .*\)\{0,1\}$/\1/p' "$include"/qinfer/*.h | tr 'A-Z' 'a-z' |
    while read -r noun; do
      printf '  { qinfer_%s made = QINFER_%s_INIT;\n    qinfer_%s_init(&made, sizeof made); }\n' "$noun" \
        "$(echo "$noun" | tr 'a-z' 'A-Z')" "$noun"
    done
  echo '}'
} > "$work/all_inits.c"
grep -c _INIT "$work/all_inits.c" > "$work/count"
[ "$(cat "$work/count")" -ge 20 ] || { echo "found only $(cat "$work/count") *_INIT macros"; exit 1; }

failed=0
checked=0
for compiler in gcc clang; do
  command -v "$compiler" >/dev/null 2>&1 || { echo "$compiler is not installed: not checked"; continue; }
  for standard in c99 c11 c17 c++11 c++14 c++17 c++20; do
    case $standard in c++*) language=c++ ;; *) language=c ;; esac
    for file in "$work"/*.c; do
      # shellcheck disable=SC2086
      if ! $compiler -x $language -std=$standard $flags "$file"; then
        echo "FAILED: $compiler -std=$standard $(basename "$file")"
        failed=1
      fi
      checked=$((checked + 1))
    done
  done
done
echo "$checked compilations, $(cat "$work/count") option structs"
exit $failed
