#!/bin/sh
# What a guest in somebody's process must not do, read from the objects: nothing of ours may import functions that end the
# process, print, read the environment, or change state of the whole process; no static constructors; no writable globals of
# ours. Members of third-party archives that import such functions are listed in allowed_imports.txt with the reason why they
# cannot be reached.
# usage: hygiene_test.sh SOURCE_DIR WORK_DIR LIBQINFER_A
set -eu
source=$1 work=$2 archive=$3
allowed=$source/tests/abi/allowed_imports.txt
rm -rf "$work"
mkdir -p "$work"
failed=0
complain() { echo "FAILED: $*"; failed=1; }

forbidden='abort|exit|_exit|_Exit|quick_exit|atexit|on_exit|__assert_fail|printf|fprintf|vprintf|vfprintf|__printf_chk|__fprintf_chk'
forbidden="$forbidden|__vfprintf_chk|puts|fputs|putchar|fputc|fwrite|perror|stdout|stderr|stdin|getenv|secure_getenv|setenv|putenv"
forbidden="$forbidden|signal|sigaction|raise|kill|setlocale|fork|vfork|execve|system|popen|chdir|umask|dlopen|srand|rand|_ZSt4cout|_ZSt4cerr|_ZSt4clog"
forbidden="$forbidden|_ZSt13set_terminatePFvvE|__cxa_thread_atexit|feenableexcept|fesetround"

# "archive member: symbol", in the words of nm; members of the merged archive keep the names of their objects.
nm -A --undefined-only "$archive" 2>/dev/null | sed 's|^[^:]*:||' | awk -F: '{ n = split($NF, w, " "); print $1 " " w[n] }' |
  sed 's/@.*//' | sort -u > "$work/imports"
[ "$(wc -l < "$work/imports")" -gt 500 ] || complain "nm found next to nothing"
grep -E " ($forbidden)$" "$work/imports" | sort -u > "$work/forbidden" || true
# Lines of the list: MEMBER SYMBOL reason...
sed '/^#/d; /^$/d' "$allowed" | awk '{ print $1 " " $2 }' | sort -u > "$work/allowed"
awk 'NF < 5 && !/^#/ && NF > 0' "$allowed" | grep . && complain "entries without a reason"
comm -23 "$work/forbidden" "$work/allowed" > "$work/unlisted"
comm -13 "$work/forbidden" "$work/allowed" > "$work/stale"
[ -s "$work/unlisted" ] && { cat "$work/unlisted"; complain "imports that are not listed"; }
[ -s "$work/stale" ] && { echo "listed and not there any more:"; cat "$work/stale"; }

# Our own objects have no entry in the list: their names end in .cpp.o.
sed '/^#/d; /^$/d' "$allowed" | grep -E '^[^ ]*\.cpp\.o ' && complain "our own objects are listed"

# Static constructors, and data that is written at run time, in our own objects. Constant tables with pointers are relocated
# once and then read-only (.data.rel.ro), which is fine. Abseil's headers bring <iostream>, whose constructor counts the users of
# the standard streams and does nothing else (std::__ioinit).
objdump -t "$archive" 2>/dev/null | awk '/file format/ { file = $1; next } / O \.(data|bss)/ && !/ \.data\.rel\.ro/ { print file, $NF }' |
  grep '\.cpp\.o: ' | grep -v ' DW\.ref\.' > "$work/globals" || true
grep ' _ZStL8__ioinit$' "$work/globals" | sed 's/: .*//' | sort -u > "$work/streams" || true
grep -v ' _ZStL8__ioinit$' "$work/globals" > "$work/writable" || true
[ -s "$work/writable" ] && { c++filt < "$work/writable"; complain "writable globals"; }
readelf -SW "$archive" 2>/dev/null | awk '/^File: / { file = $2 } / \.(init_array|ctors)/ { print file }' |
  sed 's/.*(\(.*\))$/\1/' | grep '\.cpp\.o$' | sort -u > "$work/constructors" || true
comm -13 "$work/streams" "$work/constructors" > "$work/other_constructors"
[ -s "$work/other_constructors" ] && { cat "$work/other_constructors"; complain "static constructors"; }
echo "$(ar t "$archive" | wc -l) objects, $(wc -l < "$work/imports") imports, $(wc -l < "$work/forbidden") of them listed"
exit $failed
