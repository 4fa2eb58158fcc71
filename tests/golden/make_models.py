#!/usr/bin/env python3
"""Makes the small random models of tests/golden/models and records what transformers computes for them in F32.

Each model is a folder (config.json, model.safetensors, expected.safetensors with tokens and logits, and further
config-NAME.json whose logits are logits.NAME), some also as GGUF. Needs torch, transformers, safetensors, gguf, numpy.
Usage: make_models.py [tiny-llama folder]   (the folder's logits go to tests/golden/tiny-llama.safetensors)
"""
import json
import os
import sys

import gguf
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Gemma3ForCausalLM, Gemma3TextConfig
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(HERE, "models")
TOKENS = 45


def tokens_for(vocab, seed=7):
    return torch.from_numpy(np.random.RandomState(seed).randint(0, vocab, size=(1, TOKENS)))


def randomize(model, seed):
    """Weights that make attention peaked and logits wide, so that mistakes show."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if "norm" in name:
                p.copy_((0.0 if "gemma" in type(model).__name__.lower() else 1.0) + 0.2 * noise)
            elif p.dim() == 1:
                p.copy_(0.3 * noise)
            elif "embed" in name:
                p.copy_(noise * 0.6)
            elif "lm_head" in name:
                p.copy_(noise * 0.4)
            else:
                p.copy_(noise * 1.4 / p.shape[1] ** 0.5)
            p.copy_(p.half().float())  # exact in F16, whatever the file's type


@torch.no_grad()
def logits_of(model, ids):
    model.eval()
    whole = model(ids, use_cache=False).logits[0].float()
    # The same with a cache, token by token at the end, as generation does it.
    out = model(ids[:, :30], use_cache=True)
    rows, past = [out.logits[0]], out.past_key_values
    for t in range(30, ids.shape[1]):
        out = model(ids[:, t:t + 1], past_key_values=past, use_cache=True)
        past = out.past_key_values
        rows.append(out.logits[0])
    assert (torch.cat(rows) - whole).abs().max() < 1e-3
    assert whole.std() >= 1.0, whole.std()
    return whole.contiguous()


def save_config(config, folder, name, architecture, old_style):
    data = config.to_dict()
    data["architectures"] = [architecture]
    data.pop("transformers_version", None)
    if old_style and "rope_parameters" in data:
        rope = dict(data.pop("rope_parameters"))
        data["rope_theta"] = rope.pop("rope_theta")
        data["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    with open(os.path.join(folder, name), "w") as f:
        json.dump(data, f, indent=1, sort_keys=True)
        f.write("\n")


def make(name, cls, config_cls, base, variants, seed, dtype, old_style=False):
    folder = os.path.join(OUT, name)
    os.makedirs(folder, exist_ok=True)
    config = config_cls(**base)
    config.dtype = "float32"
    model = cls(config).float()
    randomize(model, seed)
    ids = tokens_for(config.vocab_size)
    expected = {"tokens": ids[0].to(torch.int32), "logits": logits_of(model, ids)}
    state = model.state_dict()
    if config.tie_word_embeddings:
        state = {k: v for k, v in state.items() if k != "lm_head.weight"}
    save_file({k: v.to(dtype).contiguous() for k, v in state.items()}, os.path.join(folder, "model.safetensors"))
    save_config(config, folder, "config.json", cls.__name__, old_style)
    for variant, change in variants.items():
        other_config = config_cls(**{**base, **change})
        other_config.dtype = "float32"
        other = cls(other_config).float()
        other.load_state_dict(model.state_dict())
        expected["logits." + variant] = logits_of(other, ids)
        save_config(other_config, folder, f"config-{variant}.json", cls.__name__, old_style)
    save_file(expected, os.path.join(folder, "expected.safetensors"))
    print(name, sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)), "bytes, logits' std",
          float(expected["logits"].std()))
    return model, config


def permute(weight, heads):
    """Rows as GGUF's llama architecture has them: rotated pairs are neighbours."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def unpermute(weight, heads):
    return weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def llama_gguf(model, config, path, types=None):
    """`types`: part of a name -> block type; with it the model's weights become what the blocks hold."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    # What llama.cpp's converter makes of llama3 scaling: divisors of the frequencies.
    rope = config.rope_parameters
    inverse = 1.0 / rope["rope_theta"] ** (np.arange(0, config.head_dim, 2) / config.head_dim)
    scaled = model.model.rotary_emb.inv_freq.numpy()
    if rope["rope_type"] != "default":
        writer.add_tensor("rope_freqs.weight", (inverse / scaled).astype(np.float32))
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    for name, tensor in model.state_dict().items():
        data = tensor.numpy()
        if name == "model.embed_tokens.weight":
            out = "token_embd.weight"
        elif name == "model.norm.weight":
            out = "output_norm.weight"
        elif name == "lm_head.weight":
            if config.tie_word_embeddings:
                continue
            out = "output.weight"
        else:
            _, _, layer, rest = name.split(".", 3)
            stem, kind = rest.rsplit(".", 1)
            out = f"blk.{layer}.{names[stem]}.{kind}"
            if "q_proj" in name:
                data = permute(data, config.num_attention_heads)
            if "k_proj" in name:
                data = permute(data, config.num_key_value_heads)
        block = next((t for part, t in (types or {}).items() if part in out), None)
        if block is None or data.ndim != 2:
            writer.add_tensor(out, data.astype(np.float16 if data.ndim == 2 else np.float32))
            continue
        packed = gguf.quants.quantize(data, block)
        writer.add_tensor(out, packed, raw_dtype=block)
        decoded = gguf.quants.dequantize(packed, block)
        if "attn_q" in out:
            decoded = unpermute(decoded, config.num_attention_heads)
        if "attn_k" in out:
            decoded = unpermute(decoded, config.num_key_value_heads)
        with torch.no_grad():
            model.state_dict()[name].copy_(torch.from_numpy(np.ascontiguousarray(decoded)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    torch.manual_seed(0)
    llama3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 4.0, "low_freq_factor": 1.0,
              "high_freq_factor": 4.0, "original_max_position_embeddings": 24}
    base = dict(vocab_size=131, hidden_size=40, intermediate_size=72, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=2, head_dim=18, max_position_embeddings=96, attention_bias=True, mlp_bias=True,
                tie_word_embeddings=False, rms_norm_eps=1e-5, rope_parameters=llama3)
    variants = {
        "default": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}},
        "dynamic": {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 500.0, "factor": 3.0}},
        "yarn": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0,
                                     "original_max_position_embeddings": 24}},
    }
    model, config = make("llama-odd", LlamaForCausalLM, LlamaConfig, base, variants, 1, torch.float16)
    llama_gguf(model, config, os.path.join(OUT, "llama-odd", "model-f16.gguf"))
    base = dict(vocab_size=101, hidden_size=36, intermediate_size=52, num_hidden_layers=2, num_attention_heads=3,
                num_key_value_heads=1, head_dim=22, max_position_embeddings=128, sliding_window=17,
                tie_word_embeddings=True, rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    make("mistral-window", MistralForCausalLM, MistralConfig, base, {"full": {"sliding_window": None}}, 2, torch.float32,
         old_style=True)
    base = dict(vocab_size=113, hidden_size=44, intermediate_size=60, num_hidden_layers=4, num_attention_heads=4,
                num_key_value_heads=2, head_dim=20, max_position_embeddings=128, sliding_window=9,
                query_pre_attn_scalar=14, rms_norm_eps=1e-6, tie_word_embeddings=True,
                layer_types=["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
                rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                 "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
    make("gemma3-small", Gemma3ForCausalLM, Gemma3TextConfig, base, {}, 3, torch.float16)
    # Quantized weights of every simple block type, several blocks a row.
    config = LlamaConfig(vocab_size=131, hidden_size=96, intermediate_size=160, num_hidden_layers=2,
                         num_attention_heads=3, num_key_value_heads=1, head_dim=32, max_position_embeddings=128,
                         tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})
    model = LlamaForCausalLM(config).float()
    randomize(model, 4)
    folder = os.path.join(OUT, "llama-blocks")
    os.makedirs(folder, exist_ok=True)
    types = gguf.GGMLQuantizationType
    llama_gguf(model, config, os.path.join(folder, "model-blocks.gguf"),
               {"token_embd": types.Q8_0, "attn_q": types.Q4_1, "attn_k": types.Q5_0, "attn_v": types.Q5_1,
                "attn_output": types.Q4_0, "ffn_gate": types.Q4_1, "ffn_up": types.Q4_0, "ffn_down": types.Q5_1})
    ids = tokens_for(config.vocab_size)
    save_file({"tokens": ids[0].to(torch.int32), "logits": logits_of(model, ids)},
              os.path.join(folder, "expected.safetensors"))
    if len(sys.argv) > 1:
        model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32)
        ids = tokens_for(model.config.vocab_size)
        logits = logits_of(model, ids)
        rows = [0, 15, 16, 31, 44]
        save_file({"tokens": ids[0].to(torch.int32), "rows": torch.tensor(rows, dtype=torch.int32),
                   "logits": logits[rows].contiguous()}, os.path.join(HERE, "tiny-llama.safetensors"))


if __name__ == "__main__":
    main()
