#!/usr/bin/env python3
"""One measurement of llama.cpp (the llama-cpp-python package) in a process of its own; compare.py calls it.

Times as llama-bench does: random tokens, one warm-up, no sampling. With --text it prints the perplexity of the same settings instead: windows of 512
tokens, of which the second half is scored.
"""
import argparse
import ctypes
import json
import random
import sys
import time

import llama_cpp as L
import numpy

KV_TYPES = {"f16": 1, "q8_0": 8}  # ggml_type


class Peer:
    def __init__(self, args, tokens_each, rows):
        L.llama_backend_init()
        self.quiet = L.llama_log_callback(lambda level, text, user: None)
        L.llama_log_set(self.quiet, None)
        self.model = L.llama_model_load_from_file(args.model.encode(), L.llama_model_default_params())
        if not self.model:
            sys.exit(f"llama.cpp cannot load {args.model}")
        self.vocab = L.llama_model_get_vocab(self.model)
        self.size = L.llama_vocab_n_tokens(self.vocab)
        params = L.llama_context_default_params()
        params.n_ctx = tokens_each * args.parallel
        params.n_seq_max = args.parallel
        params.n_batch = params.n_ubatch = max(rows, 32)
        params.n_threads = params.n_threads_batch = args.threads
        params.type_k = params.type_v = KV_TYPES[args.kv]
        params.flash_attn_type = args.flash
        self.context = L.llama_init_from_model(self.model, params)
        if not self.context:
            sys.exit("llama.cpp cannot make a context")
        self.memory = L.llama_get_memory(self.context)
        self.batch = L.llama_batch_init(max(rows, 32), 0, 1)

    def decode(self, sequences, position, all_logits=False):
        """Tokens of every sequence from `position` on, in one batch; logits of the last of each."""
        n = 0
        for sequence, tokens in enumerate(sequences):
            for i, token in enumerate(tokens):
                self.batch.token[n] = token
                self.batch.pos[n] = position + i
                self.batch.n_seq_id[n] = 1
                self.batch.seq_id[n][0] = sequence
                self.batch.logits[n] = 1 if all_logits or i + 1 == len(tokens) else 0
                n += 1
        self.batch.n_tokens = n
        if L.llama_decode(self.context, self.batch) != 0:
            sys.exit("llama_decode failed")
        L.llama_synchronize(self.context)

    def clear(self):
        L.llama_memory_clear(self.memory, True)


def measure(args):
    tokens_each = args.depth + max(args.prompt, args.generate) + 64
    rows = max(512, args.prompt) * args.parallel
    peer = Peer(args, tokens_each, rows)
    rng = random.Random(1)

    def draw(count):
        return [[rng.randrange(peer.size) for _ in range(count)] for _ in range(args.parallel)]

    def restart():
        peer.clear()
        for at in range(0, args.depth, 512):
            peer.decode(draw(min(512, args.depth - at)), at)

    peer.decode(draw(min(max(args.prompt, 1), 64)), 0)
    result = {"prefill_tps": 0.0, "decode_tps": 0.0, "system": L.llama_print_system_info().decode()}
    if args.prompt > 0:
        restart()
        prompt = draw(args.prompt)
        start = time.perf_counter()
        peer.decode(prompt, args.depth)
        result["prefill_tps"] = args.parallel * args.prompt / (time.perf_counter() - start)
    if args.generate > 0:
        restart()
        tokens = draw(args.generate)
        start = time.perf_counter()
        for i in range(args.generate):
            peer.decode([sequence[i:i + 1] for sequence in tokens], args.depth + i)
        result["decode_tps"] = args.parallel * args.generate / (time.perf_counter() - start)
    print(json.dumps(result))


def perplexity(args):
    window = 512
    args.parallel = 1
    peer = Peer(args, window, window)
    text = open(args.text, "rb").read()
    room = len(text) + 16
    ids = (L.llama_token * room)()
    count = L.llama_tokenize(peer.vocab, text, len(text), ids, room, True, False)  # with BOS before the first window, as qinfer and llama.cpp's tool
    tokens = list(ids[:count])
    begins = L.llama_vocab_get_add_bos(peer.vocab)
    bos = L.llama_vocab_bos(peer.vocab)
    total, scored = 0.0, 0
    for first in range(0, min(len(tokens) // window, args.windows) * window, window):
        chunk = tokens[first:first + window]
        fed = [bos] + chunk[1:] if begins else chunk
        peer.clear()
        peer.decode([fed], 0, all_logits=True)
        for i in range(window // 2, window - 1):
            row = numpy.ctypeslib.as_array(ctypes.cast(L.llama_get_logits_ith(peer.context, i), ctypes.POINTER(ctypes.c_float)),
                                           (peer.size,)).astype(numpy.float64)
            top = row.max()
            total += top + numpy.log(numpy.exp(row - top).sum()) - row[chunk[i + 1]]
            scored += 1
    print(json.dumps({"perplexity": float(numpy.exp(total / scored))}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--generate", type=int, default=128)
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--flash", type=int, default=1)
    parser.add_argument("--kv", choices=KV_TYPES, default="f16")
    parser.add_argument("--text")
    parser.add_argument("--windows", type=int, default=8)
    args = parser.parse_args()
    if args.text:
        perplexity(args)
    else:
        measure(args)


if __name__ == "__main__":
    main()
