#!/usr/bin/env python3
"""Times qinfer against llama.cpp (the llama-cpp-python package, built natively) on the same file in one run.

The repetitions are interleaved, since machines are noisy; the table gives medians with minimum and maximum, and only ratios within one run mean
anything. llama.cpp runs with and without flash attention and with both types of KV cache; the best of them counts. Between the repetitions the
machine's read bandwidth and its peak of integer products are measured; beside each time stands its share of them, and the perplexity of the very
configuration that was timed on the first windows of a text: --text, else shared/data/text/wikitext2-test.txt beside the checkout, else the held-out
text of tiny-llama. --windows 0 leaves it out.

usage: compare.py MODEL.gguf [--ours OUT.qinfer] [--qinfer build/release/samples/cli/qinfer] [--threads 2] [--repetitions 7]
                  [-p 512] [-n 128] [--depth 0] [--parallel 1] [--text FILE] [--windows 4] [--peer LLAMA-BENCH] [--skip NAME] [--json]
needs: llama-cpp-python (pip install --no-binary llama-cpp-python llama-cpp-python, so that it is built for this processor) and numpy
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
KEYS = ("prefill_tps", "decode_tps")
TEXTS = (HERE.parents[2] / "shared/data/text/wikitext2-test.txt", HERE.parents[1] / "samples/models/tiny-llama/tiny-heldout.txt")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def run_json(command):
    return json.loads(run(command))


def build_tool(name):
    tool = pathlib.Path(tempfile.gettempdir()) / f"qinfer_{name}"
    run([os.environ.get("CC", "cc"), "-O3", "-march=native", "-pthread", "-o", str(tool), str(HERE / f"{name}.c")])
    return str(tool)


def summary(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values), "values": values}


def llama_bench(binary, args):
    """Any build of llama-bench: one repetition, both tests."""
    rows = run_json([binary, "-m", args.model, "-p", str(args.prompt), "-n", str(args.generate), "-t", str(args.threads), "-r", "1", "-o", "json"] +
                    (["-d", str(args.depth)] if args.depth else []))
    result = dict.fromkeys(KEYS, 0.0)
    for row in rows:
        result["prefill_tps" if row["n_prompt"] else "decode_tps"] = row["avg_ts"]
    return result


def configurations(args):
    """Name -> (function that measures once, function that gives the perplexity or None)."""
    shape = ["-p", str(args.prompt), "-n", str(args.generate), "--depth", str(args.depth), "--parallel", str(args.parallel),
             "--threads", str(args.threads)]
    ours = args.ours or args.model
    mine = ["--kv", args.kv, "--activations", args.activations]
    out = {"qinfer": (
        lambda: run_json([args.qinfer, "bench", ours, *shape, *mine, "--json"]),
        lambda: run_json([args.qinfer, "perplexity", ours, "--file", args.text, "--max-windows", str(args.windows), "--threads",
                          str(args.threads), *mine, "--json"])["perplexity"])}
    worker = [sys.executable, str(HERE / "llama_cpp_worker.py"), args.model]
    for name, options in (("llama.cpp", ["--flash", "1"]), ("llama.cpp, no flash attention", ["--flash", "0"]),
                          ("llama.cpp, Q8_0 KV", ["--flash", "1", "--kv", "q8_0"])):
        out[name] = (lambda options=options: run_json([*worker, *shape, *options]),
                     lambda options=options: run_json([*worker, *options, "--threads", str(args.threads), "--text", args.text, "--windows",
                                                       str(args.windows)])["perplexity"])
    for part in args.skip:
        out = {name: one for name, one in out.items() if name == "qinfer" or part not in name}
    if args.peer:
        out[pathlib.Path(args.peer).name] = (lambda: llama_bench(args.peer, args), None)
    return out


def layer_parameters(info):
    """Parameters of the layers that every token of a prefill is multiplied by: of the experts those of the chosen ones."""
    ends = info["vocab_size"] * info["hidden_size"] * (1 if info["tied_head"] else 2)
    idle = 0
    if info.get("experts"):
        e = info["experts"]
        idle = e["layers"] * (e["count"] - e["used"]) * 3 * info["hidden_size"] * e["intermediate_size"]
    return info["parameters"] - ends - idle


def add_perplexity(args, configured, rows, result):
    """Perplexity of every configuration, or why there is none."""
    models = [args.model] + ([args.ours] if args.ours else [])
    plain = [model for model in models if "tokenizer" not in run_json([args.qinfer, "info", model, "--json"])]
    if args.windows == 0:
        result["no_perplexity"] = "--windows 0"
        return
    if plain:
        result["no_perplexity"] = f"{plain[0]} has no tokenizer (as random weights of make_shapes.py have none)"
        return
    result["text"], result["windows"] = args.text, args.windows
    for name, (_, quality) in configured.items():
        rows[name]["perplexity"] = quality() if quality else None


def add_shares(args, rows, result):
    """Of the read bandwidth what decode reads of weights a second, of the peak the products of prefill's layers, each counted once."""
    bandwidth, peak = result["read_bandwidth_gbs"]["median"] * 1e9, result["integer_peak_gops"]["median"] * 1e9
    result["bytes_per_token"] = {"qinfer": result["bytes_per_token"]}
    peer = result["bytes_per_token"]["qinfer"]
    if args.ours:  # the peers read another file
        peer = run_json([args.qinfer, "bench", args.model, "-p", "0", "-n", "1", "--threads", str(args.threads), "--json"])["bytes_per_token"]
    result["bytes_per_token"]["others"] = peer
    parameters = layer_parameters(run_json([args.qinfer, "info", args.ours or args.model, "--json"]))
    for name, row in rows.items():
        read = result["bytes_per_token"]["qinfer" if name == "qinfer" else "others"]
        row["decode_share_of_bandwidth"] = read * row["decode_tps"]["median"] / args.parallel / bandwidth
        row["prefill_share_of_peak"] = 2 * parameters * row["prefill_tps"]["median"] / peak


