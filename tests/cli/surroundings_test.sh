#!/usr/bin/env bash
# The qinfer program where what surrounds it is not as it should be: standard streams that are closed, full or without a reader,
# signals, pipes in the place of files, texts that would control the terminal. usage: surroundings_test.sh QINFER SOURCE-DIR
set -uo pipefail
qinfer=$1
source=$2
model=$source/samples/models/tiny-llama
text=$model/tiny-heldout.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
. "$source/tests/cli/helpers.sh"

# -- A closed stream is no file that is opened later
quantize=(quantize "$model" --no-calibration --no-evaluation)
"$qinfer" "${quantize[@]}" -o o.qinfer --report r.json > out 2>&- || fail "with stderr closed: exit code $?"
[ "$(head -c 1 r.json)" = "{" ] || fail "the report begins with: $(head -n 1 r.json)"
"$qinfer" perplexity "$model" --file "$text" --max-windows 1 --logits-out l.npy > out 2>&- <&- || fail "with stderr closed: exit code $?"
[ "$(head -c 6 l.npy | tail -c 5)" = NUMPY ] || fail "the logits begin with: $(head -n 1 l.npy)"
"$qinfer" "${quantize[@]}" -o o.qinfer --report r.json >&- 2> err; [ $? = 1 ] || fail "with stdout closed: another exit code"
has err "writing to standard output failed"
"$qinfer" tokenize "$model" --file - <&- > out 2> err; [ $? = 1 ] || fail "with stdin closed: another exit code"

# -- Progress without a terminal: nothing more within ten seconds, then a line with the percent. The command sleeps them away.
mkfifo lines
"$qinfer" perplexity "$model" --file "$text" --isa ref --threads 1 --context 64 --max-windows 8 > progress.out 2> lines & slow=$!
exec 7< lines
read -r -t 60 first <&7
(cat <&7 > progress.err) & reader=$!
kill -STOP $slow
(sleep 10.5; kill -CONT $slow) & alarm=$!

# -- Output that is lost is an error
for i in $(seq 20); do cat "$text"; done > large
full() {
  "$qinfer" "$@" > /dev/full 2> err < /dev/null; [ $? = 1 ] || fail "qinfer $* on a full device: another exit code"
  has err "qinfer: writing to standard output failed"
}
full --help
full info "$model"
full info "$model" --json
full inspect "$model"
full inspect "$model" --json
full tokenize "$model" --file large
full generate "$model" -p a -n 4
full generate "$model" -p a -n 8 --ignore-eos --json --logprobs 500
full chat "$model" -p a -n 4
full chat "$model" -p a -n 4 --json
full convert "$model" -o o.qinfer
full convert "$model" -o o.qinfer --json
full "${quantize[@]}" -o o.qinfer
full "${quantize[@]}" -o o.qinfer --json
full perplexity "$model" --file "$text" --max-windows 1 --json
printf 'In the beginning\nAnd then?\n' | "$qinfer" chat "$model" -n 4 > /dev/full 2> err; [ $? = 1 ] || fail "a conversation on a full device: another exit code"
[ "$(wc -l < err)" = 1 ] || { fail "a conversation goes on without output:"; cat err; }

# -- A reader that has gone away: of output, the end without a word; of progress, no reason to stop
gone() { "$qinfer" "$@" 2> err | true; [ "${PIPESTATUS[0]}" = 1 ] || fail "qinfer $* without a reader: another exit code"; [ ! -s err ] || fail "qinfer $*: $(cat err)"; }
gone tokenize "$model" --file large
gone generate "$model" -p a -n 0 --ignore-eos
rm -f o.qinfer
"$qinfer" quantize "$model" --samples 2 --no-evaluation -o o.qinfer --report r.json 2>&1 > out | sleep 0.05
[ "${PIPESTATUS[0]}" = 0 ] || fail "progress without a reader: exit code not 0"
[ -s o.qinfer ] || fail "progress without a reader: no output"
nothing_left o.qinfer.* r.json.*

# -- Signals leave nothing behind, before the work and in it
if command -v python3 > /dev/null; then
  cat > signalled.py << 'PYTHON'
