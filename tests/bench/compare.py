#!/usr/bin/env python3
"""Times qinfer against llama.cpp (the llama-cpp-python package, built natively) on the same file in one run.

The repetitions are interleaved, since machines are noisy; the table gives medians with minimum and maximum, and only ratios within one run mean
anything. Between the repetitions the machine's read bandwidth is measured, and the share of it that decode reaches is printed.

usage: compare.py MODEL.gguf [--qinfer build/release/samples/cli/qinfer] [--ours OUT.qinfer] [--threads 2] [--repetitions 5] [-p 512] [-n 128] [--json]
needs: llama-cpp-python (pip install --no-binary llama-cpp-python llama-cpp-python, so that it is built for this processor)
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


def peer_worker(args):
    """One repetition of llama.cpp in a process of its own: llama-bench's way (random tokens, one warm-up, no sampling)."""
    import llama_cpp as L

    L.llama_backend_init()
    quiet = L.llama_log_callback(lambda level, text, user: None)
    L.llama_log_set(quiet, None)
    model_params = L.llama_model_default_params()
    model = L.llama_model_load_from_file(args.model.encode(), model_params)
    vocab = L.llama_model_get_vocab(model)
    size = L.llama_vocab_n_tokens(vocab)
    params = L.llama_context_default_params()
    params.n_ctx = max(args.prompt, args.generate) + 64
    params.n_batch = params.n_ubatch = max(args.prompt, 32)
    params.n_threads = params.n_threads_batch = args.threads
    if hasattr(params, "flash_attn_type"):
        params.flash_attn_type = 1 if args.flash else 0
    context = L.llama_init_from_model(model, params)
    memory = L.llama_get_memory(context)
    rng = random.Random(1)

    def decode(tokens):
        array = (L.llama_token * len(tokens))(*tokens)
        if L.llama_decode(context, L.llama_batch_get_one(array, len(tokens))) != 0:
            sys.exit("llama_decode failed")
        L.llama_synchronize(context)

    def draw(count):
        return [rng.randrange(size) for _ in range(count)]

    decode(draw(min(args.prompt, 64)))
    L.llama_memory_clear(memory, True)
    prompt = draw(args.prompt)
    start = time.perf_counter()
    decode(prompt)
    prefill = args.prompt / (time.perf_counter() - start)
    L.llama_memory_clear(memory, True)
    decode(draw(1))
    L.llama_memory_clear(memory, True)
    tokens = draw(args.generate)
    start = time.perf_counter()
    for token in tokens:
        decode([token])
    generate = args.generate / (time.perf_counter() - start)
    info = L.llama_print_system_info().decode()
    print(json.dumps({"prefill_tps": prefill, "decode_tps": generate, "system": info}))


def run_json(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1] if command[0] == sys.executable else done.stdout)


def bandwidth_tool():
    tool = pathlib.Path(tempfile.gettempdir()) / "qinfer_read_bandwidth"
    subprocess.run([os.environ.get("CC", "cc"), "-O3", "-march=native", "-pthread", "-o", str(tool),
                    str(HERE / "read_bandwidth.c")], check=True)
    return str(tool)


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--ours", help="what qinfer times instead of MODEL (a converted .qinfer)")
    parser.add_argument("--qinfer", default=str(HERE.parents[1] / "build/release/samples/cli/qinfer"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=128)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--flash", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("--peer-worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer_worker:
        return peer_worker(args)

    tool = bandwidth_tool()
    mine = [args.qinfer, "bench", args.ours or args.model, "-p", str(args.prompt), "-n", str(args.generate), "--threads",
            str(args.threads), "--json"]
    peer = [sys.executable, __file__, args.model, "-p", str(args.prompt), "-n", str(args.generate), "--threads", str(args.threads),
            "--peer-worker"]
    rows = {name: {"prefill_tps": [], "decode_tps": []} for name in ("qinfer", "llama.cpp", "llama.cpp, no flash attention")}
    bandwidth, system, weights = [], "", 0
    for repetition in range(args.repetitions):
        bandwidth.append(float(subprocess.run([tool, str(args.threads), "256"], capture_output=True, text=True, check=True).stdout))
        for name, command in (("qinfer", mine), ("llama.cpp", peer + ["--flash", "1"]),
                              ("llama.cpp, no flash attention", peer + ["--flash", "0"])):
            result = run_json(command)
            for key in rows[name]:
                rows[name][key].append(result[key])
            system = result.get("system", system)
            weights = result.get("bytes_per_token", weights)
        if not args.json:
            print(f"repetition {repetition + 1} of {args.repetitions} done", file=sys.stderr)

    table = {name: {key: summary(values) for key, values in row.items()} for name, row in rows.items()}
    peers = [name for name in table if name != "qinfer"]
    ratios = {key: table["qinfer"][key]["median"] / max(table[name][key]["median"] for name in peers)
              for key in ("prefill_tps", "decode_tps")}
    gbs = statistics.median(bandwidth)
    share = weights * table["qinfer"]["decode_tps"]["median"] / (gbs * 1e9) if weights else None
    if args.json:
        print(json.dumps({"model": args.model, "threads": args.threads, "prompt": args.prompt, "generate": args.generate, "rows": table,
                          "ratio_to_best": ratios, "read_bandwidth_gbs": summary(bandwidth), "bytes_per_token": weights,
                          "decode_share_of_bandwidth": share, "peer_system": system}, indent=2))
        return
    print(f"\n{args.model}, {args.threads} threads, {args.repetitions} interleaved repetitions: median (min to max), tokens/s")
    print(f"{'':32}{'prefill ' + str(args.prompt):>28}{'decode ' + str(args.generate):>28}")
    for name, row in table.items():
        cells = [f"{row[k]['median']:.1f} ({row[k]['min']:.1f} to {row[k]['max']:.1f})" for k in ("prefill_tps", "decode_tps")]
        print(f"{name:32}{cells[0]:>28}{cells[1]:>28}")
    print(f"{'qinfer / best of llama.cpp':32}{ratios['prefill_tps']:>27.2f}x{ratios['decode_tps']:>27.2f}x")
    print(f"read bandwidth {gbs:.1f} GB/s ({min(bandwidth):.1f} to {max(bandwidth):.1f})" +
          (f"; decode reads {weights / 1e6:.1f} MB a token: {100 * share:.0f} % of it" if share else ""))
    print(f"llama.cpp: {system.strip()}")


if __name__ == "__main__":
    main()
