#!/usr/bin/env python3
"""Writes a checkpoint with the layer shapes of DeepSeek R1: FP8 weights with their scales in another shard, a dense layer and one
with experts, and tensors of a layer for predicting further tokens (MTP), which readers leave out. The files are sparse: nearly all
weights are holes, which read as zero, so that a disk does not fill; the router and the embedding of bytes are random numbers, so that
tokens go to many experts. `--filled` writes random numbers everywhere (16 GB). A tokenizer of bytes and a text to calibrate with lie
beside them. Needs nothing but Python.
usage: make_r1_shapes.py FOLDER [--experts 256] [--layers 2] [--filled] [--shrink 1]
`--shrink N` divides all widths by N (a power of two up to 32).
"""
import argparse
import json
import os
import random
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = {"F8_E4M3": 1, "BF16": 2, "F32": 4}


def noise(kind, count, seed, pool={}):
    """Random numbers of a normal distribution: FP8 codes, BF16 or F32, from a pool that repeats."""
    if kind not in pool:
        source = random.Random(7)
        values = [source.gauss(0.0, 1.0) for _ in range((1 << 16) + 37)]
        if kind == "F8_E4M3":
            pool[kind] = bytes(e4m3(24.0 * v) for v in values)
        elif kind == "BF16":
            pool[kind] = b"".join(struct.pack("<f", 0.05 * v)[2:] for v in values)
        else:
            pool[kind] = struct.pack(f"<{len(values)}f", *(0.01 * v for v in values))
    data, size = pool[kind], count * BYTES[kind]
    begin = seed * 4096 % len(data) // 4 * 4
    while size > 0:
        piece = data[begin:begin + size]
        yield piece
        size -= len(piece)
        begin = 0


def e4m3(value):
    """The nearest FP8 code of a number that is in range."""
    sign, value = (0x80, -value) if value < 0 else (0, value)
    if value < 2.0**-6:
        return sign | round(value * 2**9)  # subnormal, or the first normal number
    exponent = 0
    while value >= 2.0:
        value, exponent = value / 2.0, exponent + 1
    while value < 1.0:
        value, exponent = value * 2.0, exponent - 1
    return sign | ((exponent + 7 << 3) + round((value - 1.0) * 8.0))


class Shard:
    def __init__(self):
        self.header, self.size, self.filled = {}, 0, []

    def add(self, name, dtype, shape, fill=None, random_rows=None):
        """`fill` repeats in all elements; `random_rows`: so many rows are random numbers."""
        count = 1
        for n in shape:
            count *= n
        size = count * BYTES[dtype]
        self.header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [self.size, self.size + size]}
        if fill is not None:
            self.filled.append((self.size, lambda: [fill * count]))
        elif random_rows is not None:
            numbers = min(random_rows, shape[0]) * (count // shape[0])
            self.filled.append((self.size, lambda seed=len(self.filled): noise(dtype, numbers, seed)))
        self.size += size

    def write(self, path):
        text = json.dumps(self.header).encode()
        text += b" " * (-len(text) % 8)
        with open(path, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for at, pieces in self.filled:
                file.seek(8 + len(text) + at)
                file.writelines(pieces())
            file.truncate(8 + len(text) + self.size)


def write_tokenizer(folder):
    """One token a byte, as GPT-2 spells bytes; and a text."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    spelled = {b: chr(b) for b in plain}
    for b in range(256):
        spelled.setdefault(b, chr(256 + len(spelled) - len(plain)))
    tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
                 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
                 "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                 "model": {"type": "BPE", "vocab": {spelled[b]: b for b in range(256)}, "merges": []}}
    with open(os.path.join(folder, "tokenizer.json"), "w") as file:
        json.dump(tokenizer, file)
    source = random.Random(3)
    with open(os.path.join(folder, "text.txt"), "w") as file:
        for _ in range(20000):
            file.write("".join(chr(source.randrange(33, 126)) for _ in range(source.randrange(1, 9))) + " ")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--filled", action="store_true")
    parser.add_argument("--shrink", type=int, default=1, choices=[1, 2, 4, 8, 16, 32])
    options = parser.parse_args()
    os.makedirs(options.folder, exist_ok=True)
    with open(os.path.join(HERE, "..", "golden", "configs", "deepseek-r1.json")) as file:
        config = json.load(file)
    config.update(num_hidden_layers=options.layers, first_k_dense_replace=1, n_routed_experts=options.experts)
    for key in ("hidden_size", "intermediate_size", "kv_lora_rank", "moe_intermediate_size", "num_attention_heads", "num_key_value_heads",
                "q_lora_rank", "vocab_size"):
        config[key] //= options.shrink
    with open(os.path.join(options.folder, "config.json"), "w") as file:
        json.dump(config, file, indent=1)
    write_tokenizer(options.folder)
    everything = 1 << 62 if options.filled else None
    hidden, heads, latent, rope = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"], config["qk_rope_head_dim"]
    nope, value, rank = config["qk_nope_head_dim"], config["v_head_dim"], config["q_lora_rank"]
    one, scale = struct.pack("<H", 0x3f80), struct.pack("<f", 1.0 / 448)
    shards = {"weights": Shard(), "scales": Shard()}

    def matrix(name, rows, cols):
        shards["weights"].add(name, "F8_E4M3", [rows, cols], random_rows=everything)
        shards["scales"].add(name + "_scale_inv", "F32", [-(-rows // 128), -(-cols // 128)], scale)

    def norm(name, size):
        shards["weights"].add(name, "BF16", [size], one)

    shards["weights"].add("model.embed_tokens.weight", "BF16", [config["vocab_size"], hidden], random_rows=everything or 256)
    shards["weights"].add("lm_head.weight", "BF16", [config["vocab_size"], hidden], random_rows=everything)
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
            shards["weights"].add(prefix + "mlp.gate.weight", "BF16", [options.experts, hidden], random_rows=options.experts)
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
