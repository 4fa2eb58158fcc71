#!/usr/bin/env python3
"""Makes the small random models of further dense architectures in tests/golden/models, as make_models.py does for its own.

Folders as there: config.json, config-NAME.json, model.safetensors, expected.safetensors with tokens, logits and logits.NAME.
Needs torch, transformers, safetensors, numpy. Usage: make_dense_models.py [NAME...]
"""
import json
import os
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import Gemma2Config, Gemma2ForCausalLM, Gemma3Config, Gemma3ForConditionalGeneration, Olmo2Config
from transformers import Olmo2ForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config
from transformers import Qwen3ForCausalLM, SmolLM3Config, SmolLM3ForCausalLM

from make_models import OUT, logits_of, make, randomize, tokens_for

PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
SWITCH = 24  # tokens up to which the short factors of longrope hold


def edit_config(folder, name, change):
    path = os.path.join(folder, name)
    with open(path) as f:
        data = json.load(f)
    change(data)
    with open(path, "w") as f:
        json.dump(data, f, indent=1, sort_keys=True)
        f.write("\n")


def add_expected(folder, more):
    path = os.path.join(folder, "expected.safetensors")
    save_file({**load_file(path), **more}, path)


def set_dtype(data, dtype):
    for part in (data, data["text_config"], data["vision_config"]):
        part["dtype"] = dtype


def qwen2(name):
    base = dict(vocab_size=107, hidden_size=54, intermediate_size=68, num_hidden_layers=3, num_attention_heads=3,
                num_key_value_heads=1, max_position_embeddings=128, use_sliding_window=False,
                tie_word_embeddings=False, rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    variants = {"window": {"use_sliding_window": True, "sliding_window": 11, "max_window_layers": 1},
                "yarn": {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0,
                                             "original_max_position_embeddings": 32}}}
    make(name, Qwen2ForCausalLM, Qwen2Config, base, variants, 11, torch.float16)


def qwen3(name):
    base = dict(vocab_size=115, hidden_size=52, intermediate_size=76, num_hidden_layers=3, num_attention_heads=6,
                num_key_value_heads=2, head_dim=14, max_position_embeddings=128, tie_word_embeddings=True,
                rope_parameters={"rope_type": "default", "rope_theta": 1e6})
    variants = {"window": {"use_sliding_window": True, "sliding_window": 13, "max_window_layers": 2}}
    make(name, Qwen3ForCausalLM, Qwen3Config, base, variants, 12, torch.float16)


def gemma2(name):
    base = dict(vocab_size=109, hidden_size=44, intermediate_size=60, num_hidden_layers=4, num_attention_heads=4,
                num_key_value_heads=2, head_dim=20, max_position_embeddings=128, sliding_window=9,
                query_pre_attn_scalar=14, attn_logit_softcapping=5.0, final_logit_softcapping=8.0,
                attn_implementation="eager", rope_parameters=PLAIN)
    variants = {"nocaps": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
                "gguf": {"query_pre_attn_scalar": 20}}  # what llama.cpp takes for granted
    make(name, Gemma2ForCausalLM, Gemma2Config, base, variants, 13, torch.float16)
    # A configuration as released: no layer_types, no rope_parameters.
    folder = os.path.join(OUT, name)

    def as_released(data):
        data.pop("layer_types")
        data["rope_theta"] = data.pop("rope_parameters")["rope_theta"]
    shutil.copy(os.path.join(folder, "config.json"), os.path.join(folder, "config-released.json"))
    edit_config(folder, "config-released.json", as_released)
    add_expected(folder, {"logits.released": load_file(os.path.join(folder, "expected.safetensors"))["logits"]})


