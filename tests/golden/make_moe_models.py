#!/usr/bin/env python3
"""Makes the small random models with experts and latent attention in tests/golden/models, with transformers' own classes, and
records what transformers computes for them in F32. Layout of the folders: make_models.py. Needs torch, transformers, safetensors.
Usage: make_moe_models.py [tiny-deepseek folder]   (the folder's logits go to tests/golden/tiny-deepseek.safetensors)
"""
import os
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM
from transformers import Glm4MoeConfig, Glm4MoeForCausalLM, MixtralConfig, MixtralForCausalLM
from transformers import Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from make_models import HERE, OUT, logits_of, save_config, tokens_for


def randomize(model, seed):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in list(model.named_parameters()) + list(model.named_buffers()):
            if "inv_freq" in name:
                continue
            noise = torch.randn(p.shape, generator=generator)
            if "norm" in name:
                p.copy_(1.0 + 0.2 * noise)
            elif "correction_bias" in name:
                p.copy_(0.2 * noise)
            elif p.dim() == 1:
                p.copy_(0.3 * noise)
            elif "embed" in name:
                p.copy_(noise * 0.6)
            elif "lm_head" in name:
                p.copy_(noise * 0.4)
            else:
                p.copy_(noise * 1.4 / p.shape[-1] ** 0.5)
            p.copy_(p.half().float())  # exact in F16


