#!/usr/bin/env bash
# Runs every command of the qinfer program on the shipped model, as its users would: what it prints, its exit codes, what it leaves
# behind when something is wrong. usage: cli_test.sh QINFER SOURCE-DIR
set -uo pipefail
qinfer=$1
source=$2
model=$source/samples/models/tiny-llama
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
. "$source/tests/cli/helpers.sh"

# -- What a model is
gives 0 info "$model"; has out "architecture   llama"; has out "memory plan"
gives 0 info "$model" --json --threads 1; has out '"workspace_bytes"'
mkdir only_config && cp "$model/config.json" only_config
gives 0 info only_config; has out "weights as"
for part in '"chat_template": true' '"tokenizer": {' '"bos"'; do gives 0 info "$model" --json; has out "$part"; done
gives 0 info "$source/tests/golden/tokenizer/vocab-llama-bpe.gguf"; has out "a vocabulary alone"
gives 0 info "$model/tokenizer.json"; has out "a vocabulary alone"
gives 0 inspect "$model"; has out "model.layers.0.self_attn.q_proj.weight"; has out exact
gives 0 inspect "$model" --verify --json; has out '"ok"'
# A checksum for each tensor once they are read, the same in the table and in both lists of the document.
sed -n 's/^ *"checksum": "\([0-9a-f]*\)",*$/\1/p' out | sort > checksums
gives 0 inspect "$model"; grep -q ' [0-9a-f]\{16\}$' out && fail "checksums of what was not read"
gives 0 inspect "$model" --verify; sed -n 's/^model.* \([0-9a-f]\{16\}\)$/\1/p' out > shown
[ "$(wc -l < shown)" = "$(grep -c '^model' out)" ] || fail "tensors without a checksum"
sort shown shown | cmp -s - checksums || fail "the checksums of the table and of the document differ"

# -- What fits where: R1 by its configuration alone, as docs/deepseek.md has it; layers that predict further tokens are left out, and that is said
gives 0 info "$source/tests/golden/configs/deepseek-r1.json"; has out "671.03 B"; has out "left out       model.layers.61.*: predicts further tokens (MTP)"
awk -F' *[|] *' '$2 ~ /^(F16|INT8|INT4|INT8, routed experts INT4)$/ && $3 ~ / GB$/ {sub("routed ", "", $2); print $2 " " $3}' "$source/docs/deepseek.md" > fits
[ "$(wc -l < fits)" = 4 ] || fail "docs/deepseek.md has no table of what fits where"
tr -s ' ' < out > words
while read -r line; do grep -qFx " $line" words || fail "qinfer info does not say: $line"; done < fits
nextn=$source/tests/golden/gguf-models/glm4moe-nextn.gguf
gives 0 info "$nextn"; has out "left out       blk.2.*"
gives 0 convert "$nextn" -o nextn.qinfer; has out "left out: 21 tensors, layers that predict further tokens (MTP)"
gives 0 quantize "$nextn" -o nextn4.qinfer --no-calibration --no-evaluation; has out "left out           21 tensors, 52.8 kB: layers that predict"
# An architecture that is not known is named, with those that are.
mkdir unknown && echo '{"architectures": ["FooForCausalLM"]}' > unknown/config.json
gives 1 info unknown; has err 'architecture "FooForCausalLM" is not supported; known are LlamaForCausalLM, '; has err DeepseekV3ForCausalLM; has err GptOssForCausalLM

