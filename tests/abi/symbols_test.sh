#!/bin/sh
# What the shared library exports and needs: exactly the functions of symbols.txt, which are exactly those that the headers
# declare; nothing but libc, libm and the loader; no executable stack; a SONAME.
# usage: symbols_test.sh LIBRARY SOURCE_DIR WORK_DIR
set -eu
library=$1 source=$2 work=$3
here=$source/tests/abi
mkdir -p "$work"
failed=0
complain() { echo "FAILED: $*"; failed=1; }

nm -D --defined-only "$library" | awk '{ print $NF }' | sed 's/@@.*//' | grep -v '^QINFER_0$' | sort > "$work/exported"
cat "$source"/include/qinfer/*.h | tr '\n' ' ' | grep -o 'QINFER_CALL  *qinfer_[a-z0-9_]* *(' |
  sed 's/QINFER_CALL *//; s/ *(//' | sort > "$work/declared"
sort "$here/symbols.txt" > "$work/listed"
diff -u "$work/listed" "$work/exported" || complain "exported symbols differ from tests/abi/symbols.txt"
diff -u "$work/listed" "$work/declared" || complain "declared functions differ from tests/abi/symbols.txt"

ldd "$library" | awk '{ print $1 }' | sed 's|.*/||' | sort -u > "$work/needed"
while read -r name; do
  case $name in
    linux-vdso.so.* | linux-gate.so.* | libc.so.6 | libm.so.6 | ld-linux*) ;;
    *) complain "needs $name" ;;
  esac
done < "$work/needed"

# What it takes from the system: a function that is new here is looked at before it is listed.
nm -D --undefined-only "$library" | awk '{ print $NF }' | sed 's/@.*//' | LC_ALL=C sort -u > "$work/imports"
sed '/^#/d' "$here/imports.txt" | LC_ALL=C sort -u | LC_ALL=C comm -23 "$work/imports" - > "$work/new_imports"
[ -s "$work/new_imports" ] && { cat "$work/new_imports"; complain "imports that are not in tests/abi/imports.txt"; }
strings -a "$library" | grep -F "$source/" && complain "the builder's folders are in the library"
[ -n "${HOME:-}" ] && strings -a "$library" | grep -F "$HOME/" && complain "the builder's home is in the library"

readelf -d "$library" | grep -q 'SONAME.*\[libqinfer\.so\.[0-9]*\]' || complain "no SONAME"
readelf -d "$library" | grep -q TEXTREL && complain "text relocations"
readelf -lW "$library" | grep GNU_STACK | grep -q 'RWE' && complain "executable stack"
# Unique symbols would keep the library loaded for ever.
nm -D "$library" | awk '$2 == "u"' | grep . && complain "unique symbols"
echo "$(wc -l < "$work/exported") functions exported; needs $(tr '\n' ' ' < "$work/needed")"
exit $failed
