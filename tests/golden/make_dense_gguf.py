#!/usr/bin/env python3
"""Writes GGUF twins of models in tests/golden/models (model-f16.gguf) and adds what llama.cpp computes for them to their
expected.safetensors, as `llamacpp`, after checking that it agrees with transformers.

llama.cpp gets the same weights in F32 in a temporary file, so that little but the order of additions differs. It knows fewer
features than transformers: CASES says under which configuration the two are the same model.
Needs gguf, llama_cpp, safetensors, numpy. Usage: make_dense_gguf.py [NAME...]
"""
import ctypes
import json
import os
import sys
import tempfile

import gguf
import llama_cpp
import numpy as np
from safetensors.numpy import load_file, save_file

from make_gguf_models import logits_of
from make_models import OUT, permute

COMMON = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
          "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
          "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
          "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
AFTER = {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
         "post_feedforward_layernorm": "post_ffw_norm"}
PHI = {"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"}

# folder: architecture, names, rows of q and k permuted, what is added to norms, variant of the configuration
CASES = {
    "qwen2-small": ("qwen2", COMMON, False, 0.0, ""),
    "qwen3-small": ("qwen3", COMMON, False, 0.0, ""),
    "gemma2-small": ("gemma2", {**COMMON, **AFTER}, False, 1.0, "gguf"),
    "phi3-small": ("phi3", {**COMMON, **PHI}, False, 0.0, ""),
    "smollm3-small": ("smollm3", COMMON, True, 0.0, ""),
    "olmo2-small": ("olmo2", {**COMMON, **AFTER}, False, 0.0, ""),
    "llama-odd": ("llama", COMMON, True, 0.0, "yarn"),
}


def out_name(name, names):
    ends = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
            "lm_head.weight": "output.weight"}
    if name in ends:
        return ends[name]
    _, _, layer, rest = name.split(".", 3)
    stem, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{names[stem]}.{kind}"


def write(path, folder, case, dtype):
    architecture, names, permuted, offset, variant = case
    with open(os.path.join(folder, "config" + ("-" + variant if variant else "") + ".json")) as f:
        config = json.load(f)
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    rope = config["rope_parameters"]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_tokenizer_model("none")
    if rope["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "longrope":
        original = config["original_max_position_embeddings"]
        growth = config["max_position_embeddings"] / original
        writer.add_rope_scaling_orig_ctx_len(original)
        writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(growth) / np.log(original))))
        writer.add_tensor("rope_factors_long.weight", np.array(rope["long_factor"], np.float32))
        writer.add_tensor("rope_factors_short.weight", np.array(rope["short_factor"], np.float32))
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
        writer.add_sliding_window(config["sliding_window"])
    for name, data in load_file(os.path.join(folder, "model.safetensors")).items():
        data = data.astype(np.float32)
        if "norm" in name:
            data = data + np.float32(offset)
        if permuted and "q_proj" in name:
            data = permute(data, heads)
        if permuted and "k_proj" in name:
            data = permute(data, kv_heads)
        writer.add_tensor(out_name(name, names), data.astype(dtype) if data.ndim == 2 else data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return config["vocab_size"]


def main():
    quiet = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    for name in sys.argv[1:] or CASES:
        case, folder = CASES[name], os.path.join(OUT, name)
        path = os.path.join(folder, "expected.safetensors")
        expected = load_file(path)
        file = "model-f16.gguf" if name != "llama-odd" else "model-yarn.gguf"
        write(os.path.join(folder, file), folder, case, np.float16)
        with tempfile.TemporaryDirectory() as temporary:
            wide = os.path.join(temporary, "model.gguf")
            vocab = write(wide, folder, case, np.float32)
            logits = logits_of(wide, expected["tokens"], vocab)
        reference = expected["logits" + ("." + case[4] if case[4] else "")]
        difference = np.abs(logits - reference).max()
        print(name, "llama.cpp differs from transformers by", difference, "same top",
              (logits.argmax(1) == reference.argmax(1)).mean())
        assert difference < 2e-2
        save_file({**expected, "llamacpp": logits}, path)


if __name__ == "__main__":
    main()