# -- Text
gives 0 tokenize "$model" --text "In the beginning"; has out '{"ids":['
printf 'In the beginning' > text
gives 0 tokenize "$model" --file text --json; cp out by_file
"$qinfer" tokenize "$model" --file - < text > by_pipe; cmp -s by_file by_pipe || fail "--file - differs from --file"
gives 0 tokenize "$model/tokenizer.json" --text "<s>" --no-bos --no-parse-special; has out ids
echo '[{"role": "user", "content": "Hello"}]' > messages
printf '{%% for m in messages %%}{{ m.role }}: {{ m.content }}{%% endfor %%}{%% if add_generation_prompt %%} >{%% endif %%}' > t.jinja
gives 0 render t.jinja --messages messages; [ "$(cat out)" = "user: Hello >" ] || fail "render gives $(cat out)"
gives 0 render t.jinja --messages messages --no-generation-prompt --json; has out '"user: Hello"'
gives 0 render "$model" --messages messages; cp out by_folder
mkdir alone && cp "$model/tokenizer.json" "$model/tokenizer_config.json" alone
gives 0 render alone/tokenizer.json --messages messages; cmp -s out by_folder || fail "a tokenizer.json renders something else than its folder"
printf 'of its own' > alone/chat_template.jinja
gives 0 render alone/tokenizer.json --messages messages; [ "$(cat out)" = "of its own" ] || fail "chat_template.jinja beside a tokenizer.json: $(cat out)"
mkdir tools && cp "$model/tokenizer.json" tools && echo '[{"name": "f"}]' > tools.json
echo '{"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "with {{ tools[0].name }}"}]}' > tools/tokenizer_config.json
gives 0 render tools/tokenizer.json --messages messages; [ "$(cat out)" = plain ] || fail "a list of templates gives $(cat out)"
gives 0 render tools/tokenizer.json --messages messages --tools tools.json; [ "$(cat out)" = "with f" ] || fail "tool_use gives $(cat out)"

