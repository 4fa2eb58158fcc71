#!/usr/bin/env python3
"""Makes small random GGUF models with experts in tests/golden/gguf-models and records what llama.cpp computes for them: what cannot be a
twin of transformers' models (make_moe_gguf.py), because llama.cpp wants shapes that those do not have, or has parts that those leave out.

Weights are exact in F16: the committed file holds matrices in F16, llama.cpp gets the same in F32 in a temporary file.
Needs gguf, llama_cpp, safetensors, numpy.
"""
import ctypes
import os
import tempfile

import llama_cpp
import numpy as np
from safetensors.numpy import save_file

from make_gguf_models import OUT, TOKENS, Maker, logits_of


class Moe(Maker):
    dtype = np.float16

    def tensor(self, name, data):
        data = data.astype(np.float16)
        wide = data.ndim == 1 or "ffn_gate_inp" in name
        self.writer.add_tensor(name, data.astype(np.float32 if wide else self.dtype))

    def stack(self, name, parts, rows, cols):
        self.tensor(name, self.random.randn(parts, rows, cols) * 1.4 / cols ** 0.5)

    def uint(self, **values):
        for key, value in values.items():
            self.writer.add_uint32(f"{self.writer.arch}.{key}", value)

    def experts(self, i, count, width, shared, fused=False):
        prefix = f"blk.{i}.ffn_"
        self.matrix(prefix + "gate_inp.weight", count, self.hidden)
        if fused:
            self.stack(prefix + "gate_up_exps.weight", count, 2 * width, self.hidden)
        else:
            self.stack(prefix + "gate_exps.weight", count, width, self.hidden)
            self.stack(prefix + "up_exps.weight", count, width, self.hidden)
        self.stack(prefix + "down_exps.weight", count, self.hidden, width)
        self.matrix(prefix + "gate_shexp.weight", shared, self.hidden)
        self.matrix(prefix + "up_shexp.weight", shared, self.hidden)
        self.matrix(prefix + "down_shexp.weight", self.hidden, shared)

    def dense(self, i):
        for name, rows, cols in (("gate", self.intermediate, self.hidden), ("up", self.intermediate, self.hidden),
                                 ("down", self.hidden, self.intermediate)):
            self.matrix(f"blk.{i}.ffn_{name}.weight", rows, cols)

    def grouped(self, i, second_norm):
        prefix, q, kv = f"blk.{i}.", self.heads * self.head_dim, self.kv_heads * self.head_dim
        for name, rows in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
            self.matrix(prefix + name + ".weight", rows, self.hidden)
            self.vector(prefix + name + ".bias", rows)
        self.matrix(prefix + "attn_output.weight", self.hidden, q)
        self.norm(prefix + "attn_norm.weight", self.hidden)
        self.norm(prefix + second_norm + ".weight", self.hidden)

    def close(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


class Wide(Moe):
    dtype = np.float32


def qwen2moe(make, path):
    """All layers have experts; the shared one's width is another than theirs, its gate a vector."""
    m = make(path, "qwen2moe", 21, 103, 40, 2, 4, 2, 10, 60, 96)
    m.writer.add_rope_freq_base(500.0)
    m.uint(expert_count=7, expert_used_count=3, expert_feed_forward_length=20, expert_shared_feed_forward_length=44)
    m.ends(tied=False)
    for i in range(m.layers):
        m.grouped(i, "ffn_norm")
        m.experts(i, 7, 20, 44)
        m.vector(f"blk.{i}.ffn_gate_inp_shexp.weight", m.hidden, 0.0, 0.4)
    return m


def glm4moe(make, path):
    """Without norms of q and k, as the smaller GLM has it; a third layer that predicts further tokens."""
    m = make(path, "glm4moe", 22, 101, 36, 3, 4, 2, 12, 52, 96)
    m.writer.add_rope_freq_base(500.0)
    m.writer.add_rope_dimension_count(6)
    m.uint(expert_count=8, expert_used_count=3, expert_feed_forward_length=18, expert_shared_count=1, expert_gating_func=2,
           leading_dense_block_count=1, nextn_predict_layers=1)
    m.writer.add_float32("glm4moe.expert_weights_scale", 1.4)
    m.writer.add_bool("glm4moe.expert_weights_norm", True)
    m.ends(tied=False)
    for i in range(m.layers):
        m.grouped(i, "post_attention_norm")
        if i == 0:
            m.dense(i)
            continue
        m.experts(i, 8, 18, 18)
        m.vector(f"blk.{i}.exp_probs_b.bias", 8, 0.0, 0.2)
    last = m.layers - 1
    m.matrix(f"blk.{last}.nextn.eh_proj.weight", m.hidden, 2 * m.hidden)
    for name in ("enorm", "hnorm", "shared_head_norm"):
        m.norm(f"blk.{last}.nextn.{name}.weight", m.hidden)
    return m


def deepseek2(make, path):
    """DeepSeek-V2-Lite: llama.cpp knows it by its 27 layers. No q_a, kv_b whole (an old file), gate and up of experts in one tensor."""
    nope, rotated, value, latent = 6, 4, 6, 12
    m = make(path, "deepseek2", 23, 89, 24, 27, 2, 2, nope + rotated, 30, 96)
    m.writer.add_value_length(value)
    m.writer.add_rope_freq_base(500.0)
    m.uint(**{"rope.dimension_count": rotated, "attention.kv_lora_rank": latent})
    m.uint(expert_count=4, expert_used_count=2, expert_feed_forward_length=8, expert_shared_count=1, leading_dense_block_count=1)
    m.writer.add_float32("deepseek2.expert_weights_scale", 1.3)
    m.ends(tied=False)
    for i in range(m.layers):
        prefix = f"blk.{i}."
        m.norm(prefix + "attn_norm.weight", m.hidden)
        m.norm(prefix + "ffn_norm.weight", m.hidden)
        m.norm(prefix + "attn_kv_a_norm.weight", latent)
        m.matrix(prefix + "attn_q.weight", m.heads * (nope + rotated), m.hidden)
        m.matrix(prefix + "attn_kv_a_mqa.weight", latent + rotated, m.hidden)
        m.matrix(prefix + "attn_kv_b.weight", m.heads * (nope + value), latent)
        m.matrix(prefix + "attn_output.weight", m.hidden, m.heads * value)
        if i == 0:
            m.dense(i)
        else:
            m.experts(i, 4, 8, 8, fused=True)
    return m


def main():
    quiet = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    for name, function in (("qwen2moe", qwen2moe), ("glm4moe-nextn", glm4moe), ("deepseek2-lite", deepseek2)):
        function(Moe, os.path.join(OUT, name)).close()
        with tempfile.TemporaryDirectory() as temporary:
            m = function(Wide, os.path.join(temporary, "wide"))
            m.close()
            ids = np.random.RandomState(7).randint(0, m.vocab, size=TOKENS).astype(np.int32)
            logits = logits_of(m.path, ids, m.vocab)
        assert np.isfinite(logits).all() and logits.std() > 0.5, logits.std()
        save_file({"tokens": ids, "logits": logits}, os.path.join(OUT, name + ".safetensors"))
        print(name, os.path.getsize(os.path.join(OUT, name + ".gguf")), "bytes, logits' std", logits.std())


if __name__ == "__main__":
    main()
