#!/usr/bin/env python3
"""Writes GGUF models of random weights with the shapes of real ones, to time what cannot be downloaded: the time of a step does not depend on what
the weights say. Types are those of llama.cpp's quantization to Q4_0 (a Q6_K head, routers and norms in F32); llama-1.2b is Q4_0 throughout. Tensors
are written one after the other from a generator seeded by their name, so that memory stays small and the file the same.

usage: make_shapes.py SHAPE OUT.gguf [--layers N] [--pure]      shapes: qwen3-0.6b, qwen3-30b-a3b, deepseek-v2-lite (4 layers each of these two),
llama-1.2b; --pure: a Q4_0 head too
needs: numpy, gguf
"""
import argparse
import math
import zlib

import gguf
import numpy as np

Q4_0, Q6_K, F32 = gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q6_K, gguf.GGMLQuantizationType.F32
SIZES = {  # layers, hidden, heads, kv heads, head dim, intermediate, vocabulary, context, rope base
    "qwen3-0.6b": (28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e6),
    "qwen3-30b-a3b": (4, 2048, 32, 4, 128, 6144, 151936, 40960, 1e6),
    "deepseek-v2-lite": (4, 2048, 16, 1, 192, 10944, 102400, 163840, 1e4),
    "llama-1.2b": (24, 2048, 32, 8, 64, 5632, 32000, 4096, 1e4),
}
ARCHITECTURES = {"qwen3-0.6b": "qwen3", "qwen3-30b-a3b": "qwen3moe", "deepseek-v2-lite": "deepseek2", "llama-1.2b": "llama"}


def half(values):
    return values.astype(np.float16).view(np.uint8).reshape(-1, 2)


def blocks(random, dtype, shape):
    """Random blocks whose weights have a standard deviation of about 1 / sqrt(inputs), so that activations stay near 1."""
    cols = shape[-1]
    if dtype == F32:
        return (random.standard_normal(shape, np.float32) / math.sqrt(cols)).astype(np.float32)
    count = math.prod(shape) // gguf.GGML_QUANT_SIZES[dtype][0]
    spread = random.uniform(0.75, 1.25, count) / math.sqrt(cols)
    if dtype == Q4_0:  # scale, 32 codes of 0 to 15
        parts = [half(spread / 4.6), random.integers(0, 256, (count, 16), np.uint8)]
    else:  # 256 codes of 0 to 63, 16 scales, their scale
        parts = [random.integers(0, 256, (count, 192), np.uint8), random.integers(32, 128, (count, 16), np.uint8), half(spread / (18.5 * 80))]
    return np.concatenate(parts, axis=1).reshape(*shape[:-1], -1)


def norm_weights(size):
    """Every 192nd channel is large, so that a sixth of all blocks of 32 holds an outlier, as in real models: qinfer's prefill meets those twice."""
    weights = np.ones(size, np.float32)
    weights[95::192] = 8
    return weights