import os, signal, subprocess, sys, time
qinfer, arguments = sys.argv[1], sys.argv[2:]
failed = False
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    number = getattr(signal, name)
    for delay in (0.0, 0.02, 0.05, 0.1, 0.3):
        os.mkdir("new")
        default = lambda: [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
        child = subprocess.Popen([qinfer] + arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=default)
        time.sleep(delay)
        child.send_signal(number)
        message = child.communicate()[1]
        # Under its own name a file is whole: the signal came after the work.
        left = sorted(f for f in os.listdir("new") if ".tmp-" in f or ".partial" in f)
        # By the signal itself where nothing was there yet, else with the exit code that shells give it.
        if child.returncode not in (0, -number, 128 + number) or left:
            print(f"FAILED: {name} after {delay} s: exit code {child.returncode}, left {left}", message)
            failed = True
        subprocess.run(["rm", "-r", "new"], check=True)
# What was ignored stays ignored.
os.mkdir("new")
ignore = lambda: [signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGHUP)]
child = subprocess.Popen([qinfer] + arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=ignore)
for _ in range(10):
    time.sleep(0.03)
    child.send_signal(signal.SIGINT)
    child.send_signal(signal.SIGHUP)
if child.wait() != 0:
    print(f"FAILED: signals that are ignored: exit code {child.returncode}")
    failed = True
subprocess.run(["rm", "-r", "new"], check=True)
sys.exit(failed)
PYTHON
  python3 signalled.py "$qinfer" quantize "$model" --samples 4 -o new/o.qinfer --report new/r.json --html new/r.html --save-calibration new/c || fail "signals in quantize"
  python3 signalled.py "$qinfer" perplexity "$model" --file "$text" --max-windows 16 --logits-out new/l.npy || fail "signals in perplexity"
  python3 signalled.py "$qinfer" convert "$model" -o new/o.qinfer || fail "signals in convert"
fi

# -- A pipe in the place of a file does not block
mkfifo pipe
within() { timeout 20 "$qinfer" "$@" > out 2> err < /dev/null; [ $? = 1 ] || { fail "qinfer $*: another exit code"; cat err; }; }
within perplexity "$model" --file "$text" --logits-out pipe; has err "cannot write pipe: it is a pipe"
within "${quantize[@]}" -o x.qinfer --report pipe; has err "cannot write pipe: it is a pipe that nobody reads"
within quantize "$model" -o x.qinfer --calibration pipe; has err "--calibration pipe is a pipe"
within info pipe; has err "not a regular file"
"$qinfer" "${quantize[@]}" -o o.qinfer --report /dev/stdout 2> err | grep '"relative_mse"' > grepped || fail "a report on standard output"
nothing_left x.qinfer* pipe.*
# Nor is what a stream or a link leads to replaced without its knowledge.
"$qinfer" "${quantize[@]}" -o x.qinfer --report /dev/stdout > report 2> err; [ $? = 1 ] || fail "a report in the output's file: another exit code"
has err "standard output goes there already"
ln -s nowhere link; gives 1 "${quantize[@]}" -o x.qinfer --report link; has err "a link that leads to nothing"
nothing_left x.qinfer* nowhere*
ln -sf r.json link; gives 0 "${quantize[@]}" -o o.qinfer --report link; { [ -L link ] && has r.json relative_mse; } || fail "a link is replaced"

