#!/usr/bin/env python3
"""Makes tests/golden/format/: small files by the reference libraries (packages gguf, safetensors, numpy) for unit_format.
Run by hand where a rule changes; the files are committed."""
import pathlib

import gguf
import numpy as np
from safetensors.numpy import save_file

OUT = pathlib.Path(__file__).parent / "format"


def make_gguf() -> None:
    writer = gguf.GGUFWriter(OUT / "small.gguf", "llama")
    writer.add_uint32("test.u32", 7)
    writer.add_int8("test.i8", -3)
    writer.add_float32("test.f32", 0.25)
    writer.add_float64("test.f64", -1e300)
    writer.add_bool("test.bool", True)
    writer.add_uint64("test.u64", 2**64 - 1)
    writer.add_array("test.strings", ["", "zwölf", "日本"])
    writer.add_array("test.floats", [0.5, -2.0])
    rng = np.random.default_rng(1)
    writer.add_tensor("f32.weight", np.arange(12, dtype=np.float32).reshape(3, 4))
    writer.add_tensor("f16.weight", np.arange(6, dtype=np.float16).reshape(1, 2, 3))
    weights = rng.standard_normal((4, 256), dtype=np.float32)
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q5_1):
        writer.add_tensor(f"{kind.name}.weight", gguf.quantize(weights, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_split() -> None:
    writer = gguf.GGUFWriter(OUT / "split.gguf", "llama", split_max_tensors=2)
    for i in range(3):
        writer.add_tensor(f"t{i}", np.full((8,), i, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_safetensors() -> None:
    tensors = {
        "f32": np.arange(6, dtype=np.float32).reshape(2, 3),
        "f16": np.arange(5, dtype=np.float16),
        "i64": np.array([[-1]], dtype=np.int64),
        "bool": np.array([True, False]),
        "empty": np.zeros((0, 3), dtype=np.uint8),
        "ünïcode": np.array([1], dtype=np.int8),
    }
    save_file(tensors, OUT / "small.safetensors", metadata={"format": "np", "quote": 'a"b\n'})


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    make_gguf()
    make_split()
    make_safetensors()