# -- A model whose reasoning stands in channels (gpt-oss), where it is shown, between tags
if command -v python3 > /dev/null; then
  mkdir channels && cp "$model"/*.json channels && ln -s "$model/model.safetensors" channels
  python3 - <<'END'
import json
t = json.load(open("channels/tokenizer.json"))
vocab, merges = t["model"]["vocab"], t["model"]["merges"]
for i, marker in enumerate(["<|start|>", "<|channel|>", "<|message|>"]):
    last = len(vocab) - 1 - i
    del vocab[next(k for k, v in vocab.items() if v == last)]
    merges.pop()
    vocab[marker] = last
    t["added_tokens"].append(dict(t["added_tokens"][0], id=last, content=marker, special=True))
json.dump(t, open("channels/tokenizer.json", "w"))
END
  analysis='<|start|>assistant<|channel|>analysis<|message|> And it came to'
  gives 0 generate channels -p "$analysis" -n 4 --ignore-eos; has out "And it came to<think>"
  gives 0 generate channels -p "$analysis" -n 4 --ignore-eos --json; has out '"text":"<think>\n'
  gives 0 generate channels -p "$analysis" -n 4 --ignore-eos --reasoning hide --json; has out '"text":""'
  gives 0 generate channels -p "${analysis/analysis/final}" -n 4 --ignore-eos; ! grep -qF '<think>' out || fail "an answer is taken for reasoning"
  gives 0 generate channels -p "And it came to" -n 4; mv out unmarked
  gives 0 generate "$model" -p "And it came to" -n 4; cmp -s out unmarked || fail "markers change what a model without them in its text writes"
fi

# -- Into one file, losslessly and quantized
gives 0 convert "$model" -o copy.qinfer; has out "without loss"
gives 0 convert "$source/tests/golden/models/deepseek-fp8" -o fp8.qinfer; has out "and 67 more, which qinfer inspect lists"
[ "$(grep -c "not lossless" out)" = 8 ] || fail "convert names $(grep -c "not lossless" out) tensors"
gives 0 inspect copy.qinfer --verify; has out "verified: all contents are as they should be"
gives 0 quantize "$model" -o int4.qinfer --samples 4 --seed 3 --report r.json --html r.html --memory-limit 2GiB --set '*.down_proj.weight=int8'
has out "perplexity"; has out " MB"; has r.json '"format": "f16"'; ! grep -q '"format": "F16"' r.json || fail "two spellings of f16"
has r.json '"relative_mse"'; has r.html "<svg"
gives 0 quantize "$model" -o g64.qinfer --scheme int4 --group-size 64 --asymmetric --method rtn --no-calibration --no-evaluation --json --resume
[ ! -e g64.qinfer.partial ] || fail "a finished run leaves g64.qinfer.partial"
gives 0 quantize copy.qinfer -o int8.qinfer --scheme int8 --group-size row --no-calibration --no-evaluation --load copy

# -- The shapes of DeepSeek R1, small: 256 experts that take turns where a layer is larger than the limit
if command -v python3 > /dev/null; then
  python3 "$source/tests/bench/quantize_r1_shapes.py" "$qinfer" r1 --shrink 32 --filled --memory-limit 25MB --check > out 2> err \
    || { fail "quantize_r1_shapes.py"; cat out err; }
  has out "of 256"
fi

# -- Generation: the same text each time, from every kind of file
gives 0 generate "$model" -p "In the beginning" -n 8 --temperature 0; cp out first
has first "In the beginning"
gives 0 generate "$model" -p "In the beginning" -n 9 --context 8; has err "[The context of 8 tokens is full: the text ends here.]"
gives 0 chat "$model" -p "In the beginning" -n 4 --system "Be brief" --json; has out '"finish_reason"'
gives 0 generate copy.qinfer -p "In the beginning" -n 8 --threads 1 --load copy; cmp -s out first || fail "the converted model writes something else"
gives 0 generate int4.qinfer -p "In the beginning" -n 8 --temperature 0.8 --seed 5 --top-k 20 --json; cp out sampled
gives 0 generate int4.qinfer -p "In the beginning" -n 8 --temperature 0.8 --seed 5 --top-k 20 --json --isa ref
for field in text finish_reason generated_tokens; do
  [ "$(grep -o "\"$field\":[^,]*" out)" = "$(grep -o "\"$field\":[^,]*" sampled)" ] || fail "$field differs with --isa ref"
done

# -- A conversation: it goes on when its context is full, when a message does not fit, and after Ctrl-C
shopt -s lastpipe  # what talk finds after a pipe is found in this shell
talk() { talk_to 0 "$@"; }
# talk_to CODE ARGUMENTS...
talk_to() { local code=$1 got=0; shift; "$qinfer" chat "$model" "$@" > out 2> err || got=$?; [ $got = "$code" ] || fail "qinfer chat $*: exit code $got, expected $code"; }
printf 'In the beginning\nAnd then?\nWho said so?\nGo on.\n' | talk -n 30 --context 96 --system "Be brief" --ignore-eos
[ "$(wc -l < out)" = 4 ] || { fail "four messages have $(wc -l < out) answers:"; cat out err; }
has err "[The context of 96 tokens is full: the oldest turn is forgotten.]"
# Without a terminal the end tells that a message had no answer; the others have theirs.
printf 'In the beginning\n%0500d\nAnd then?\n' 0 | talk_to 1 -n 8 --context 64
[ "$(wc -l < out)" = 2 ] || { fail "a long message between two:"; cat out err; }
has err "the context holds 64: shorten it"; has err "1 message was not answered"
printf 'In the beginning\n%0500d\nAnd then?\n' 0 | talk_to 1 -n 8 --context 64 --json; cp out with_long
printf 'In the beginning\nAnd then?\n' | talk -n 8 --context 64 --json
[ "$(grep -o '"text":[^,]*' out)" = "$(grep -o '"text":[^,]*' with_long)" ] || fail "a message that does not fit changes what comes after it"
printf 'In the beginning\n/clear\nIn the beginning\n' | talk -n 8 --json
[ "$(grep -o '"text":[^,]*' out | sort -u | wc -l)" = 1 ] || { fail "/clear does not begin anew:"; cat out; }
gives 1 chat "$model" -p "$(printf '%0500d' 0)" --context 64; has err "shorten it"
for option in "--repetition-penalty 0" "--repetition-penalty -1" "--repetition-penalty nan" "--repetition-penalty inf" "--top-p 0" "--top-p 1.5"; do
  # shellcheck disable=SC2086
  gives 2 generate "$model" -p a -n 1 $option; has err "${option%% *}"
done
gives 0 generate "$model" -p a -n 1 --repetition-penalty 1.5 --top-p 1

# until_there FILE TEXT: waits for it.
until_there() { for _ in $(seq 300); do grep -qF -- "$2" "$1" && return; sleep 0.1; done; fail "'$2' does not come in $1"; cat out err; }
mkfifo lines
set -m  # or the shell would have it ignore interrupts
"$qinfer" chat "$model" -n 0 --ignore-eos --threads 1 --isa ref > out 2> err < lines &
chat=$!
set +m
exec 3> lines
echo "In the beginning" >&3; until_there out ,
kill -INT $chat; until_there err "[The answer was stopped.]"
: > err; size=$(wc -c < out)
echo "And then?" >&3
for _ in $(seq 300); do [ "$(wc -c < out)" -gt "$size" ] && break; sleep 0.1; done
kill -INT $chat; until_there err "[The answer was stopped.]"
sleep 0.3; kill -INT $chat; wait $chat; code=$?
[ $code = 0 ] || { fail "an interrupt at the prompt: exit code $code"; cat err; }
exec 3>&-

# -- What it is worth
gives 0 perplexity int4.qinfer --file "$model/tiny-heldout.txt" --context 128 --max-windows 2 --reference "$model" --logits-out l.npy --json
for field in perplexity tokens kl_mean kl_p999 top1; do has out "\"$field\""; done
head -c 6 l.npy | grep -q NUMPY || fail "l.npy is not a NumPy file"
gives 0 bench int4.qinfer -p 16 -n 4 -r 1 --json --kv f16 --activations float --context 64
for field in prefill_tps decode_tps model_bytes; do has out "\"$field\""; done
gives 0 bench int4.qinfer -p 0 -n 2 -r 1 --json --context 64; has out '"prefill_tps":null'
deepseek=${model%/*}/tiny-deepseek
gives 0 bench "$deepseek" -p 64 -n 0 -r 1 --json --determinism fast --context 128; has out prefill_tps
gives 0 generate "$deepseek" --prompt "Once upon a time" -n 4 --determinism fast --context 128
r1=${model%/samples/*}/tests/golden/configs/deepseek-r1.json
gives 0 info "$r1" --context 131072 --json; mv out strict
gives 0 info "$r1" --context 131072 --json --determinism fast
cmp -s out strict && fail "the memory plan does not know of --determinism"
gives 2 bench "$deepseek" --determinism loose; has err "--determinism"
gives 2 perplexity "$deepseek" --file "$model/tiny-heldout.txt" --determinism fast
completes() { # EXPECTED WORDS...: what bash proposes after the words, the last of which is being written
  "$qinfer" completion bash > bash_completion
  local expected=$1 got
  shift
  got=$(bash -c '. ./bash_completion; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _qinfer; echo "${COMPREPLY[*]}"' bash "$@")
  [ "$got" = "$expected" ] || fail "completion of $*: $got"
}
completes "32 64 128 row" qinfer quantize m --group-size ""
completes "int4 int6 int8" qinfer quantize m --scheme in
completes "avx2 avxvnni avx512" qinfer generate m --isa = av
completes "copy" qinfer info m --load c
completes "int8" qinfer bench m --kv i
completes "float" qinfer bench m --activations f
completes "fast" qinfer chat m --determinism f
completes "bash" qinfer completion b
completes "--tools" qinfer render --to
for shell in bash zsh fish; do
  gives 0 completion $shell; has out quantize
done
gives 0 --version; has out "qinfer "
for command in info inspect convert tokenize render chat generate quantize perplexity bench completion; do
  gives 0 $command --help; has out "Usage"
done

# -- A message names the file where the fault is, once
wrong() { # FILE CONTENTS COMMAND... -- MESSAGE
  local file=$1 contents=$2 command=()
  shift 2
  while [ "$1" != -- ]; do command+=("$1"); shift; done
  rm -rf wrong && mkdir wrong && cp "$model"/*.json "$model/model.safetensors" wrong && printf '%s' "$contents" > "wrong/$file"
  gives 1 "${command[@]}"; has err ": wrong/$2"
  [ "$(grep -o wrong/ err | wc -l)" = 1 ] || { fail "$file is named more than once:"; cat err; }
}
wrong tokenizer.json '{"a": 1}' tokenize wrong --text x -- "tokenizer.json: not a tokenizer.json"
for file in config.json tokenizer.json tokenizer_config.json generation_config.json; do
  wrong $file '' convert wrong -o x.qinfer -- "$file: the file is empty"
done
wrong tokenizer_config.json '{' tokenize wrong --text x -- "tokenizer_config.json: before byte 1: not valid JSON"
wrong tokenizer_config.json '{' tokenize wrong/tokenizer.json --text x -- "tokenizer_config.json: before byte 1: not valid JSON"
wrong tokenizer_config.json '{"chat_template": 5}' tokenize wrong --text x -- "tokenizer_config.json: chat_template: expected"
wrong tokenizer_config.json '{"chat_template": "{% for %}"}' render wrong --messages messages -- "tokenizer_config.json:1:8: expected"
wrong chat_template.jinja '{% for %}' render wrong --messages messages -- "chat_template.jinja:1:8: expected"
wrong chat_template.json '{"chat_template": "{% for %}"}' render wrong --messages messages -- "chat_template.json:1:8: expected"
wrong generation_config.json '{"eos_token_id": "x"}' tokenize wrong --text x -- "generation_config.json: eos_token_id"
wrong config.json '{"architectures": ["Nobody"]}' info wrong -- "config.json: "
wrong config.json '{"architectures": ["Nobody"]}' info wrong/config.json -- "config.json: "

sed '0,/"dtype":"F16"/s//"dtype":"U16"/' "$model/model.safetensors" > wrong/model.safetensors && cp "$model"/*.json wrong
gives 1 generate wrong -p x; has err "no weight format holds U16 exactly"

# -- What is wrong is said on stderr, with 2 for the command line and 1 for the rest, and leaves nothing behind
gives 2 nope; has err "nope"
gives 2 info
gives 2 generate "$model"
gives 2 generate "$model" -p x --top-k 5; has err "--temperature"
gives 2 generate "$model" -p x --logprobs 2; has err "--json"
for seed in -1 18446744073709551616 1.5 x; do gives 2 generate "$model" -p x --seed $seed; has err "--seed: '$seed' is not a whole number from 0 to"; done
gives 2 quantize "$model" -o x.qinfer --seed -1; has err "--seed: '-1'"
gives 2 generate "$model" -p x -n 18446744073709551611; has err "--max-tokens"
for now in 9223372036854775808 -9223372036854775809 1e5; do gives 2 render t.jinja --messages messages --now $now; has err "--now: '$now' is not a whole number from -9"; done
gives 0 render t.jinja --messages messages --now -5
gives 2 quantize "$model" -o x.qinfer --group-size 31
gives 2 quantize "$model" -o x.qinfer --scheme f16 --group-size 64
for scheme in int5 int4-g7-f16; do gives 2 quantize "$model" -o x.qinfer --scheme $scheme; has err "$scheme"; done
gives 2 quantize "$model" -o x.qinfer --method gptq; has err "--method"
for set in '*=int9' '*nothing*=int8' '*norm*=int8'; do gives 2 quantize "$model" -o x.qinfer --set "$set"; done
has err "never quantized (norms"; has err "layers.0.input_layernorm.weight"; ! grep -q up_proj err || fail "names for norms: $(cat err)"
gives 2 quantize "$model" -o x.qinfer --embedding int4; has err "embedding"
gives 2 quantize "$model" -o x.qinfer --samples 4294967295; has err "samples"
gives 2 quantize "$model" -o x.qinfer --static-activations --no-calibration
gives 2 generate "$model" -p x --presence-penalty 3; has err "--presence-penalty is 3"
gives 2 generate "$model" -p x --stop ""; has err "--stop"
gives 2 generate "$model" -p x --json --logprobs 99999; has err "--logprobs is 99999"
gives 2 info ''; has err "empty"
gives 2 quantize "$model" -o x.qinfer --memory-limit lots; has err "2GiB"
gives 1 info missing.gguf; has err "missing.gguf"
gives 1 generate "$model" -p x --isa neon; [ "$(uname -m)" = aarch64 ] || has err "cannot run --isa neon; auto"
gives 1 generate only_config -p x; has err "put the weights beside it"
mkdir plain && cp "$model"/*.json "$model/model.safetensors" plain && echo '{}' > plain/tokenizer_config.json
gives 1 chat plain -p x; has err "qinfer generate"; ! grep -q TEMPLATE err || fail "chat speaks of an option it does not have"
gives 1 chat "$model" -p "$(printf '%03000d' 0)"; has err "the model was made for"; ! grep -q -- --context err || fail "a larger --context than the model's"
for out in alone alone/; do
  gives 1 quantize "$model" -o "$out"; has err "it is a folder; name a file inside it"; ! grep -q 'write samples' err || fail "quantize works before it looks at its output"
done
gives 1 quantize "$model" -o x.qinfer --save-calibration alone; has err "it is a folder"
gives 0 quantize "$model" -o int8.qinfer --scheme int8 --calibration "$model/tiny-calibration.txt" --samples 2 --save-calibration c.cal --no-evaluation
head -c -8 c.cal > cut.cal; gives 1 quantize "$model" -o x.qinfer --calibration cut.cal; has err "bytes of contents, "
head -c -1 c.cal > bad.cal; printf '\377' >> bad.cal; gives 1 quantize "$model" -o x.qinfer --calibration bad.cal; has err "its checksum does not fit"
[ "$(grep -o bad.cal err | wc -l)" = 1 ] || { fail "bad.cal is named more than once:"; cat err; }
: > nothing; gives 1 quantize "$model" -o x.qinfer --calibration nothing; has err "nothing is empty"
for command in convert quantize; do gives 2 $command "$model" -o ''; has err "--out is empty"; done
gives 1 perplexity "$model" --file .; has err "directory"
gives 1 perplexity "$model" --file text; has err "token"
gives 1 perplexity "$model" --file "$model/tiny-heldout.txt" --logits-out nowhere/l.npy; has err "nowhere/l.npy"
gives 1 perplexity "$model" --file "$model/tiny-heldout.txt" --logits-out /dev/full; has err "/dev/full"
gives 1 quantize "$model" -o x.qinfer --report nowhere/r.json; has err "nowhere/r.json"
gives 1 quantize "$model" -o nowhere/x.qinfer; has err "nowhere"
gives 1 quantize "$model" -o x.qinfer --memory-limit 1KiB; has err "--memory-limit"
(ulimit -f 64; "$qinfer" perplexity "$model" --file "$model/tiny-heldout.txt" --logits-out big.npy > /dev/null 2> err); [ $? = 1 ] || fail "a file that grows too large"
has err "big.npy"
mkdir own && cp "$model"/*.json "$model"/*.safetensors own && ln -s own/model.safetensors alias
before=$(cat own/* copy.qinfer text | cksum)
gives 1 convert own -o own/model.safetensors; has err "belongs to the model"
gives 1 convert own -o alias; has err "belongs to the model"
for name in chat_template.jinja x.safetensors.index.json; do
  gives 1 convert own -o own/$name; has err "choose another name"
done
gives 1 convert copy.qinfer -o ./copy.qinfer; has err "belongs to the model"
gives 1 quantize own -o own/config.json --no-calibration --no-evaluation; has err "own/config.json"
gives 1 quantize own/model.safetensors -o own/tokenizer.json --no-calibration --no-evaluation; has err "own/tokenizer.json"
gives 1 quantize own -o x.qinfer --report own/config.json; has err "--report would replace"
gives 1 quantize own -o x.qinfer --calibration text --html text; has err "--html would replace"
gives 1 quantize own -o x.qinfer --report x.qinfer; has err "both write"
gives 1 perplexity own --file text --logits-out text; has err "--logits-out would replace"
[ "$before" = "$(cat own/* copy.qinfer text | cksum)" ] || fail "an input was overwritten"
for left in x.qinfer* nowhere* big.npy*; do [ ! -e "$left" ] || fail "$left was left behind"; done
"$qinfer" inspect "$model" 2> err | head -n 1 > /dev/null
[ ! -s err ] || fail "a closed pipe: $(cat err)"

[ $failures = 0 ] && echo "all commands do what they say"
exit $((failures > 0))