def measure(args):
    bandwidth_tool, peak_tool = build_tool("read_bandwidth"), build_tool("integer_peak")
    configured = configurations(args)
    times = {name: {key: [] for key in KEYS} for name in configured}
    bandwidth, peak, result = [], [], {"model": args.model, "threads": args.threads, "prompt": args.prompt, "generate": args.generate,
                                       "depth": args.depth, "parallel": args.parallel}
    for repetition in range(args.repetitions):
        bandwidth.append(float(run([bandwidth_tool, str(args.threads), "256"])))
        rate, instruction = run([peak_tool, str(args.threads)]).split(" ", 1)
        peak.append(float(rate))
        result["peak_instruction"] = instruction.strip()
        for name, (once, _) in configured.items():
            one = once()
            for key in KEYS:
                times[name][key].append(one[key] or 0.0)  # None: not asked for
            result["peer_system"] = one.get("system", result.get("peer_system", ""))
            result["bytes_per_token"] = one.get("bytes_per_token", result.get("bytes_per_token", 0))
        print(f"repetition {repetition + 1} of {args.repetitions} done", file=sys.stderr)
    table = {name: {key: summary(values) for key, values in row.items()} for name, row in times.items()}
    add_perplexity(args, configured, table, result)
    best = {key: max(row[key]["median"] for name, row in table.items() if name != "qinfer") for key in KEYS}
    result["rows"] = table
    result["ratio_to_best"] = {key: table["qinfer"][key]["median"] / best[key] if best[key] else None for key in KEYS}
    result["read_bandwidth_gbs"], result["integer_peak_gops"] = summary(bandwidth), summary(peak)
    add_shares(args, table, result)
    return result


def show(result, repetitions):
    shape = "" if result["parallel"] == 1 else f", {result['parallel']} sequences together"
    shape += f", after {result['depth']} tokens" if result["depth"] else ""
    print(f"\n{result['model']}, {result['threads']} threads{shape}, {repetitions} interleaved repetitions: median (min to max), tokens/s")
    print(f"{'':32}{'prefill ' + str(result['prompt']):>28}{'of peak':>9}{'decode ' + str(result['generate']):>28}{'of bandwidth':>14}{'perplexity':>12}")
    for name, row in result["rows"].items():
        cells = [f"{row[k]['median']:.1f} ({row[k]['min']:.1f} to {row[k]['max']:.1f})" if row[k]["median"] else "-" for k in KEYS]
        shares = [f"{100 * row[k]:.0f} %" if row[k] else "-" for k in ("prefill_share_of_peak", "decode_share_of_bandwidth")]
        quality = f"{row['perplexity']:.4f}" if row.get("perplexity") else "-"
        print(f"{name:32}{cells[0]:>28}{shares[0]:>9}{cells[1]:>28}{shares[1]:>14}{quality:>12}")
    ratios = [f"{ratio:.2f}x" if ratio else "" for ratio in (result["ratio_to_best"][key] for key in KEYS)]
    print(f"{'qinfer / best of the others':32}{ratios[0]:>28}{'':9}{ratios[1]:>28}")
    if "no_perplexity" in result:
        print(f"no perplexity: {result['no_perplexity']}")
    else:
        print(f"perplexity: the first {result['windows']} windows of 512 tokens of {result['text']}, with the KV cache and activations that were timed")
        if any(row.get("perplexity") is None for row in result["rows"].values()):
            print("(llama-bench measures none)")
    bandwidth, peak, read = result["read_bandwidth_gbs"], result["integer_peak_gops"], result["bytes_per_token"]
    others = "" if read["others"] == read["qinfer"] else f", llama.cpp {read['others'] / 1e6:.1f} MB"
    print(f"read bandwidth {bandwidth['median']:.1f} GB/s ({bandwidth['min']:.1f} to {bandwidth['max']:.1f}); decode reads "
          f"{read['qinfer'] / 1e6:.1f} MB of weights a step{others}")
    print(f"peak of {result['peak_instruction']} {peak['median']:.0f} GOPS ({peak['min']:.0f} to {peak['max']:.0f}); of it the layers' products in "
          f"prefill, counted once")
    print(f"llama.cpp: {result['peer_system'].strip()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--ours", help="what qinfer times instead of MODEL (a converted or quantized .qinfer)")
    parser.add_argument("--qinfer", default=str(HERE.parents[1] / "build/release/samples/cli/qinfer"))
    parser.add_argument("--kv", default="int8", help="qinfer's KV cache")
    parser.add_argument("--activations", default="auto", help="qinfer's activations")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=128)
    parser.add_argument("--depth", type=int, default=0, help="tokens that are in the context before")
    parser.add_argument("--parallel", type=int, default=1, help="sequences computed together")
    parser.add_argument("--skip", action="append", default=[], help="configurations of llama.cpp with this in their name are not timed")
    parser.add_argument("--text", default=str(next((text for text in TEXTS if text.exists()), TEXTS[-1])),
                        help="what perplexity is measured on (default: %(default)s)")
    parser.add_argument("--windows", type=int, default=4, help="of 512 tokens, for the perplexity; 0: none")
    parser.add_argument("--peer", help="a build of llama-bench, timed on the same file in the same run")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(args)
    if args.json:
        print(json.dumps(result, indent=2))
    else:
        show(result, args.repetitions)


if __name__ == "__main__":
    main()