# -- What a file says does not control the terminal
quiet() { if grep -q "$(printf '[\001-\010\013-\037\177]')" "$1"; then fail "control characters in the $1 of the last command: $(cat -v "$1")"; fi; }
escape=$(printf '\033')
gives 1 info "${escape}[31m.gguf"; quiet err; has err '\x1b[31m.gguf'
gives 2 info x "${escape}[31m.gguf"; quiet err; has err '\x1b[31m.gguf'
gives 2 "${escape}[31m"; quiet err
mkdir evil && cp "$model"/*.json evil && printf '{"architectures": ["\\u001b]0;title\\u0007\\u009b2J"]}' > evil/config.json
gives 1 info evil; quiet err; has err '\x1b]0;title\x07\x9b2J'
echo '[{"role": "user", "content": "Hello"}]' > messages
printf '{{ raise_exception("a\033[31mb") }}' > t.jinja
gives 1 render t.jinja --messages messages; quiet err; has err 'a\x1b[31mb'
# Text is text where it goes to a program, and harmless on a terminal.
printf 'a\033[31mb\tc' > t.jinja
gives 0 render t.jinja --messages messages; [ "$(cat out)" = "$(cat t.jinja)" ] || fail "render changes the text"
if command -v python3 > /dev/null; then
  python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)' "$qinfer" render t.jinja --messages messages > out < /dev/null
  has out 'a\x1b[31mb'
  python3 -c 'import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)' "$qinfer" generate "$model" -p "a${escape}[31mb" -n 1 > out < /dev/null
  has out 'a\x1b[31mb'
  # A tensor of any name in the model.
  python3 - "$model/model.safetensors" evil/model.safetensors << 'PYTHON'
import json, sys
data = open(sys.argv[1], "rb").read()
size = int.from_bytes(data[:8], "little")
header = json.loads(data[8:8 + size])
end = max(t["data_offsets"][1] for n, t in header.items() if n != "__metadata__")
header["x\x1b[31m\n\x9b"] = {"dtype": "F32", "shape": [1], "data_offsets": [end, end + 4]}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open(sys.argv[2], "wb").write(len(text).to_bytes(8, "little") + text + data[8 + size:] + bytes(4))
PYTHON
  cp "$model/config.json" evil
  gives 0 inspect evil; quiet out; has out 'x\x1b[31m\x0a\x9b  '
  gives 0 info evil; quiet out
  gives 0 "${quantize[@]::1}" evil --no-calibration --no-evaluation -o o.qinfer; quiet out; quiet err
fi

# -- What became of the progress
wait $alarm $slow || fail "perplexity with progress: exit code $?"
exec 7<&-
wait $reader
[[ $first =~ ^"perplexity: "[a-z]+" ("[0-9]+" % done)"$ ]] || fail "the first line of progress is: $first"
grep -q '^perplexity: [a-z]* ([0-9]* % done)$' progress.err || fail "no line of progress after ten seconds: $(cat progress.err)"

# -- Very many tensors in a small file: no more than 64 MB beyond it, whoever lists, reads or refuses them
if command -v python3 > /dev/null; then
  cat > make_many.py << 'PYTHON'
import json, struct, sys
kind, model, path, count = *sys.argv[1:4], 200000
if kind == "gguf":
    string = lambda text: struct.pack("<Q", len(text)) + text.encode()
    numbers = {"block_count": 1, "embedding_length": 64, "feed_forward_length": 64, "context_length": 64, "vocab_size": 64, "attention.head_count": 1}
    keys = [string("general.architecture") + struct.pack("<I", 8) + string("llama")]
    keys += [string("llama." + key) + struct.pack("<II", 4, value) for key, value in numbers.items()]
    keys += [string("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)]
    keys += [string(f"key.{i}") + struct.pack("<I", 8) + string("text") for i in range(65000)]
    head = b"GGUF" + struct.pack("<IQQ", 3, count, len(keys)) + b"".join(keys)
    head += b"".join(string(f"blk.{i}") + struct.pack("<IQIQ", 1, 1, 24, i * 32) for i in range(count))
    open(path, "wb").write(head + bytes(-len(head) % 32) + bytes(count * 32))
else:
    data, each = open(model, "rb").read(), int(kind == "bytes")
    size = int.from_bytes(data[:8], "little")
    header, end = json.loads(data[8:8 + size]), len(data) - 8 - size
    for i in range(count):
        header[f"model.layers.{i // 4096}.experts.{i % 4096}.weight"] = {"dtype": "U8", "shape": [each], "data_offsets": [end + i * each, end + (i + 1) * each]}
    text = json.dumps(header).encode()
    open(path, "wb").write(len(text).to_bytes(8, "little") + text + data[8 + size:] + bytes(count * each))
PYTHON
  # In a process of its own, whose size its child begins with.
  cat > measure.py << 'PYTHON'
import os, subprocess, sys
size = os.path.getsize(sys.argv[1])
child = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(child.pid, 0)
beyond = usage.ru_maxrss * 1024 - size
if beyond > 64 << 20:
    print(f"{beyond >> 20} MiB beyond the file of {size >> 20} MiB", file=sys.stderr)
    sys.exit(100)
sys.exit(os.waitstatus_to_exitcode(status))
PYTHON
  # within FILE CODE ARGUMENTS...
  within() {
    local file=$1 code=$2 got=0
    shift 2
    python3 measure.py "$file" "$qinfer" "$@" > out 2> err < /dev/null || got=$?
    [ $got = "$code" ] || { fail "qinfer $* of very many tensors: exit code $got, expected $code"; tail -n 3 err; }
  }
  mkdir many && cp "$model"/*.json many
  for kind in empty bytes gguf; do
    path=many file=many/model.safetensors good=0
    [ $kind = gguf ] && path=many.gguf file=many.gguf good=1  # its model lacks tensors, which its header does not tell
    python3 make_many.py $kind "$model/model.safetensors" $file
    within $file 0 inspect $path
    within $file 0 inspect $path --json
    within $file 0 inspect $path --verify
    [ $kind != empty ] || has out "  2d06800538d394c2"  # XXH3-64 of nothing
    within $file 0 inspect $path --verify --json
    within $file $good info $path
    # Of no elements: the model does not use them, and they are left out. Else more than a .qinfer holds.
    [ $kind != bytes ] || good=1
    within $file $good convert $path -o many.qinfer
    [ $kind != bytes ] || has err "more than 65536 tensors"
  done
  rm -rf many many.gguf many.qinfer
fi

[ $failures = 0 ] && echo "the program minds its surroundings"
exit $((failures > 0))
