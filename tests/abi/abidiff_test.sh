#!/bin/sh
# Compares the library's interface with the committed dump (tests/abi/libqinfer.abi): functions and types may be added, nothing
# may be removed or changed. Needs debug information, so it compiles the headers' view of it if the library has none.
# usage: abidiff_test.sh LIBRARY SOURCE_DIR WORK_DIR         (77 = cannot be compared here)
set -eu
library=$1 source=$2 work=$3
mkdir -p "$work"
# A stand-in with the same functions and full types, from the headers alone: every declaration becomes an empty definition.
python3 "$source/tests/abi/make_stand_in.py" "$source/include" > "$work/stand_in.c"
# The dump names the source: without the folder that it was made in.
gcc -std=c99 -g -w -shared -fPIC -ffile-prefix-map="$work/"= -I"$source/include" "$work/stand_in.c" -o "$work/libqinfer.so" -Wl,-soname,libqinfer.so.0
nm -D --defined-only "$library" | awk '{ print $NF }' | sed 's/@@.*//' | grep '^qinfer_' | sort > "$work/real"
nm -D --defined-only "$work/libqinfer.so" | awk '{ print $NF }' | grep '^qinfer_' | sort > "$work/stand_in"
diff -u "$work/real" "$work/stand_in"
abidw --no-corpus-path --no-comp-dir-path --no-show-locs --headers-dir "$source/include" "$work/libqinfer.so" > "$work/libqinfer.abi"
if [ "${QINFER_WRITE_ABI:-}" = 1 ]; then cp "$work/libqinfer.abi" "$source/tests/abi/libqinfer.abi"; fi
set +e
abidiff --no-added-syms "$source/tests/abi/libqinfer.abi" "$work/libqinfer.abi"
status=$?
set -e
# Bit 2: the interface changed; bit 3: incompatibly. Bits 0 and 1: abidiff itself failed.
[ $((status & 3)) -eq 0 ] || { echo "abidiff failed"; exit 1; }
[ $((status & 12)) -eq 0 ] || { echo "the interface has changed: if that is meant, see docs/abi.md"; exit 1; }
