#!/usr/bin/env python3
"""Writes the seeds of the fuzz target "model" (tests/fuzz/corpus/model): models of a few kilobytes with experts and latent attention, as GGUF,
and as a configuration, a zero byte and a safetensors file. Weights are noise. Needs numpy, gguf, safetensors.
"""
import json
import os

import gguf
import numpy as np
from safetensors.numpy import save

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fuzz", "corpus", "model")
VOCAB, HIDDEN, WIDE, EXPERT, EXPERTS, HEADS, HEAD = 5, 8, 8, 4, 3, 2, 4
LATENT, NOPE, ROPE, VALUE = 4, 4, 2, 4
random = np.random.RandomState(3)


def noise(*shape):
    return random.randn(*shape).astype(np.float16 if len(shape) > 1 else np.float32)


def experts_gguf(prefix, shared):
    t = {"ffn_gate_inp": noise(EXPERTS, HIDDEN), "ffn_gate_exps": noise(EXPERTS, EXPERT, HIDDEN),
         "ffn_up_exps": noise(EXPERTS, EXPERT, HIDDEN), "ffn_down_exps": noise(EXPERTS, HIDDEN, EXPERT)}
    if shared:
        t.update({"ffn_gate_shexp": noise(EXPERT, HIDDEN), "ffn_up_shexp": noise(EXPERT, HIDDEN), "ffn_down_shexp": noise(HIDDEN, EXPERT)})
    return {f"{prefix}{k}.weight": v for k, v in t.items()}


def attention_gguf(latent):
    if not latent:
        return {"attn_q": noise(HEADS * HEAD, HIDDEN), "attn_k": noise(HEAD, HIDDEN), "attn_v": noise(HEAD, HIDDEN),
                "attn_output": noise(HIDDEN, HEADS * HEAD)}
    return {"attn_q_a": noise(6, HIDDEN), "attn_q_a_norm": noise(6), "attn_q_b": noise(HEADS * (NOPE + ROPE), 6),
            "attn_kv_a_mqa": noise(LATENT + ROPE, HIDDEN), "attn_kv_a_norm": noise(LATENT),
            "attn_k_b": noise(HEADS, LATENT, NOPE), "attn_v_b": noise(HEADS, VALUE, LATENT),
            "attn_output": noise(HIDDEN, HEADS * VALUE)}