class Shape:
    def __init__(self, name, path, layers, head):
        self.head = head
        self.layers, self.hidden, self.heads, self.kv_heads, self.head_dim, self.wide, self.vocab, context, base = SIZES[name]
        self.layers = layers or self.layers
        self.arch = ARCHITECTURES[name]
        self.writer = gguf.GGUFWriter(path, self.arch)
        self.tensors = []
        self.writer.add_tokenizer_model("none")
        self.writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)
        self.uint(context_length=context, embedding_length=self.hidden, block_count=self.layers, feed_forward_length=self.wide,
                  vocab_size=self.vocab, **{"attention.head_count": self.heads, "attention.head_count_kv": self.kv_heads})
        self.float(**{"attention.layer_norm_rms_epsilon": 1e-6, "rope.freq_base": base})

    def uint(self, **values):
        for key, value in values.items():
            self.writer.add_uint32(f"{self.arch}.{key}", value)

    def float(self, **values):
        for key, value in values.items():
            self.writer.add_float32(f"{self.arch}.{key}", value)

    def add(self, name, *shape, dtype=Q4_0):
        self.tensors.append((name + ".weight", dtype, shape))

    def norm(self, name, size):
        self.tensors.append((name + ".weight", None, (size,)))

    def ends(self, tied=False):
        head = self.head
        self.add("token_embd", self.vocab, self.hidden, dtype=head if tied else Q4_0)
        self.norm("output_norm", self.hidden)
        if not tied:
            self.add("output", self.vocab, self.hidden, dtype=head)

    def grouped(self, prefix, qk_norms=False):
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        self.norm(prefix + "attn_norm", self.hidden)
        for name, rows in (("q", q), ("k", kv), ("v", kv)):
            self.add(f"{prefix}attn_{name}", rows, self.hidden)
        self.add(prefix + "attn_output", self.hidden, q)
        if qk_norms:
            self.norm(prefix + "attn_q_norm", self.head_dim)
            self.norm(prefix + "attn_k_norm", self.head_dim)

    def latent(self, prefix, rank, rotated, value):
        nope = self.head_dim - rotated
        self.norm(prefix + "attn_norm", self.hidden)
        self.norm(prefix + "attn_kv_a_norm", rank)
        self.add(prefix + "attn_kv_a_mqa", rank + rotated, self.hidden)
        self.add(prefix + "attn_k_b", self.heads, rank, nope)
        self.add(prefix + "attn_v_b", self.heads, value, rank)
        self.add(prefix + "attn_output", self.hidden, self.heads * value)

    def feed_forward(self, prefix, wide, suffix="", experts=()):
        for name, rows, cols in (("gate", wide, self.hidden), ("up", wide, self.hidden), ("down", self.hidden, wide)):
            self.add(f"{prefix}ffn_{name}{suffix}", *experts, rows, cols)

    def experts(self, prefix, count, wide, shared=0):
        self.add(prefix + "ffn_gate_inp", count, self.hidden, dtype=F32)
        self.feed_forward(prefix, wide, "_exps", (count,))
        if shared:
            self.feed_forward(prefix, shared * wide, "_shexp")

    def write(self):
        def bytes_of(dtype, shape):
            if dtype in (None, F32):
                return np.float32, shape
            elements, size = gguf.GGML_QUANT_SIZES[dtype]
            return np.uint8, (*shape[:-1], shape[-1] // elements * size)

        for name, dtype, shape in self.tensors:
            kind, stored = bytes_of(dtype, shape)
            self.writer.add_tensor_info(name, stored, np.dtype(kind), math.prod(stored) * np.dtype(kind).itemsize,
                                        None if kind is np.float32 else dtype)
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_ti_data_to_file()
        for name, dtype, shape in self.tensors:
            random = np.random.default_rng(zlib.crc32(name.encode()))
            self.writer.write_tensor_data(norm_weights(*shape) if dtype is None else blocks(random, dtype, shape))
        self.writer.close()


def dense(shape, qk_norms, tied):
    shape.uint(**{"attention.key_length": shape.head_dim, "attention.value_length": shape.head_dim, "rope.dimension_count": shape.head_dim})
    shape.ends(tied)
    for i in range(shape.layers):
        prefix = f"blk.{i}."
        shape.grouped(prefix, qk_norms)
        shape.norm(prefix + "ffn_norm", shape.hidden)
        shape.feed_forward(prefix, shape.wide)


def qwen3_moe(shape):
    count, wide = 128, 768
    shape.uint(expert_count=count, expert_used_count=8, expert_feed_forward_length=wide,
               **{"attention.key_length": shape.head_dim, "attention.value_length": shape.head_dim, "rope.dimension_count": shape.head_dim})
    shape.ends()
    for i in range(shape.layers):
        prefix = f"blk.{i}."
        shape.grouped(prefix, qk_norms=True)
        shape.norm(prefix + "ffn_norm", shape.hidden)
        shape.experts(prefix, count, wide)


def deepseek_v2_lite(shape):
    """One dense layer, then experts. llama.cpp knows models without a rank of queries by their 27 layers; with less, queries pass through one."""
    count, wide, rank, rotated, value = 64, 1408, 512, 64, 128
    q_rank = 0 if shape.layers == 27 else 1536
    shape.uint(expert_count=count, expert_used_count=6, expert_feed_forward_length=wide, expert_shared_count=2, expert_gating_func=1,
               leading_dense_block_count=1, **{"attention.kv_lora_rank": rank, "rope.dimension_count": rotated,
                                               "attention.key_length": rank + rotated, "attention.value_length": rank,
                                               "attention.key_length_mla": shape.head_dim, "attention.value_length_mla": value})
    if q_rank:
        shape.uint(**{"attention.q_lora_rank": q_rank})
    shape.float(expert_weights_scale=1.0)
    shape.writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    shape.writer.add_rope_scaling_orig_ctx_len(4096)
    shape.float(**{"rope.scaling.factor": 40.0, "rope.scaling.yarn_log_multiplier": 0.0707})
    shape.ends()
    for i in range(shape.layers):
        prefix = f"blk.{i}."
        shape.latent(prefix, rank, rotated, value)
        queries = shape.heads * shape.head_dim
        if q_rank:
            shape.add(prefix + "attn_q_a", q_rank, shape.hidden)
            shape.norm(prefix + "attn_q_a_norm", q_rank)
            shape.add(prefix + "attn_q_b", queries, q_rank)
        else:
            shape.add(prefix + "attn_q", queries, shape.hidden)
        shape.norm(prefix + "ffn_norm", shape.hidden)
        if i == 0:
            shape.feed_forward(prefix, shape.wide)
        else:
            shape.experts(prefix, count, wide, shared=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=SIZES)
    parser.add_argument("out")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--pure", action="store_true", help="a Q4_0 head, as llama.cpp's quantization with --pure")
    args = parser.parse_args()
    shape = Shape(args.shape, args.out, args.layers, Q4_0 if args.pure or args.shape == "llama-1.2b" else Q6_K)
    if args.shape == "llama-1.2b":
        dense(shape, qk_norms=False, tied=False)
    elif args.shape == "qwen3-0.6b":
        dense(shape, qk_norms=True, tied=True)
    elif args.shape == "qwen3-30b-a3b":
        qwen3_moe(shape)
    else:
        deepseek_v2_lite(shape)
    shape.write()


if __name__ == "__main__":
    main()
