#!/usr/bin/env python3
"""Makes the small random gpt-oss models in tests/golden/models with transformers' own class, and records what it computes for them in F32:
gpt-oss-small in F16 with odd sizes, gpt-oss-mxfp4 with experts in MXFP4 blocks (logits: of the values they hold). Both get a GGUF twin;
llama.cpp computes the same weights in F32 (and the same blocks), and its logits are recorded as `llamacpp`. It always rounds YaRN's range
to whole dimensions, so the twin of gpt-oss-small is that of its variant "truncate".
Layout of the folders: make_models.py. Needs torch, transformers, safetensors, numpy, gguf, llama_cpp.
"""
import ctypes
import json
import os
import tempfile

import gguf
import llama_cpp
import numpy as np
import torch
from safetensors.torch import save, save_file
from transformers import GptOssConfig, GptOssForCausalLM
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

from make_gguf_models import logits_of as llamacpp_logits
from make_models import HERE, OUT, logits_of, save_config, tokens_for
from make_moe_models import randomize, saved_state

LEVELS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def widen(model, seed):
    """Gates wide enough for the limits to matter, biases and sinks that show."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            if name.endswith("gate_up_proj"):
                p.copy_(noise * 4.0 / p.shape[-2] ** 0.5)
            elif name.endswith("down_proj"):
                p.copy_(noise * 0.15 / p.shape[-2] ** 0.5)
            elif name.endswith("gate_up_proj_bias"):
                p.copy_(noise)
            elif name.endswith("down_proj_bias"):
                p.copy_(noise * 0.5)
            elif name.endswith("sinks"):
                p.copy_(noise + 1.0)
            p.copy_(p.half().bfloat16().float())  # exact in both


def build(config):
    config.dtype = "float32"
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return GptOssForCausalLM(config).float()


def record(folder, model, base, variants, ids):
    expected = {"tokens": ids[0].to(torch.int32), "logits": logits_of(model, ids)}
    save_config(model.config, folder, "config.json", "GptOssForCausalLM", True)
    for variant, change in variants.items():
        other = build(GptOssConfig(**{**base, **change}))
        other.load_state_dict(model.state_dict())
        expected["logits." + variant] = logits_of(other, ids)
        change = float((expected["logits." + variant] - expected["logits"]).abs().max())
        print(folder, variant, "changes logits by", change)
        assert change > 0.05, variant
        save_config(other.config, folder, f"config-{variant}.json", "GptOssForCausalLM", True)
    return expected


def to_blocks(weight):
    """[..., 32 n] -> codes [..., n, 16] (low nibble first), exponents [..., n], and what they hold."""
    x = weight.reshape(*weight.shape[:-1], -1, 32)
    top = np.abs(x).max(-1)
    exponent = np.where(top > 0, np.floor(np.log2(np.maximum(top, 1e-30))) - 2, 0)
    scaled = x / 2.0 ** exponent[..., None]
    codes = np.abs(np.abs(scaled)[..., None] - LEVELS).argmin(-1).astype(np.uint8)
    held = np.sign(scaled) * LEVELS[codes] * 2.0 ** exponent[..., None]
    codes = codes | np.where(scaled < 0, 8, 0).astype(np.uint8)
    packed = codes[..., 0::2] | codes[..., 1::2] << 4
    return packed, (exponent + 127).astype(np.uint8), held.reshape(weight.shape).astype(np.float32)


def ggml_blocks(packed, exponents):
    """The same as GGUF has them: exponent, then element j beside j + 16."""
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(*packed.shape[:-1], 32)
    halves = codes[..., :16] | codes[..., 16:] << 4
    blocks = np.concatenate([exponents[..., None], halves], -1).astype(np.uint8)
    return np.ascontiguousarray(blocks.reshape(*blocks.shape[:-2], -1))


def write_gguf(path, model, dtype, experts):
    """`experts`: name of a tensor -> its blocks as GGUF has them, where they are quantized."""
    c = model.config
    rope = c.rope_parameters
    writer = gguf.GGUFWriter(path, "gpt-oss")
    writer.add_context_length(c.max_position_embeddings)
    writer.add_embedding_length(c.hidden_size)
    writer.add_block_count(c.num_hidden_layers)
    writer.add_feed_forward_length(c.intermediate_size)
    writer.add_expert_feed_forward_length(c.intermediate_size)
    writer.add_expert_count(c.num_local_experts)
    writer.add_expert_used_count(c.num_experts_per_tok)
    writer.add_head_count(c.num_attention_heads)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_key_length(c.head_dim)
    writer.add_value_length(c.head_dim)
    writer.add_sliding_window(c.sliding_window)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_vocab_size(c.vocab_size)
    writer.add_rope_dimension_count(c.head_dim)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(rope["factor"])
    writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_tokenizer_model("none")
    names = {"input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "post_attention_norm.weight",
             "self_attn.sinks": "attn_sinks.weight", "mlp.router.weight": "ffn_gate_inp.weight", "mlp.router.bias": "ffn_gate_inp.bias",
             "mlp.experts.down_proj": "ffn_down_exps.weight", "mlp.experts.down_proj_bias": "ffn_down_exps.bias"}
    for short, out in {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output"}.items():
        for kind in ("weight", "bias"):
            names[f"self_attn.{short}_proj.{kind}"] = f"{out}.{kind}"
    ends = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}

    def add(name, data):
        if name in experts:
            writer.add_tensor(name, experts[name], raw_dtype=gguf.GGMLQuantizationType.MXFP4)
            return
        wide = data.ndim == 1 or name.endswith(".bias") or "ffn_gate_inp" in name
        writer.add_tensor(name, np.ascontiguousarray(data).astype(np.float32 if wide else dtype))

    for name, tensor in model.state_dict().items():
        data = tensor.numpy()
        if name in ends:
            add(ends[name], data)
            continue
        _, _, layer, rest = name.split(".", 3)
        prefix = f"blk.{layer}."
        if "gate_up_proj" in rest:
            kind = "bias" if rest.endswith("bias") else "weight"
            for first, out in ((0, "ffn_gate_exps"), (1, "ffn_up_exps")):
                half = data[..., first::2]
                add(f"{prefix}{out}.{kind}", half if kind == "bias" else half.transpose(0, 2, 1))
        elif rest == "mlp.experts.down_proj":
            add(prefix + names[rest], data.transpose(0, 2, 1))
        else:
            add(prefix + names[rest], data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_twin(folder, model, experts, dtype, expected, reference):
    write_gguf(os.path.join(folder, "model-f16.gguf"), model, dtype, experts)
    with tempfile.TemporaryDirectory() as temporary:
        wide = os.path.join(temporary, "model.gguf")
        write_gguf(wide, model, np.float32, {})
        logits = llamacpp_logits(wide, expected["tokens"].numpy(), model.config.vocab_size)
    difference = np.abs(logits - reference.numpy()).max()
    print(folder, "llama.cpp differs from transformers by", difference, "same top", (logits.argmax(1) == reference.numpy().argmax(1)).mean())
    assert difference < 2e-2
    expected["llamacpp"] = torch.from_numpy(logits)


def report(folder, expected):
    save_file(expected, os.path.join(folder, "expected.safetensors"))
    print(folder, sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder)), "bytes, logits' std",
          float(expected["logits"].std()))


def small():
    folder = os.path.join(OUT, "gpt-oss-small")
    os.makedirs(folder, exist_ok=True)
    yarn = {"rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "beta_fast": 4.0, "beta_slow": 1.0, "truncate": False,
            "original_max_position_embeddings": 24}
    base = dict(vocab_size=87, hidden_size=44, intermediate_size=20, head_dim=14, num_hidden_layers=2, num_attention_heads=6,
                num_key_value_heads=2, sliding_window=9, num_local_experts=4, num_experts_per_tok=2, max_position_embeddings=96,
                rms_norm_eps=1e-5, rope_parameters=yarn)
    variants = {
        # 32 is what llama.cpp assumes
        "truncate": {"rope_parameters": {**yarn, "truncate": True, "beta_fast": 32.0}},
        "layers": {"layer_types": ["full_attention", "sliding_attention"]},
        "limit": {"swiglu_limit": 2.5, "swiglu_alpha": 1.1},
    }
    model = build(GptOssConfig(**base))
    randomize(model, 21)
    widen(model, 22)
    ids = tokens_for(base["vocab_size"])
    state = saved_state(model)
    save_file({k: v.half().contiguous() for k, v in state.items()}, os.path.join(folder, "model.safetensors"))
    assert all((v.half().float() == v.float()).all() for v in state.values())
    expected = record(folder, model, base, variants, ids)
    other = build(GptOssConfig(**{**base, **variants["truncate"]}))
    other.load_state_dict(model.state_dict())
    add_twin(folder, other, {}, np.float16, expected, expected["logits.truncate"])
    report(folder, expected)


def quantize(model):
    """Experts become what MXFP4 holds of them: tensors as safetensors have them, blocks as GGUF has them."""
    quantized, blocks = {}, {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if not name.endswith(("gate_up_proj", "down_proj")):
                continue
            packed, exponents, held = to_blocks(p.numpy().transpose(0, 2, 1))
            codes, scales = torch.from_numpy(packed), torch.from_numpy(exponents)
            # What transformers itself reads from these tensors.
            theirs = convert_moe_packed_tensors(codes.clone(), scales.clone(), dtype=torch.float32)
            assert (theirs == torch.from_numpy(held).transpose(1, 2)).all()
            p.copy_(theirs)
            quantized[name + "_blocks"], quantized[name + "_scales"] = codes, scales
            prefix = f"blk.{name.split('.')[2]}."
            if "gate_up" in name:
                blocks[prefix + "ffn_gate_exps.weight"] = ggml_blocks(packed[:, 0::2], exponents[:, 0::2])
                blocks[prefix + "ffn_up_exps.weight"] = ggml_blocks(packed[:, 1::2], exponents[:, 1::2])
            else:
                blocks[prefix + "ffn_down_exps.weight"] = ggml_blocks(packed, exponents)
    for name, data in blocks.items():
        assert np.isfinite(gguf.quants.dequantize(data, gguf.GGMLQuantizationType.MXFP4)).all(), name
    state = {k: v.bfloat16() for k, v in saved_state(model).items() if k + "_blocks" not in quantized}
    return {k: v.contiguous() for k, v in {**state, **quantized}.items()}, blocks


def mxfp4():
    folder = os.path.join(OUT, "gpt-oss-mxfp4")
    os.makedirs(folder, exist_ok=True)
    yarn = {"rope_type": "yarn", "rope_theta": 700.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": True,
            "original_max_position_embeddings": 24}
    base = dict(vocab_size=91, hidden_size=64, intermediate_size=32, head_dim=16, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=1, sliding_window=13, num_local_experts=6, num_experts_per_tok=2, max_position_embeddings=128,
                rms_norm_eps=1e-5, rope_parameters=yarn)
    model = build(GptOssConfig(**base))
    randomize(model, 23)
    widen(model, 24)
    state, blocks = quantize(model)
    save_file(state, os.path.join(folder, "model.safetensors"))
    model.config.quantization_config = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}
    ids = tokens_for(base["vocab_size"])
    expected = {"tokens": ids[0].to(torch.int32), "logits": logits_of(model, ids)}
    save_config(model.config, folder, "config.json", "GptOssForCausalLM", True)
    add_twin(folder, model, blocks, np.float16, expected, expected["logits"])
    report(folder, expected)


def seeds():
    """A model of a few kilobytes for the fuzz target "model", in both containers."""
    folder = os.path.join(HERE, "..", "fuzz", "corpus", "model")
    base = dict(vocab_size=5, hidden_size=32, intermediate_size=32, head_dim=4, num_hidden_layers=1, num_attention_heads=2,
                num_key_value_heads=1, sliding_window=3, num_local_experts=2, num_experts_per_tok=1, max_position_embeddings=32,
                rms_norm_eps=1e-5, rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0,
                                                    "original_max_position_embeddings": 8})
    model = build(GptOssConfig(**base))
    randomize(model, 25)
    state, blocks = quantize(model)
    config = {k: v for k, v in base.items() if k != "rope_parameters"}
    config["architectures"], config["rope_scaling"] = ["GptOssForCausalLM"], base["rope_parameters"]
    with open(os.path.join(folder, "gpt-oss.safetensors"), "wb") as file:
        file.write(json.dumps(config).encode() + b"\0" + save(state))
    write_gguf(os.path.join(folder, "gpt-oss.gguf"), model, np.float16, blocks)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    quiet = llama_cpp.llama_log_callback(lambda level, text, user: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    small()
    mxfp4()
    seeds()


if __name__ == "__main__":
    main()