def gemma3_multimodal(name):
    text = dict(vocab_size=113, hidden_size=44, intermediate_size=60, num_hidden_layers=3, num_attention_heads=4,
                num_key_value_heads=2, head_dim=20, max_position_embeddings=128, sliding_window=9,
                query_pre_attn_scalar=14, tie_word_embeddings=True,
                layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                 "sliding_attention": PLAIN})
    vision = dict(hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14)
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=112,
                          boi_token_index=110, eoi_token_index=111)
    config.dtype = "float32"
    model = Gemma3ForConditionalGeneration(config).float()
    randomize(model, 14)
    folder = os.path.join(OUT, name)
    ids = tokens_for(110)
    model.eval()
    expected = {"tokens": ids[0].to(torch.int32), "logits": logits_of(model, ids)}
    shutil.rmtree(folder, ignore_errors=True)
    model.half().save_pretrained(folder)  # under the names that such checkpoints have
    os.remove(os.path.join(folder, "generation_config.json"))
    edit_config(folder, "config.json", lambda data: set_dtype(data, "float32"))  # what the logits were computed in
    save_file(expected, os.path.join(folder, "expected.safetensors"))
    print(name, sorted(load_file(os.path.join(folder, "model.safetensors")))[:3], float(expected["logits"].std()))


def phi3(name):
    half = 9  # of 18 rotated values of 24
    short = [1.0 + 0.05 * i for i in range(half)]
    long = [1.0 + 0.9 * i for i in range(half)]
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75, "short_factor": short,
            "long_factor": long}
    base = dict(vocab_size=103, hidden_size=72, intermediate_size=84, num_hidden_layers=3, num_attention_heads=3,
                num_key_value_heads=1, max_position_embeddings=192, original_max_position_embeddings=SWITCH,
                tie_word_embeddings=True, pad_token_id=0, rope_parameters=rope)
    variants = {"window": {"rope_parameters": {**PLAIN, "partial_rotary_factor": 0.75}, "sliding_window": 13}}
    model, config = make(name, Phi3ForCausalLM, Phi3Config, base, variants, 15, torch.float16)
    folder = os.path.join(OUT, name)

    def as_released(data):
        rope = data.pop("rope_parameters")
        data["rope_theta"] = rope["rope_theta"]
        data["partial_rotary_factor"] = rope["partial_rotary_factor"]
        data["rope_scaling"] = {"type": "su", "long_factor": long, "short_factor": short}
    shutil.copy(os.path.join(folder, "config.json"), os.path.join(folder, "config-released.json"))
    edit_config(folder, "config-released.json", as_released)
    # What follows each of these lengths; generation computes everything anew where the long factors begin.
    ids = tokens_for(config.vocab_size)
    lengths = [SWITCH - 4, SWITCH, SWITCH + 1, SWITCH + 9]
    with torch.no_grad():
        last = torch.stack([model(ids[:, :n], use_cache=False).logits[0, -1] for n in lengths])
    add_expected(folder, {"lengths": torch.tensor(lengths, dtype=torch.int32), "last": last,
                          "logits.released": load_file(os.path.join(folder, "expected.safetensors"))["logits"]})


def smollm3(name):
    base = dict(vocab_size=119, hidden_size=56, intermediate_size=72, num_hidden_layers=5, num_attention_heads=4,
                num_key_value_heads=2, head_dim=18, max_position_embeddings=128, tie_word_embeddings=True,
                pad_token_id=0, bos_token_id=1, eos_token_id=2, rope_parameters={"rope_type": "default", "rope_theta": 5e4})
    variants = {"window": {"use_sliding_window": True, "sliding_window": 12, "no_rope_layers": [1, 0, 1, 0, 0]}}
    make(name, SmolLM3ForCausalLM, SmolLM3Config, base, variants, 16, torch.float16)


def olmo2(name):
    base = dict(vocab_size=121, hidden_size=84, intermediate_size=68, num_hidden_layers=3, num_attention_heads=6,
                num_key_value_heads=2, max_position_embeddings=128, tie_word_embeddings=False,
                pad_token_id=0, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    make(name, Olmo2ForCausalLM, Olmo2Config, base, {}, 17, torch.float16)


FAMILIES = {"qwen2-small": qwen2, "qwen3-small": qwen3, "gemma2-small": gemma2, "gemma3-multimodal": gemma3_multimodal,
            "phi3-small": phi3, "smollm3-small": smollm3, "olmo2-small": olmo2}

if __name__ == "__main__":
    torch.manual_seed(0)
    for wanted in sys.argv[1:] or FAMILIES:
        FAMILIES[wanted](wanted)
