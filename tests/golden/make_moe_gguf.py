#!/usr/bin/env python3
"""GGUF twins of some models that make_moe_models.py has made (run that first): the same F16 weights under GGUF's names, experts as one
tensor of three dimensions, kv_b split (deepseek-v3-small) or whole (deepseek-v2-small). Their logits are those of the folder. Needs numpy, gguf, safetensors.
"""
import json
import os

import gguf
import numpy as np
from safetensors.numpy import load_file

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")


class Twin:
    def __init__(self, folder, architecture, config):
        self.folder, self.arch = os.path.join(OUT, folder), architecture
        with open(os.path.join(self.folder, config)) as file:
            self.config = json.load(file)
        self.state = load_file(os.path.join(self.folder, "model.safetensors"))
        self.writer = gguf.GGUFWriter(os.path.join(self.folder, "model-f16.gguf"), architecture)
        c = self.config
        self.uint(context_length=c["max_position_embeddings"], embedding_length=c["hidden_size"], block_count=c["num_hidden_layers"],
                  feed_forward_length=c["intermediate_size"], vocab_size=c["vocab_size"], expert_used_count=c["num_experts_per_tok"])
        self.writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", c["rms_norm_eps"])
        self.writer.add_float32(f"{architecture}.rope.freq_base", c["rope_parameters"]["rope_theta"])
        self.uint(**{"attention.head_count": c["num_attention_heads"], "attention.head_count_kv": c["num_key_value_heads"]})
        self.add("token_embd.weight", "model.embed_tokens.weight")
        self.add("output_norm.weight", "model.norm.weight")
        if "lm_head.weight" in self.state:
            self.add("output.weight", "lm_head.weight")

    def uint(self, **values):
        for key, value in values.items():
            self.writer.add_uint32(f"{self.arch}.{key}", value)

    def data(self, name, data):
        data = np.ascontiguousarray(data)
        self.writer.add_tensor(name, data.astype(np.float32 if data.ndim == 1 else np.float16))

    def add(self, name, source):
        if source in self.state:
            self.data(name, self.state[source])

    def experts(self, layer, count, source, shared):
        for kind in ("gate", "up", "down"):
            self.data(f"blk.{layer}.ffn_{kind}_exps.weight",
                      np.stack([self.state[f"{source}.experts.{e}.{kind}_proj.weight"] for e in range(count)]))
            self.add(f"blk.{layer}.ffn_{kind}_shexp.weight", f"{source}.{shared}.{kind}_proj.weight")
        self.data(f"blk.{layer}.ffn_gate_inp.weight", self.state[f"{source}.gate.weight"])
        self.add(f"blk.{layer}.exp_probs_b.bias", f"{source}.gate.e_score_correction_bias")
        if f"{source}.shared_expert_gate.weight" in self.state:
            self.data(f"blk.{layer}.ffn_gate_inp_shexp.weight", self.state[f"{source}.shared_expert_gate.weight"].reshape(-1))

    def layer(self, layer, count, shared):
        source = f"model.layers.{layer}"
        self.add(f"blk.{layer}.attn_norm.weight", f"{source}.input_layernorm.weight")
        self.add(f"blk.{layer}.ffn_norm.weight", f"{source}.post_attention_layernorm.weight")
        names = {"q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "q_a_proj": "attn_q_a",
                 "q_b_proj": "attn_q_b", "q_a_layernorm": "attn_q_a_norm", "kv_a_proj_with_mqa": "attn_kv_a_mqa",
                 "kv_a_layernorm": "attn_kv_a_norm", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}
        for theirs, ours in names.items():
            for kind in ("weight", "bias"):
                self.add(f"blk.{layer}.{ours}.{kind}", f"{source}.self_attn.{theirs}.{kind}")
        if f"{source}.mlp.gate.weight" in self.state:
            self.experts(layer, count, f"{source}.mlp", shared)
        else:
            for kind in ("gate", "up", "down"):
                self.add(f"blk.{layer}.ffn_{kind}.weight", f"{source}.mlp.{kind}_proj.weight")

    def close(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def deepseek(folder, config, split, sigmoid):
    twin = Twin(folder, "deepseek2", config)
    c = twin.config
    latent, rope, nope, value, heads = (c["kv_lora_rank"], c["qk_rope_head_dim"], c["qk_nope_head_dim"], c["v_head_dim"],
                                        c["num_attention_heads"])
    twin.uint(**{"attention.kv_lora_rank": latent, "rope.dimension_count": rope, "attention.key_length_mla": nope + rope,
                 "attention.value_length_mla": value, "attention.key_length": latent + rope, "attention.value_length": latent,
                 "expert_count": c["n_routed_experts"], "expert_feed_forward_length": c["moe_intermediate_size"],
                 "expert_shared_count": c["n_shared_experts"], "expert_gating_func": 2 if sigmoid else 1,
                 "expert_group_count": c["n_group"], "expert_group_used_count": c["topk_group"],
                 "leading_dense_block_count": c["first_k_dense_replace"]})
    if c["q_lora_rank"]:
        twin.uint(**{"attention.q_lora_rank": c["q_lora_rank"]})
    twin.writer.add_bool("deepseek2.expert_weights_norm", bool(c["norm_topk_prob"]))
    twin.writer.add_float32("deepseek2.expert_weights_scale", c["routed_scaling_factor"])
    for layer in range(c["num_hidden_layers"]):
        twin.layer(layer, c["n_routed_experts"], "shared_experts")
        kv_b = twin.state[f"model.layers.{layer}.self_attn.kv_b_proj.weight"]
        if not split:
            twin.data(f"blk.{layer}.attn_kv_b.weight", kv_b)
            continue
        parts = kv_b.reshape(heads, nope + value, latent)
        twin.data(f"blk.{layer}.attn_k_b.weight", parts[:, :nope].transpose(0, 2, 1))
        twin.data(f"blk.{layer}.attn_v_b.weight", parts[:, nope:])
    twin.close()


def qwen(folder, architecture):
    twin = Twin(folder, architecture, "config.json")
    c = twin.config
    count = c.get("num_experts") or c["num_local_experts"]  # by the class's version
    twin.uint(expert_count=count, expert_feed_forward_length=c["moe_intermediate_size"])
    if architecture == "qwen2moe":
        twin.uint(expert_shared_feed_forward_length=c["shared_expert_intermediate_size"])
    if c.get("head_dim"):
        twin.uint(**{"attention.key_length": c["head_dim"], "attention.value_length": c["head_dim"]})
    for layer in range(c["num_hidden_layers"]):
        twin.layer(layer, count, "shared_expert")
    twin.close()


if __name__ == "__main__":
    deepseek("deepseek-v3-small", "config-rope.json", True, True)
    deepseek("deepseek-v2-small", "config.json", False, False)
    qwen("qwen2-moe-small", "qwen2moe")
    qwen("qwen3-moe-small", "qwen3moe")
