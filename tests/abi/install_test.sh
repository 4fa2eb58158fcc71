#!/usr/bin/env bash
# Installs the built tree into a private prefix and proves it from outside: a C program by find_package, the same by pkg-config, both with the
# shared and the static library, and the installed
# command. usage: install_test.sh BUILD-DIR SOURCE-DIR
set -euo pipefail
build=$1
source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
model=$source/samples/models/tiny-llama
cmake --install "$build" --prefix "$work/prefix" >/dev/null
cmake -S "$source/tests/abi/outside" -B "$work/outside" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$work/outside" >/dev/null
"$work/outside/outside" "$model" "In the beginning" > "$work/a.txt"
[ -s "$work/a.txt" ] || { echo "the program built by find_package wrote nothing"; exit 1; }
"$work/outside/outside_static" "$model" "In the beginning" > "$work/a.static.txt"
cmp "$work/a.txt" "$work/a.static.txt"
if ldd "$work/outside/outside_static" | grep qinfer; then echo "the static program needs a shared library"; exit 1; fi

config=$(find "$work/prefix" -name qinfer.pc)
export PKG_CONFIG_PATH=${config%/*}
# shellcheck disable=SC2046
cc -std=c99 -Wall -Werror -o "$work/b" "$source/samples/readme.c" $(pkg-config --cflags --libs qinfer) -Wl,-rpath,"$(pkg-config --variable=libdir qinfer)"
"$work/b" "$model" "In the beginning" > "$work/b.txt"
cmp "$work/a.txt" "$work/b.txt"
# The static variant by pkg-config: what has to follow libqinfer.a is in Libs.private.
# shellcheck disable=SC2046
cc -std=c99 -o "$work/c" "$source/samples/readme.c" $(pkg-config --cflags --static --libs qinfer | sed 's/-lqinfer/-l:libqinfer.a/')
"$work/c" "$model" "In the beginning" > "$work/c.txt"
cmp "$work/a.txt" "$work/c.txt"
for notice in abseil libpcre2-dev libutf8proc-dev nlohmann-json3-dev libxxhash-dev; do
  found=$(find "$work/prefix" -path "*third-party/$notice")
  [ -s "$found" ] || { echo "the notice of $notice is not installed"; exit 1; }
done
"$work/prefix/bin/qinfer" --version
"$work/prefix/bin/qinfer" info "$model" | grep -q "architecture   llama"

# README.md prints the program exactly as it is compiled here.
awk '/^```c$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$source/README.md" > "$work/readme.c"
cmp "$work/readme.c" "$source/samples/readme.c"
echo "installed tree works by find_package and by pkg-config, shared and static"
