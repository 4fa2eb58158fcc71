#!/usr/bin/env python3
"""GGUF twins of models that make_moe_models.py has made (run that first): the same weights in F16 under GGUF's names (model-f16.gguf), and what
llama.cpp computes for them, added to their expected.safetensors as `llamacpp` after checking that it agrees with transformers.

llama.cpp gets the same weights in F32 in a temporary file, so that little but the order of additions differs. It cannot run all of them:
DeepSeek-V2's group scores are others there, Qwen2-MoE may have no dense layers, and experts in tensors of their own (model-old.gguf) are
no longer read. Those have transformers' logits only; make_moe_gguf_models.py has models for llama.cpp in their place.
Needs gguf, llama_cpp, safetensors, numpy.
"""
import ctypes
import json
import os
import tempfile

import gguf
import llama_cpp
import numpy as np
from safetensors.numpy import load_file, save_file

from make_gguf_models import logits_of
from make_models import OUT, permute

ATTENTION = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "q_a_proj": "attn_q_a",
             "q_b_proj": "attn_q_b", "q_a_layernorm": "attn_q_a_norm", "kv_a_proj_with_mqa": "attn_kv_a_mqa",
             "kv_a_layernorm": "attn_kv_a_norm", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}
MIXTRAL = {"gate": "w1", "up": "w3", "down": "w2"}


