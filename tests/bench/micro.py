"""Runs the microbenchmarks and prints their results as the tables of docs/performance.md.
usage: micro.py BUILD_FOLDER [ISA]   (built with -DQINFER_BUILD_BENCH=ON; ISA: avx512, avx2, ...)"""
import json
import os
import subprocess
import sys

FORMATS = ["int4-g32-f16", "int4-g32-f16-min", "int4-g32-sub8-min", "int6-g16-sub8", "int8-g32-f16"]
SIZES = ["576x576", "1536x576", "576x1536", "49152x576", "2048x2048", "5632x2048", "2048x5632"]
CONTEXTS = [512, 1024, 4096, 16384]
SAMPLERS = ["greedy", "greedy, penalties", "top-k 40, top-p 0.95", "top-k 40, top-p 0.95, penalties",
            "min-p 0.05", "top-p 0.95", "temperature alone"]


def run(program, pattern):
    """By name: what was measured."""
    command = [os.path.join(folder, program), "--benchmark_filter=" + pattern, "--benchmark_format=json",
               "--benchmark_min_time=0.1"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {b["name"]: b for b in json.loads(output)["benchmarks"]}


def table(head, rows):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


folder = os.path.join(sys.argv[1], "tests", "bench")
isa = sys.argv[2] if len(sys.argv) > 2 else "avx512"

found = run("kernels_bench", f"^{isa}/matmul/({'|'.join(FORMATS)})/({'|'.join(SIZES)})/1$")
table([f"{isa}, 1 token: GB/s of weights"] + SIZES,
      [[f] + ["%.1f" % found[f"{isa}/matmul/{f}/{s}/1"]["GB/s"] for s in SIZES] for f in FORMATS])

found = run("kernels_bench", f"^{isa}/matmul/({'|'.join(FORMATS)})/(576x1536|2048x2048)/(4|128)$")
cases = [(s, t) for s in ("576x1536", "2048x2048") for t in (4, 128)]
table([f"{isa}: GOPS, share of peak"] + [f"{s}, {t} tokens" for s, t in cases],
      [[f] + ["%.0f, %.0f %%" % (b["GOPS"], 100 * b["peak"])
              for b in (found[f"{isa}/matmul/{f}/{s}/{t}"] for s, t in cases)] for f in FORMATS])

found = run("kernels_bench", f"^{isa}/attention/")
rows = []
for kind in ("f32", "f16", "int8"):
    for tokens in (1, 64):
        cells = [found[f"{isa}/attention/{kind}/{c}/{tokens}"] for c in CONTEXTS]
        rows.append([f"{kind}, {tokens} token" + "s" * (tokens > 1)] +
                    ["%.1f us, %.0f GOPS" % (b["cpu_time"], b["GOPS"]) for b in cells])
table([f"{isa}: attention at"] + [str(c) for c in CONTEXTS], rows)

found = run("engine_bench", ".")
table(["sampler: us", "49152 tokens", "262144 tokens"],
      [[s] + ["%.2f" % found[f"sampler/{v}/{s}"]["cpu_time"] for v in (49152, 262144)] for s in SAMPLERS])
table(["barrier", "ns"], [["threads: " + name.split("/iterations")[0][8:], "%.0f" % b["real_time"]]
                          for name, b in found.items() if name.startswith("barrier")])
