"""Writes quants.json: random blocks of each GGUF type and their values, computed by the Python package `gguf`.

Run with `python3 make_quants.py > quants.json` (needs gguf 0.19 and numpy).
"""

import json

import gguf
import numpy as np

# Byte offsets of the half-precision scales in a block. All other bytes may have any value.
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "Q2_K": [80, 82], "Q3_K": [108], "MXFP4": [],
}
NAMES = {"F32": "f32", "F16": "f16", "BF16": "bf16", "Q8_0": "q8_0", "Q4_0": "q4_0", "Q4_1": "q4_1",
         "Q5_0": "q5_0", "Q5_1": "q5_1", "Q4_K": "q4_K", "Q5_K": "q5_K", "Q6_K": "q6_K",
         "IQ4_NL": "iq4_nl", "IQ4_XS": "iq4_xs", "Q2_K": "q2_K", "Q3_K": "q3_K", "MXFP4": "mxfp4"}


def main():
    random = np.random.default_rng(20240229)
    cases = []
    for name, ours in NAMES.items():
        kind = gguf.GGMLQuantizationType[name]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        if elements == 1:
            values = random.standard_normal(64).astype(np.float32)
            raw = gguf.quants.quantize(values, kind).view(np.uint8).reshape(-1)
        else:
            blocks = 8 if elements == 32 else 2
            raw = random.integers(0, 256, (blocks, size), dtype=np.uint8)
            for offset in SCALES[name]:
                scale = random.normal(0, 0.05, (blocks, 1)).astype(np.float16)
                raw[:, offset:offset + 2] = scale.view(np.uint8)
            if name == "MXFP4":
                raw[:, 0] = [0, 1, 2, 117, 120, 127, 128, 250]  # all kinds of exponents
            raw = raw.reshape(-1)
        typed = raw.view(np.float32) if name == "F32" else raw.view(np.float16) if name == "F16" else raw
        values = gguf.quants.dequantize(typed, kind).astype(np.float32).reshape(-1)
        cases.append({"type": ours, "raw": raw.tobytes().hex(), "floats": values.tobytes().hex()})
    print(json.dumps({"made_by": "gguf 0.19.0", "cases": cases}, indent=0))


if __name__ == "__main__":
    main()
