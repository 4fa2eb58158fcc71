#!/usr/bin/env python3
"""Makes the small random GGUF models of tests/golden/gguf-models and records what llama.cpp computes for them.

Each model is NAME.gguf with weights in F32, beside NAME.safetensors with tokens and logits; llama.cpp runs without flash
attention and with an F32 cache, so that little but the order of additions differs. Needs gguf, llama_cpp, safetensors, numpy.
"""
import ctypes
import os

import gguf
import llama_cpp
import numpy as np
from safetensors.numpy import save_file

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gguf-models")
TOKENS = 60


def llama3_divisors(dims, theta, factor, low, high, context):
    """What llama.cpp's converter writes as rope_freqs.weight."""
    wavelengths = 2 * np.pi * theta ** (np.arange(0, dims, 2) / dims)
    smooth = (context / wavelengths - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    divisors = np.where(wavelengths < context / high, 1.0, np.where(wavelengths > context / low, factor, between))
    return divisors.astype(np.float32)


class Maker:
    def __init__(self, name, architecture, seed, vocab, hidden, layers, heads, kv_heads, head_dim, intermediate, context):
        self.path = os.path.join(OUT, name + ".gguf")
        self.random = np.random.RandomState(seed)
        self.vocab, self.hidden, self.layers = vocab, hidden, layers
        self.heads, self.kv_heads, self.head_dim, self.intermediate = heads, kv_heads, head_dim, intermediate
        self.writer = w = gguf.GGUFWriter(self.path, architecture)
        w.add_context_length(context)
        w.add_embedding_length(hidden)
        w.add_block_count(layers)
        w.add_feed_forward_length(intermediate)
        w.add_head_count(heads)
        w.add_head_count_kv(kv_heads)
        w.add_key_length(head_dim)
        w.add_value_length(head_dim)
        w.add_layer_norm_rms_eps(1e-5)
        w.add_vocab_size(vocab)
        w.add_tokenizer_model("none")

    def tensor(self, name, data):
        self.writer.add_tensor(name, data.astype(np.float32))

    def matrix(self, name, rows, cols, gain=1.4):
        """Attention gets peaked and logits wide, so that mistakes show."""
        self.tensor(name, self.random.randn(rows, cols) * gain / cols ** 0.5)

    def vector(self, name, size, mean=0.0, spread=0.3):
        self.tensor(name, mean + spread * self.random.randn(size))

    def norm(self, name, size):
        self.vector(name, size, 1.0, 0.2)

    def ends(self, tied):
        self.tensor("token_embd.weight", 0.6 * self.random.randn(self.vocab, self.hidden))
        self.norm("output_norm.weight", self.hidden)
        if not tied:
            self.tensor("output.weight", 0.4 * self.random.randn(self.vocab, self.hidden))

    def block(self, i, post_norms=False, head_norms=False, biases=False):
        prefix = f"blk.{i}."
        q, kv = self.heads * self.head_dim, self.kv_heads * self.head_dim
        for name, rows, cols in (("attn_q", q, self.hidden), ("attn_k", kv, self.hidden), ("attn_v", kv, self.hidden),
                                 ("attn_output", self.hidden, q), ("ffn_gate", self.intermediate, self.hidden),
                                 ("ffn_up", self.intermediate, self.hidden), ("ffn_down", self.hidden, self.intermediate)):
            self.matrix(prefix + name + ".weight", rows, cols)
            if biases:
                self.vector(prefix + name + ".bias", rows)
        for name in ("attn_norm", "ffn_norm") + (("post_attention_norm", "post_ffw_norm") if post_norms else ()):
            self.norm(prefix + name + ".weight", self.hidden)
        if head_norms:
            self.norm(prefix + "attn_q_norm.weight", self.head_dim)
            self.norm(prefix + "attn_k_norm.weight", self.head_dim)

    def finish(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        ids = np.random.RandomState(7).randint(0, self.vocab, size=TOKENS).astype(np.int32)
        logits = logits_of(self.path, ids, self.vocab)
        assert np.isfinite(logits).all() and logits.std() > 0.5, logits.std()
        save_file({"tokens": ids, "logits": logits}, self.path.replace(".gguf", ".safetensors"))
        print(self.path, os.path.getsize(self.path), "bytes, logits' std", logits.std())


def logits_of(path, ids, vocab):
    model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
    assert model, path
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 64
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = 0  # F32
    params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, params)
    assert context
    batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
    batch.n_tokens = len(ids)
    for i, token in enumerate(ids):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.seq_id[i][0], batch.logits[i] = int(token), i, 1, 0, 1
    assert llama_cpp.llama_decode(context, batch) == 0
    rows = [np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, i), (vocab,)).copy() for i in range(len(ids))]
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return np.stack(rows).astype(np.float32)


def main():
    os.makedirs(OUT, exist_ok=True)
    quiet = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    # Llama 3's scaling, as divisors.
    m = Maker("llama-rope-freqs", "llama", 11, 131, 48, 3, 4, 2, 16, 80, 128)
    m.writer.add_rope_dimension_count(16)
    m.writer.add_rope_freq_base(500.0)
    m.tensor("rope_freqs.weight", llama3_divisors(16, 500.0, 8.0, 1.0, 4.0, 32))
    m.ends(tied=True)
    for i in range(m.layers):
        m.block(i)
    m.finish()
    # Sizes that nothing divides, biases, a head of its own, linear scaling.
    m = Maker("llama-odd", "llama", 12, 97, 45, 2, 3, 1, 22, 71, 96)
    m.writer.add_rope_dimension_count(22)
    m.writer.add_rope_freq_base(10000.0)
    m.writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    m.writer.add_rope_scaling_factor(2.5)
    m.ends(tied=False)
    for i in range(m.layers):
        m.block(i, biases=True)
    m.finish()
    # Windows of 9 tokens on five layers of six, with a rope of their own.
    m = Maker("gemma3-window", "gemma3", 13, 101, 40, 7, 2, 1, 18, 36, 128)
    m.writer.add_rope_freq_base(1e6)
    m.writer.add_sliding_window(9)
    m.ends(tied=True)
    for i in range(m.layers):
        m.block(i, post_norms=True, head_norms=True)
    m.finish()


if __name__ == "__main__":
    main()
