#!/usr/bin/env python3
"""An FP8 checkpoint with scales of 16 x 16 blocks in another shard, from deepseek-v3-small (make_moe_models.py), and the same weights decoded to
BF16, as DeepSeek's own tool does: both must give the same logits. Needs torch, safetensors.
"""
import json
import os
import shutil

import torch
from safetensors.torch import load_file, save_file

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "models")
BLOCK = 16


def quantize(weight):
    rows, cols = weight.shape
    scales = torch.zeros(-(-rows // BLOCK), -(-cols // BLOCK))
    codes = torch.zeros(rows, cols, dtype=torch.float8_e4m3fn)
    decoded = torch.zeros(rows, cols)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            at = (slice(i * BLOCK, (i + 1) * BLOCK), slice(j * BLOCK, (j + 1) * BLOCK))
            scales[i, j] = weight[at].abs().max() / 448
            codes[at] = (weight[at] / scales[i, j]).to(torch.float8_e4m3fn)
            decoded[at] = codes[at].float() * scales[i, j]
    return codes, scales, decoded.bfloat16()


def main():
    torch.set_num_threads(1)
    state = load_file(os.path.join(OUT, "deepseek-v3-small", "model.safetensors"))
    weights, scales, twin = {}, {}, {}
    for name, tensor in state.items():
        if tensor.dim() == 2 and "embed" not in name and "lm_head" not in name and "mlp.gate." not in name:
            weights[name], scales[name + "_scale_inv"], twin[name] = quantize(tensor.float())
        else:
            weights[name] = twin[name] = tensor
    folder = os.path.join(OUT, "deepseek-fp8")
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(OUT, "deepseek-v3-small", "config.json"), folder)
    shards = {"model-00001-of-00002.safetensors": weights, "model-00002-of-00002.safetensors": scales}
    index = {"metadata": {}, "weight_map": {}}
    for shard, tensors in shards.items():
        save_file({k: v.contiguous() for k, v in tensors.items()}, os.path.join(folder, shard))
        index["weight_map"].update({k: shard for k in tensors})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump(index, file, indent=0, sort_keys=True)
    folder = os.path.join(OUT, "deepseek-fp8-decoded")
    os.makedirs(folder, exist_ok=True)
    shutil.copy(os.path.join(OUT, "deepseek-v3-small", "config.json"), folder)
    save_file({k: v.contiguous() for k, v in twin.items()}, os.path.join(folder, "model.safetensors"))


if __name__ == "__main__":
    main()
