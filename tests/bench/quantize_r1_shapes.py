#!/usr/bin/env python3
"""Quantizes a checkpoint with the layer shapes of DeepSeek R1 (make_r1_shapes.py) under a memory limit, calibrated, and prints what it
took: the plan, the peak of the process's own memory (anonymous pages, read from /proc every few ms) and of all that was resident (with
mapped files), the time, and how many experts the calibration reached. Needs nothing but Python and Linux.
usage: quantize_r1_shapes.py QINFER FOLDER [--shrink N] [--filled] [--memory-limit 4GB] [--samples 2] [--keep] [--check]
                             [--scheme "routed experts"]
`--check`: fails where the peak is above the plan, or where a limit changes the file or is not kept.
"""
import argparse
import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SCHEMES = {
    "INT4 g64, routed experts only": ["--scheme", "bf16", "--set", "*.experts.*=int4-g64-f16"],
    "INT4 g64, all": ["--scheme", "int4", "--group-size", "64"],
}
PROCESS = 6 << 20  # what a process takes without a model: the C library, the command, threads, its report


def quantize(options, source, out, scheme, limit):
    report = out + ".json"
    command = [options.qinfer, "quantize", source, "-o", out, *SCHEMES[scheme], "--calibration", os.path.join(source, "text.txt"),
               "--samples", str(options.samples), "--no-evaluation", "--report", report]
    if limit:
        command += ["--memory-limit", limit]
    with open(out + ".log", "w") as log:
        began = time.time()
        process = subprocess.Popen(command, stdout=log, stderr=log)
        anonymous = 0
        while True:
            pid, code, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            with open("/proc/%d/status" % process.pid) as status:
                found = re.search(r"RssAnon:\s+(\d+)", status.read())
            anonymous = max(anonymous, int(found[1]) * 1024 if found else 0)
            time.sleep(0.003)
        seconds = time.time() - began
    process.returncode = code
    if code != 0:
        with open(out + ".log") as log:
            sys.exit("%s failed:\n%s" % (" ".join(command), log.read()[-2000:]))
    with open(report) as file:
        result = json.load(file)
    coverage = result["calibration"]["expert_coverage"]["layers"]
    return {"seconds": seconds, "cpu": usage.ru_utime + usage.ru_stime, "anonymous": anonymous, "resident": usage.ru_maxrss * 1024,
            "plan": result["memory"]["plan_total_bytes"], "bytes": result["file_bytes"], "coverage": coverage}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("qinfer")
    parser.add_argument("folder")
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--filled", action="store_true")
    parser.add_argument("--memory-limit", default="4GB")
    parser.add_argument("--samples", type=int, default=2)
    parser.add_argument("--scheme", default="", help="only those with this in their names: " + "; ".join(SCHEMES))
    parser.add_argument("--keep", action="store_true", help="keep the files")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    source = os.path.join(options.folder, "source")
    make = [sys.executable, os.path.join(HERE, "make_r1_shapes.py"), source, "--shrink", str(options.shrink)]
    subprocess.run(make + (["--filled"] if options.filled else []), check=True)
    print("| weights | file | time | CPU | plan | own memory | resident | experts reached |\n|---|---|---|---|---|---|---|---|")
    failures = []
    for number, scheme in enumerate(name for name in SCHEMES if options.scheme in name):
        out = os.path.join(options.folder, "out%d.qinfer" % number)
        r = quantize(options, source, out, scheme, options.memory_limit)
        reached = ", ".join("%d of %d" % (c["experts"] - c["without_tokens"], c["experts"]) for c in r["coverage"])
        print("| %s | %.2f GB | %.0f s | %.0f s | %.1f MB | %.1f MB | %.1f MB | %s |" %
              (scheme, r["bytes"] / 1e9, r["seconds"], r["cpu"], r["plan"] / 1e6, r["anonymous"] / 1e6, r["resident"] / 1e6, reached),
              flush=True)
        if options.check:
            free = quantize(options, source, out + ".free", scheme, None)
            if not filecmp.cmp(out, out + ".free", shallow=False):
                failures.append("%s: the limit changes the file" % scheme)
            if free["plan"] < 1.5 * r["plan"]:
                failures.append("%s: the limit is none: %d bytes without it" % (scheme, free["plan"]))
            for run in (r, free):
                if run["anonymous"] > run["plan"] + PROCESS:
                    failures.append("%s: %d bytes, planned %d" % (scheme, run["anonymous"], run["plan"]))
        if not options.keep:
            os.remove(out)
    if not options.keep:
        shutil.rmtree(source)
    sys.exit("\n".join(failures) if failures else 0)


if __name__ == "__main__":
    main()
