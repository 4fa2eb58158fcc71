#!/usr/bin/env python3
"""How soon qinfer answers, against llama.cpp (llama-cpp-python) on the same GGUF file, and how fast it encodes, against `tokenizers`.

Each repetition starts fresh processes in turn: ours on the .qinfer file that `qinfer convert` made of the GGUF and on the GGUF itself, then
llama.cpp's. Files are in the system's cache. Times are from opening the file to the first token after a prompt of 32 tokens, without starting the
process or importing anything. Encoding is of one text with one thread and the vocabulary of a tokenizer.json.

usage: start.py MODEL.gguf TEXT [--build build/release] [--tokenizer samples/models/tiny-llama/tokenizer.json] [--repetitions 7] [--threads 2] [--json]
needs: the benchmarks (cmake -DQINFER_BUILD_BENCH=ON), llama-cpp-python and tokenizers from PyPI
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

PEER = """
import ctypes, json, sys, time
import llama_cpp as L
L.llama_backend_init()
quiet = L.llama_log_callback(lambda level, text, user: None)
L.llama_log_set(quiet, None)
path, threads = sys.argv[1], int(sys.argv[2])
begin = time.monotonic()
model = L.llama_model_load_from_file(path.encode(), L.llama_model_default_params())
loaded = time.monotonic()
params = L.llama_context_default_params()
params.n_ctx, params.n_batch, params.n_ubatch = 48, 32, 32
params.n_threads = params.n_threads_batch = threads
context = L.llama_init_from_model(model, params)
tokens = (ctypes.c_int32 * 32)(*range(100, 132))
if L.llama_decode(context, L.llama_batch_get_one(tokens, 32)) != 0:
    sys.exit("llama_decode failed")
sampler = L.llama_sampler_init_greedy()
L.llama_sampler_sample(sampler, context, -1)
print(json.dumps({"load_ms": 1e3 * (loaded - begin), "first_token_ms": 1e3 * (time.monotonic() - begin)}))
"""


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr[-2000:]}")
    return done.stdout


def encode_speed(tokenizer, text):
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer  # reads the variable
    peer = Tokenizer.from_file(str(tokenizer))
    best = min(timed(lambda: peer.encode(text, add_special_tokens=False)) for _ in range(3))
    return 1e-6 * len(text.encode()) / best


def timed(work):
    begin = time.monotonic()
    work()
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--build", default="build/release", type=pathlib.Path)
    parser.add_argument("--tokenizer", default="samples/models/tiny-llama/tokenizer.json", type=pathlib.Path)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    ours = args.build / "tests/bench/start_bench"
    with tempfile.TemporaryDirectory() as folder:
        converted = pathlib.Path(folder) / "model.qinfer"
        run([args.build / "samples/cli/qinfer", "convert", args.model, "-o", converted])
        cases = {
            "qinfer, .qinfer": [ours, converted, args.text, "-t", args.threads],
            "qinfer, GGUF": [ours, args.model, args.text, "-t", args.threads],
            "llama.cpp, GGUF": [sys.executable, "-c", PEER, args.model, args.threads],
        }
        results = {name: [] for name in cases}
        for repetition in range(args.repetitions + 1):  # the first fills the system's cache
            for name, command in cases.items():
                measured = json.loads(run(command))
                if repetition > 0:
                    results[name].append(measured)
        # A vocabulary that both sides can read; our side is measured as a model of its own.
        vocabulary = json.loads(run([ours, args.tokenizer.parent, args.text, "-t", 1]))
        text = pathlib.Path(args.text).read_text(encoding="utf-8")
        theirs = encode_speed(args.tokenizer, text)

    def summary(name, key):
        values = [result[key] for result in results[name]]
        return {"median": statistics.median(values), "min": min(values), "max": max(values)}

    table = {name: {key: summary(name, key) for key in ("load_ms", "first_token_ms")} for name in cases}
    for name in ("qinfer, .qinfer", "qinfer, GGUF"):
        table[name]["private_bytes"] = summary(name, "private_bytes")
    table["encode_mb_per_s"] = {"qinfer": vocabulary["encode_mb_per_s"], "tokenizers": theirs}
    if args.json:
        print(json.dumps(table, indent=2))
        return
    print(f"{args.model}, {args.threads} threads, {args.repetitions} interleaved repetitions: median (min to max)")
    print(f"{'':18}{'load, ms':>28}{'first token, ms':>28}{'private memory after loading':>32}")
    for name in cases:
        row = table[name]
        cells = [f"{row[key]['median']:.1f} ({row[key]['min']:.1f} to {row[key]['max']:.1f})" for key in ("load_ms", "first_token_ms")]
        private = f"{row['private_bytes']['median'] / 1e6:.1f} MB" if "private_bytes" in row else ""
        print(f"{name:18}{cells[0]:>28}{cells[1]:>28}{private:>32}")
    ratio = table["qinfer, .qinfer"]["first_token_ms"]["median"] / table["llama.cpp, GGUF"]["first_token_ms"]["median"]
    print(f"first token, qinfer / llama.cpp: {ratio:.2f}")
    speed = table["encode_mb_per_s"]
    print(f"encoding, one thread: {speed['qinfer']:.1f} MB/s, tokenizers {speed['tokenizers']:.2f} MB/s: {speed['qinfer'] / speed['tokenizers']:.1f}x")


if __name__ == "__main__":
    main()