def write_gguf(name, architecture, latent, shared, extra, second_norm="ffn_norm", more=()):
    w = gguf.GGUFWriter(os.path.join(OUT, name + ".gguf"), architecture)
    values = {"context_length": 32, "embedding_length": HIDDEN, "block_count": 1, "feed_forward_length": WIDE, "vocab_size": VOCAB,
              "attention.head_count": HEADS, "attention.head_count_kv": 1, "attention.key_length": LATENT + ROPE if latent else HEAD,
              "attention.value_length": LATENT if latent else HEAD, "expert_count": EXPERTS, "expert_used_count": 2,
              "expert_feed_forward_length": EXPERT, **extra}
    for key, value in values.items():
        (w.add_float32 if isinstance(value, float) else w.add_uint32)(f"{architecture}.{key}", value)
    w.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    tensors = {"token_embd.weight": noise(VOCAB, HIDDEN), "output_norm.weight": noise(HIDDEN), "blk.0.attn_norm.weight": noise(HIDDEN),
               f"blk.0.{second_norm}.weight": noise(HIDDEN), **experts_gguf("blk.0.", shared),
               **{f"blk.0.{k}.weight": v for k, v in attention_gguf(latent).items()}}
    for key, size in more:
        tensors["blk.0." + key] = noise(size)
    for key, data in tensors.items():
        w.add_tensor(key, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_safetensors(name, config, latent, shared, gate):
    m = "model.layers.0."
    t = {"model.embed_tokens.weight": noise(VOCAB, HIDDEN), "model.norm.weight": noise(HIDDEN), m + "input_layernorm.weight": noise(HIDDEN),
         m + "post_attention_layernorm.weight": noise(HIDDEN), m + "mlp.gate.weight": noise(EXPERTS, HIDDEN)}
    a = m + "self_attn."
    if latent:
        t.update({a + "q_proj.weight": noise(HEADS * (NOPE + ROPE), HIDDEN), a + "kv_a_proj_with_mqa.weight": noise(LATENT + ROPE, HIDDEN),
                  a + "kv_a_layernorm.weight": noise(LATENT), a + "kv_b_proj.weight": noise(HEADS * (NOPE + VALUE), LATENT),
                  a + "o_proj.weight": noise(HIDDEN, HEADS * VALUE), m + "mlp.gate.e_score_correction_bias": noise(EXPERTS)})
    else:
        for k, rows in (("q", HEADS * HEAD), ("k", HEAD), ("v", HEAD)):
            t[f"{a}{k}_proj.weight"], t[f"{a}{k}_proj.bias"] = noise(rows, HIDDEN), noise(rows)
        t[a + "o_proj.weight"] = noise(HIDDEN, HEADS * HEAD)
    for stem in [f"mlp.experts.{e}." for e in range(EXPERTS)] + [f"mlp.{shared}."]:
        t.update({m + stem + "gate_proj.weight": noise(EXPERT, HIDDEN), m + stem + "up_proj.weight": noise(EXPERT, HIDDEN),
                  m + stem + "down_proj.weight": noise(HIDDEN, EXPERT)})
    if gate:
        t[m + "mlp.shared_expert_gate.weight"] = noise(1, HIDDEN)
    common = {"hidden_size": HIDDEN, "intermediate_size": WIDE, "num_hidden_layers": 1, "num_attention_heads": HEADS, "vocab_size": VOCAB,
              "moe_intermediate_size": EXPERT, "num_experts_per_tok": 2, "max_position_embeddings": 32, "tie_word_embeddings": True}
    with open(os.path.join(OUT, name + ".safetensors"), "wb") as file:
        file.write(json.dumps({**config, **common}).encode() + b"\0" + save(t))


def main():
    os.makedirs(OUT, exist_ok=True)
    write_gguf("mixtral", "llama", False, False, {})
    write_gguf("glm4moe", "glm4moe", False, True, {"expert_shared_count": 1, "expert_gating_func": 2, "expert_weights_scale": 1.5},
               "post_attention_norm", [("exp_probs_b.bias", EXPERTS), ("attn_q.bias", HEADS * HEAD)])
    write_gguf("qwen2moe", "qwen2moe", False, True, {"expert_shared_feed_forward_length": EXPERT},
               more=[("ffn_gate_inp_shexp.weight", HIDDEN)])
    write_gguf("deepseek2", "deepseek2", True, True,
               {"attention.kv_lora_rank": LATENT, "attention.q_lora_rank": 6, "rope.dimension_count": ROPE, "attention.key_length_mla": NOPE + ROPE,
                "attention.value_length_mla": VALUE, "expert_shared_count": 1, "expert_gating_func": 2, "expert_group_count": 3,
                "expert_group_used_count": 2, "rope.freq_base": 100.0})
    write_safetensors("deepseek-v3", {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": LATENT, "qk_nope_head_dim": NOPE,
                                      "qk_rope_head_dim": ROPE, "v_head_dim": VALUE, "n_routed_experts": EXPERTS, "n_shared_experts": 1,
                                      "n_group": 3, "topk_group": 2,
                                      "rope_scaling": {"type": "yarn", "factor": 4, "mscale": 1, "mscale_all_dim": 1,
                                                       "original_max_position_embeddings": 8}}, True, "shared_experts", False)
    write_safetensors("qwen2-moe", {"architectures": ["Qwen2MoeForCausalLM"], "num_key_value_heads": 1, "num_experts": EXPERTS,
                                    "shared_expert_intermediate_size": EXPERT}, False, "shared_expert", True)


if __name__ == "__main__":
    main()
