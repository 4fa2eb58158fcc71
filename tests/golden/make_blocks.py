"""Makes blocks/<type>.bin: 3 rows of 256 weights as GGUF blocks, then their values in F32 as the `gguf` package
(gguf.quants.dequantize) decodes them. Run with numpy and gguf installed; the results are committed."""
import pathlib

import gguf
import numpy as np

ROWS, COLS = 3, 256
# Bytes per block, weights per block, offsets of F16 fields.
TYPES = {
    "Q4_0": (18, 32, [0]),
    "Q4_1": (20, 32, [0, 2]),
    "Q5_0": (22, 32, [0]),
    "Q5_1": (24, 32, [0, 2]),
    "Q8_0": (34, 32, [0]),
    "Q4_K": (144, 256, [0, 2]),
    "Q5_K": (176, 256, [0, 2]),
    "Q6_K": (210, 256, [208]),
    "MXFP4": (17, 32, []),  # its scale is a byte: the exponent of a power of two
}


def main():
    rng = np.random.default_rng(20240607)
    folder = pathlib.Path(__file__).parent / "blocks"
    folder.mkdir(exist_ok=True)
    for name, (size, block, halves) in TYPES.items():
        raw = rng.integers(0, 256, (ROWS, COLS // block, size), dtype=np.uint8)
        for offset in halves:
            scale = rng.normal(0, 0.02, (ROWS, COLS // block)).astype(np.float16)
            raw[:, :, offset:offset + 2] = scale[..., None].view(np.uint8)
        if name == "MXFP4":
            raw[:, :, 0] = np.array([1, 2, 60, 100, 118, 127, 131, 200])
        raw = raw.reshape(ROWS, -1)
        values = gguf.quants.dequantize(raw, getattr(gguf.GGMLQuantizationType, name)).astype(np.float32)
        assert values.shape == (ROWS, COLS)
        (folder / f"{name}.bin").write_bytes(raw.tobytes() + values.tobytes())


if __name__ == "__main__":
    main()
