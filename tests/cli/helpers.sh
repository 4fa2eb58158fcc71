# What the tests of the qinfer program share; sourced in a folder of the test's own. Needs $qinfer.
failures=0
fail() { echo "FAILED: $*"; failures=$((failures + 1)); }

# gives CODE ARGUMENTS...: runs the program, keeps its output in `out` and `err`, and checks the exit code.
gives() {
  local code=$1 got=0
  shift
  "$qinfer" "$@" > out 2> err < /dev/null || got=$?
  [ "$got" = "$code" ] || { fail "qinfer $*: exit code $got, expected $code"; cat err; }
}
# has FILE TEXT: the file contains it.
has() { grep -qF -- "$2" "$1" || { fail "'$2' is not in the $1 of the last command:"; head -n 20 "$1"; }; }
# nothing_left PATTERN...: no file or folder of these names, nor one that was to become it.
nothing_left() { local left; for left in "$@"; do [ ! -e "$left" ] || fail "$left was left behind"; done; }