class Twin:
    def __init__(self, path, dtype, folder, architecture, variant="", permuted=False, second_norm="ffn_norm"):
        self.arch, self.dtype, self.permuted, self.second_norm = architecture, dtype, permuted, second_norm
        folder = os.path.join(OUT, folder)
        with open(os.path.join(folder, "config" + ("-" + variant if variant else "") + ".json")) as file:
            self.config = c = json.load(file)
        self.state = load_file(os.path.join(folder, "model.safetensors"))
        self.writer = gguf.GGUFWriter(path, architecture)
        self.writer.add_tokenizer_model("none")
        self.uint(context_length=c["max_position_embeddings"], embedding_length=c["hidden_size"], block_count=c["num_hidden_layers"],
                  feed_forward_length=c["intermediate_size"], vocab_size=c["vocab_size"], expert_used_count=c["num_experts_per_tok"])
        self.float(**{"attention.layer_norm_rms_epsilon": c["rms_norm_eps"], "rope.freq_base": c["rope_parameters"]["rope_theta"]})
        self.add("token_embd.weight", "model.embed_tokens.weight")
        self.add("output_norm.weight", "model.norm.weight")
        if "lm_head.weight" in self.state:
            self.add("output.weight", "lm_head.weight")

    def uint(self, **values):
        for key, value in values.items():
            self.writer.add_uint32(f"{self.arch}.{key}", value)

    def float(self, **values):
        for key, value in values.items():
            self.writer.add_float32(f"{self.arch}.{key}", value)

    def heads(self, kv_heads, key, value):
        self.uint(**{"attention.head_count": self.config["num_attention_heads"], "attention.head_count_kv": kv_heads,
                     "attention.key_length": key, "attention.value_length": value})

    def routing(self, count, scale=None, sigmoid=None):
        c = self.config
        self.uint(expert_count=count)
        if "moe_intermediate_size" in c:
            self.uint(expert_feed_forward_length=c["moe_intermediate_size"])
        if sigmoid is None:
            return
        self.uint(expert_shared_count=c["n_shared_experts"], expert_gating_func=2 if sigmoid else 1, expert_group_count=c["n_group"],
                  expert_group_used_count=c["topk_group"], leading_dense_block_count=c["first_k_dense_replace"])
        self.writer.add_bool(f"{self.arch}.expert_weights_norm", bool(c["norm_topk_prob"]))
        self.float(expert_weights_scale=scale)

    def data(self, name, data):
        """As converters do it: vectors, routers and their biases stay in F32."""
        data = np.ascontiguousarray(data)
        wide = data.ndim == 1 or "ffn_gate_inp" in name
        self.writer.add_tensor(name, data.astype(np.float32 if wide else self.dtype))

    def add(self, name, source):
        if source not in self.state:
            return
        data = self.state[source]
        if self.permuted and "q_proj" in source:
            data = permute(data, self.config["num_attention_heads"])
        if self.permuted and "k_proj" in source:
            data = permute(data, self.config["num_key_value_heads"])
        self.data(name, data)

    def experts(self, layer, count, source, shared, names, each):
        for kind in ("gate", "up", "down"):
            stem = names[kind] if names else kind + "_proj"
            experts = [self.state[f"{source}.experts.{e}.{stem}.weight"] for e in range(count)]
            if each:
                for e, data in enumerate(experts):
                    self.data(f"blk.{layer}.ffn_{kind}.{e}.weight", data)
            else:
                self.data(f"blk.{layer}.ffn_{kind}_exps.weight", np.stack(experts))
            self.add(f"blk.{layer}.ffn_{kind}_shexp.weight", f"{source}.{shared}.{kind}_proj.weight")
        self.data(f"blk.{layer}.ffn_gate_inp.weight", self.state[f"{source}.gate.weight"])
        self.add(f"blk.{layer}.exp_probs_b.bias", f"{source}.gate.e_score_correction_bias")
        if f"{source}.shared_expert_gate.weight" in self.state:
            self.data(f"blk.{layer}.ffn_gate_inp_shexp.weight", self.state[f"{source}.shared_expert_gate.weight"].reshape(-1))

    def layers(self, count, shared="shared_experts", mlp="mlp", names=None, each=False):
        for layer in range(self.config["num_hidden_layers"]):
            source = f"model.layers.{layer}"
            self.add(f"blk.{layer}.attn_norm.weight", f"{source}.input_layernorm.weight")
            self.add(f"blk.{layer}.{self.second_norm}.weight", f"{source}.post_attention_layernorm.weight")
            for theirs, ours in ATTENTION.items():
                for kind in ("weight", "bias"):
                    self.add(f"blk.{layer}.{ours}.{kind}", f"{source}.self_attn.{theirs}.{kind}")
            if f"{source}.{mlp}.gate.weight" in self.state:
                self.experts(layer, count, f"{source}.{mlp}", shared, names, each)
            else:
                for kind in ("gate", "up", "down"):
                    self.add(f"blk.{layer}.ffn_{kind}.weight", f"{source}.mlp.{kind}_proj.weight")

    def close(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        return self.config["vocab_size"]


def deepseek(path, dtype, folder, variant, split, sigmoid):
    twin = Twin(path, dtype, folder, "deepseek2", variant)
    c, rope = twin.config, twin.config["rope_parameters"]
    latent, rotated, nope, value, heads = (c["kv_lora_rank"], c["qk_rope_head_dim"], c["qk_nope_head_dim"], c["v_head_dim"],
                                           c["num_attention_heads"])
    twin.uint(**{"attention.kv_lora_rank": latent, "rope.dimension_count": rotated})
    if split:
        twin.heads(1, latent + rotated, latent)
        twin.uint(**{"attention.key_length_mla": nope + rotated, "attention.value_length_mla": value})
    else:
        twin.heads(heads, nope + rotated, value)
    if c["q_lora_rank"]:
        twin.uint(**{"attention.q_lora_rank": c["q_lora_rank"]})
    if rope["rope_type"] == "yarn":
        twin.writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        twin.writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        twin.float(**{"rope.scaling.factor": rope["factor"], "rope.scaling.yarn_log_multiplier": 0.1 * rope["mscale_all_dim"]})
    twin.routing(c["n_routed_experts"], c["routed_scaling_factor"], sigmoid)
    twin.layers(c["n_routed_experts"])
    for layer in range(c["num_hidden_layers"]):
        kv_b = twin.state[f"model.layers.{layer}.self_attn.kv_b_proj.weight"]
        if not split:
            twin.data(f"blk.{layer}.attn_kv_b.weight", kv_b)
            continue
        parts = kv_b.reshape(heads, nope + value, latent)
        twin.data(f"blk.{layer}.attn_k_b.weight", parts[:, :nope].transpose(0, 2, 1))
        twin.data(f"blk.{layer}.attn_v_b.weight", parts[:, nope:])
    return twin.close()


def qwen(path, dtype, folder, architecture):
    twin = Twin(path, dtype, folder, architecture)
    c = twin.config
    count = c.get("num_experts") or c["num_local_experts"]  # by the class's version
    twin.routing(count)
    if architecture == "qwen2moe":
        twin.uint(expert_shared_feed_forward_length=c["shared_expert_intermediate_size"])
    head_dim = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    twin.heads(c["num_key_value_heads"], head_dim, head_dim)
    twin.layers(count, "shared_expert")
    return twin.close()


def mixtral(path, dtype, folder, each):
    twin = Twin(path, dtype, folder, "llama", permuted=True)
    c = twin.config
    twin.heads(c["num_key_value_heads"], c["head_dim"], c["head_dim"])
    twin.uint(**{"rope.dimension_count": c["head_dim"]})
    twin.routing(c["num_local_experts"])
    twin.layers(c["num_local_experts"], mlp="block_sparse_moe", names=MIXTRAL, each=each)
    return twin.close()


def glm(path, dtype, folder):
    twin = Twin(path, dtype, folder, "glm4moe", second_norm="post_attention_norm")
    c = twin.config
    twin.heads(c["num_key_value_heads"], c["head_dim"], c["head_dim"])
    twin.uint(**{"rope.dimension_count": int(c["head_dim"] * c["rope_parameters"]["partial_rotary_factor"])})
    twin.routing(c["n_routed_experts"], c["routed_scaling_factor"], True)
    twin.layers(c["n_routed_experts"])
    return twin.close()


# folder, file, function and its further arguments, name of the reference logits, whether llama.cpp runs it
CASES = [
    ("deepseek-v3-small", "model-f16.gguf", deepseek, ("gguf", True, True), "logits.gguf", True),
    ("deepseek-v2-small", "model-f16.gguf", deepseek, ("", False, False), "logits", False),
    ("qwen2-moe-small", "model-f16.gguf", qwen, ("qwen2moe",), "logits", False),
    ("qwen3-moe-small", "model-f16.gguf", qwen, ("qwen3moe",), "logits", True),
    ("mixtral-small", "model-f16.gguf", mixtral, (False,), "logits", True),
    ("mixtral-small", "model-old.gguf", mixtral, (True,), "logits", False),
    ("glm4-moe-small", "model-f16.gguf", glm, (), "logits", True),
]


def main():
    quiet = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    for name, file, function, arguments, logits_name, runs in CASES:
        folder = os.path.join(OUT, name)
        function(os.path.join(folder, file), np.float16, name, *arguments)
        if not runs:
            continue
        path = os.path.join(folder, "expected.safetensors")
        expected = load_file(path)
        with tempfile.TemporaryDirectory() as temporary:
            wide = os.path.join(temporary, "model.gguf")
            vocab = function(wide, np.float32, name, *arguments)
            logits = logits_of(wide, expected["tokens"], vocab)
        reference = expected[logits_name]
        difference = np.abs(logits - reference).max()
        print(name, "llama.cpp differs from transformers by", difference, "same top",
              (logits.argmax(1) == reference.argmax(1)).mean())
        assert difference < 5e-3
        save_file({**expected, "llamacpp": logits}, path)


if __name__ == "__main__":
    main()
