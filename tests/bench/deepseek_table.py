#!/usr/bin/env python3
"""What quantization costs the sample model with experts: quantizes it in several ways, measures each against the source, and writes the
table of docs/deepseek.md to standard output. Needs only Python and the built command.
usage: deepseek_table.py [--qinfer build/release/samples/cli/qinfer] [--out FOLDER]
"""
import argparse
import json
import os
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = os.path.join(ROOT, "samples", "models", "tiny-deepseek")
TEXT = os.path.join(ROOT, "samples", "models", "tiny-llama", "tiny-heldout.txt")
CALIBRATION = os.path.join(ROOT, "samples", "models", "tiny-llama", "tiny-calibration.txt")
EXPERTS = "*.experts.*=int4-g64-f16"
VARIANTS = [
    ("INT8", ["--scheme", "int8"]),
    ("INT4, routed experts only", ["--scheme", "bf16", "--set", EXPERTS]),
    ("INT4, all", ["--scheme", "int4", "--group-size", "64"]),
    ("mixed: INT8, routed experts INT4", ["--scheme", "int8", "--set", EXPERTS]),
]


def run(*command):
    result = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return result.stdout.decode()


def number(tree, *names):
    """The first of these names anywhere in a JSON document."""
    stack = [tree]
    while stack:
        node = stack.pop(0)
        if isinstance(node, dict):
            for name in names:
                if isinstance(node.get(name), (int, float)):
                    return node[name]
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return float("nan")


def expert_bytes(qinfer, model):
    tensors = json.loads(run(qinfer, "inspect", model, "--json"))["tensors"]
    return sum(t["bytes"] for t in tensors if ".experts." in t["name"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--qinfer", default=os.path.join(ROOT, "build", "release", "samples", "cli", "qinfer"))
    parser.add_argument("--out")
    parser.add_argument("--windows", help="only the first so many windows of the text")
    parser.add_argument("--samples", default="128", help="calibration samples of 512 tokens")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.out or temporary
        os.makedirs(folder, exist_ok=True)
        rows = [("source (BF16)", MODEL)]
        for i, (name, arguments) in enumerate(VARIANTS):
            path = os.path.join(folder, f"tiny-deepseek-{i}.qinfer")
            run(options.qinfer, "quantize", MODEL, "-o", path, "--calibration", CALIBRATION, "--samples", options.samples, "--no-evaluation", "--json", *arguments)
            rows.append((name, path))
        whole = expert_bytes(options.qinfer, MODEL)
        print("| weights | bytes | routed experts | saved there | perplexity | KL mean | same top | decode, tokens/s |")
        print("|---|---|---|---|---|---|---|---|")
        for name, path in rows:
            measure = [options.qinfer, "perplexity", path, "--file", TEXT, "--context", "256", "--json"]
            if options.windows:
                measure += ["--max-windows", options.windows]
            if path != MODEL:
                measure += ["--reference", MODEL]
            quality = json.loads(run(*measure))
            speed = json.loads(run(options.qinfer, "bench", path, "--prompt", "128", "--generate", "256", "--repetitions", "15", "--json"))
            size = os.path.getsize(path if path != MODEL else os.path.join(MODEL, "model.safetensors"))
            experts = expert_bytes(options.qinfer, path)
            print("| {} | {:.2f} MB | {:.2f} MB | {:.1f} % | {:.4f} | {} | {} | {:.0f} |".format(
                name, size / 1e6, experts / 1e6, 100 * (1 - experts / whole), number(quality, "perplexity"),
                "" if path == MODEL else "{:.5f}".format(number(quality, "kl_mean", "mean_kl")),
                "" if path == MODEL else "{:.1f} %".format(100 * number(quality, "top1", "same_top")),
                number(speed, "decode_tps")), flush=True)


if __name__ == "__main__":
    main()