def saved_state(model):
    """Tensors under the names that checkpoints use."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(os.path.join(folder, "model.safetensors"))


def make(name, cls, config_cls, base, variants, seed):
    folder = os.path.join(OUT, name)
    os.makedirs(folder, exist_ok=True)
    config = config_cls(**base)
    config.dtype = "float32"
    config._attn_implementation = "eager"
    model = cls(config).float()
    randomize(model, seed)
    ids = tokens_for(config.vocab_size)
    expected = {"tokens": ids[0].to(torch.int32), "logits": logits_of(model, ids)}
    state = saved_state(model)
    save_file({k: (v if "correction_bias" in k else v.half()).contiguous() for k, v in state.items()},
              os.path.join(folder, "model.safetensors"))
    save_config(config, folder, "config.json", cls.__name__, False)
    for variant, change in variants.items():
        other_config = config_cls(**{**base, **change})
        other_config.dtype = "float32"
        other_config._attn_implementation = "eager"
        other = cls(other_config).float()
        other.load_state_dict(model.state_dict())
        expected["logits." + variant] = logits_of(other, ids)
        # Every variant changes a feature, so ignoring it must show.
        change = float((expected["logits." + variant] - expected["logits"]).abs().max())
        print(name, variant, "changes logits by", change)
        assert change > 0.05, variant
        save_config(other_config, folder, f"config-{variant}.json", cls.__name__, False)
    save_file(expected, os.path.join(folder, "expected.safetensors"))
    print(name, sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)), "bytes, logits' std",
          float(expected["logits"].std()))


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    yarn = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 24,
            "mscale": 1.0, "mscale_all_dim": 0.8, "beta_fast": 32, "beta_slow": 1}
    plain = {"rope_type": "default", "rope_theta": 500.0}
    base = dict(vocab_size=87, hidden_size=44, intermediate_size=52, moe_intermediate_size=20, num_hidden_layers=3,
                num_attention_heads=3, num_key_value_heads=3, n_shared_experts=2, n_routed_experts=8, routed_scaling_factor=1.7,
                kv_lora_rank=24, q_lora_rank=20, qk_rope_head_dim=8, v_head_dim=10, qk_nope_head_dim=12, n_group=4, topk_group=2,
                num_experts_per_tok=3, first_k_dense_replace=1, norm_topk_prob=True, max_position_embeddings=96,
                rms_norm_eps=1e-6, rope_parameters=yarn, num_nextn_predict_layers=0)
    make("deepseek-v3-small", DeepseekV3ForCausalLM, DeepseekV3Config, base,
         {"rope": {"rope_parameters": plain}, "halves": {"rope_interleave": False}, "one-group": {"n_group": 1, "topk_group": 1},
          "sums": {"norm_topk_prob": False},
          "mscale": {"rope_parameters": {**yarn, "mscale_all_dim": 0.3}},
          # As a GGUF file can say it: both factors alike.
          "gguf": {"rope_parameters": {**yarn, "mscale": 0.8}}}, 11)
    base = dict(vocab_size=97, hidden_size=40, intermediate_size=56, moe_intermediate_size=24, num_hidden_layers=3,
                num_attention_heads=4, num_key_value_heads=4, n_shared_experts=1, n_routed_experts=6, routed_scaling_factor=1.5,
                kv_lora_rank=32, q_lora_rank=None, qk_rope_head_dim=6, v_head_dim=16, qk_nope_head_dim=18, n_group=3, topk_group=1,
                topk_method="group_limited_greedy", num_experts_per_tok=2, first_k_dense_replace=1, norm_topk_prob=False,
                max_position_embeddings=96, rms_norm_eps=1e-6, rope_parameters=plain, attention_bias=False)
    make("deepseek-v2-small", DeepseekV2ForCausalLM, DeepseekV2Config, base,
         {"greedy": {"topk_method": "greedy"}, "two-groups": {"topk_group": 2}}, 12)
    base = dict(vocab_size=101, hidden_size=36, intermediate_size=28, num_hidden_layers=2, num_attention_heads=3,
                num_key_value_heads=1, head_dim=14, num_local_experts=5, num_experts_per_tok=2, max_position_embeddings=96,
                sliding_window=None, rms_norm_eps=1e-5, rope_parameters=plain, tie_word_embeddings=False)
    make("mixtral-small", MixtralForCausalLM, MixtralConfig, base,
         {"window": {"sliding_window": 13}, "three": {"num_experts_per_tok": 3}}, 13)
    base = dict(vocab_size=107, hidden_size=40, intermediate_size=60, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=2, decoder_sparse_step=1, moe_intermediate_size=20, shared_expert_intermediate_size=44,
                num_experts_per_tok=3, num_experts=7, norm_topk_prob=False, mlp_only_layers=[1], max_position_embeddings=96,
                rms_norm_eps=1e-6, rope_parameters=plain, tie_word_embeddings=False, use_sliding_window=False)
    make("qwen2-moe-small", Qwen2MoeForCausalLM, Qwen2MoeConfig, base,
         {"norm": {"norm_topk_prob": True}, "two": {"num_experts_per_tok": 2}}, 14)
    base = dict(vocab_size=107, hidden_size=36, intermediate_size=60, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, head_dim=14, decoder_sparse_step=1, moe_intermediate_size=20, num_experts_per_tok=3,
                num_experts=8, norm_topk_prob=True, mlp_only_layers=[], max_position_embeddings=96, rms_norm_eps=1e-6,
                rope_parameters=plain, tie_word_embeddings=True, use_sliding_window=False)
    make("qwen3-moe-small", Qwen3MoeForCausalLM, Qwen3MoeConfig, base,
         {"raw": {"norm_topk_prob": False}, "two": {"num_experts_per_tok": 2}}, 15)
    base = dict(vocab_size=109, hidden_size=40, intermediate_size=56, moe_intermediate_size=20, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, head_dim=16, n_shared_experts=1, n_routed_experts=8,
                routed_scaling_factor=1.3, n_group=2, topk_group=1, num_experts_per_tok=3, first_k_dense_replace=1,
                norm_topk_prob=True, max_position_embeddings=96, rms_norm_eps=1e-5, attention_bias=True, use_qk_norm=True,
                tie_word_embeddings=False, rope_parameters={**plain, "partial_rotary_factor": 0.5})
    make("glm4-moe-small", Glm4MoeForCausalLM, Glm4MoeConfig, base,
         {"one-group": {"n_group": 1, "topk_group": 1},
          "whole": {"rope_parameters": {**plain, "partial_rotary_factor": 1.0}}}, 16)
    base = dict(vocab_size=67, hidden_size=28, intermediate_size=36, moe_intermediate_size=12, num_hidden_layers=2,
                num_attention_heads=2, num_key_value_heads=2, n_shared_experts=1, n_routed_experts=5, routed_scaling_factor=2.2,
                kv_lora_rank=20, q_lora_rank=12, qk_rope_head_dim=6, v_head_dim=12, qk_nope_head_dim=10, n_group=1, topk_group=1,
                num_experts_per_tok=2, first_k_dense_replace=0, norm_topk_prob=True, max_position_embeddings=96, attention_bias=True,
                rms_norm_eps=1e-6, rope_parameters=plain, num_nextn_predict_layers=0, tie_word_embeddings=True)
    make("deepseek-v3-biases", DeepseekV3ForCausalLM, DeepseekV3Config, base, {}, 17)
    if len(sys.argv) > 1:
        model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
        ids = tokens_for(model.config.vocab_size)
        logits = logits_of(model, ids)
        rows = [0, 15, 16, 31, 44]
        save_file({"tokens": ids[0].to(torch.int32), "rows": torch.tensor(rows, dtype=torch.int32),
                   "logits": logits[rows].contiguous()}, os.path.join(HERE, "tiny-deepseek.safetensors"))


if __name__ == "__main__":
    main()
