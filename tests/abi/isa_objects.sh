#!/bin/sh
# Checks objects that are compiled for newer processors: isa_objects.sh NM OBJDUMP OBJECT...
# They must define no weak or COMDAT symbol (the linker could give it to code for older processors), run nothing at
# start-up, and need nothing but memory functions and our own kernels.
set -u
nm=$1 objdump=$2
shift 2
failed=0
complain() {
  echo "$1"
  failed=1
}
[ $# -gt 0 ] || complain "no objects given"
for object in "$@"; do
  weak=$("$nm" "$object" | awk 'NF >= 2 && $(NF-1) ~ /^[WwVvu]$/ {print $NF}')
  [ -z "$weak" ] || complain "$object: weak symbols: $weak"
  sections=$("$objdump" -h -w "$object" | grep -E '\.(init_array|ctors|fini_array|tbss|tdata)|LINK_ONCE|COMDAT' || true)
  [ -z "$sections" ] || complain "$object: sections: $sections"
  foreign=$("$nm" -u "$object" | awk '{print $NF}' |
    grep -v -E '^(memcpy|memset|memmove|memcmp|_GLOBAL_OFFSET_TABLE_|_ZN6qinfer7kernels.*)$' || true)
  [ -z "$foreign" ] || complain "$object: needs: $foreign"
done
exit $failed
