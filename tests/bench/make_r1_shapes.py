#!/usr/bin/env python3
"""Writes a checkpoint with the layer shapes of DeepSeek R1: FP8 weights with their scales in another shard, a dense layer and one
with experts, and tensors of a layer for predicting further tokens (MTP), which readers leave out. The files are sparse: nearly all
weights are holes, which read as zero, so that a disk does not fill. Needs nothing but Python.
usage: make_r1_shapes.py FOLDER [--experts 256] [--layers 2]
"""
import argparse
import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = {"F8_E4M3": 1, "BF16": 2, "F32": 4}


class Shard:
    def __init__(self):
        self.header, self.size, self.filled = {}, 0, []

    def add(self, name, dtype, shape, fill=None):
        count = 1
        for n in shape:
            count *= n
        size = count * BYTES[dtype]
        self.header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [self.size, self.size + size]}
        if fill is not None:
            self.filled.append((self.size, fill, count))
        self.size += size

    def write(self, path):
        text = json.dumps(self.header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for at, fill, count in self.filled:
                file.seek(8 + len(text) + at)
                file.write(fill * count)
            file.truncate(8 + len(text) + self.size)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    with open(os.path.join(HERE, "..", "golden", "configs", "deepseek-r1.json")) as file:
        config = json.load(file)
    config.update(num_hidden_layers=options.layers, first_k_dense_replace=1, n_routed_experts=options.experts)
    with open(os.path.join(options.folder, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
    hidden, heads, latent, rope = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    nope, value, rank = config["qk_nope_head_dim"], config["v_head_dim"], config["q_lora_rank"]
    one, scale = struct.pack("<H", 0x3f80), struct.pack("<f", 1.0 / 448)
    shards = {"weights": Shard(), "scales": Shard()}

    def matrix(name, rows, cols):
        shards["weights"].add(name, "F8_E4M3", [rows, cols])
        shards["scales"].add(name + "_scale_inv", "F32", [-(-rows // 128), -(-cols // 128)], scale)

    def norm(name, size):
        shards["weights"].add(name, "BF16", [size], one)

    shards["weights"].add("model.embed_tokens.weight", "BF16", [config["vocab_size"], hidden])
    shards["weights"].add("lm_head.weight", "BF16", [config["vocab_size"], hidden])
    norm("model.norm.weight", hidden)
    for layer in range(options.layers + 1):  # the last is the one for further tokens
        prefix = f"model.layers.{layer}."
        norm(prefix + "input_layernorm.weight", hidden)
        norm(prefix + "post_attention_layernorm.weight", hidden)
        attention = prefix + "self_attn."
        matrix(attention + "q_a_proj.weight", rank, hidden)
        norm(attention + "q_a_layernorm.weight", rank)
        matrix(attention + "q_b_proj.weight", heads * (nope + rope), rank)
        matrix(attention + "kv_a_proj_with_mqa.weight", latent + rope, hidden)
        norm(attention + "kv_a_layernorm.weight", latent)
        matrix(attention + "kv_b_proj.weight", heads * (nope + value), latent)
        matrix(attention + "o_proj.weight", hidden, heads * value)
        if layer == options.layers:
            matrix(prefix + "eh_proj.weight", hidden, 2 * hidden)
            continue
        dense = [("mlp.", config["intermediate_size"])]
        if layer >= 1:
            shards["weights"].add(prefix + "mlp.gate.weight", "BF16", [options.experts, hidden])
            shards["weights"].add(prefix + "mlp.gate.e_score_correction_bias", "F32", [options.experts])
            dense = [(f"mlp.experts.{e}.", config["moe_intermediate_size"]) for e in range(options.experts)]
            dense.append(("mlp.shared_experts.", config["moe_intermediate_size"]))
        for name, wide in dense:
            matrix(prefix + name + "gate_proj.weight", wide, hidden)
            matrix(prefix + name + "up_proj.weight", wide, hidden)
            matrix(prefix + name + "down_proj.weight", hidden, wide)
    index = {"metadata": {"total_size": sum(s.size for s in shards.values())}, "weight_map": {}}
    for number, shard in enumerate(shards.values(), 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        shard.write(os.path.join(options.folder, name))
        index["weight_map"].update({tensor: name for tensor in shard.header})
    with open(os.path.join(options.folder, "model.safetensors.index.json"), "w") as file:
        json.dump(index, file)
    print(index["metadata"]["total_size"], "bytes of tensors,", sum(len(s.header) for s in shards.values()), "tensors")


if __name__ == "__main__":
    main()
