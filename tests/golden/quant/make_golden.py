#!/usr/bin/env python3
"""Makes <type>.bin of this folder: blocks of every weight type and the f32 values the gguf package reads from them.

By hand:  python3 make_golden.py     Needs numpy and gguf, nothing else.

Block 0 of each file (blocks 0 to 7 of F16 and BF16) is worked out by hand in README.md; its values are computed here
from the README's formulas and compared with the package before anything is written. Then come edge cases, then seeded
random bytes. Scales are always finite: an infinite or NaN scale is a damaged file, and no result is promised for it.
"""
import struct
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

HERE = Path(__file__).resolve().parent
SEED = 20240
N_RANDOM = 6

STAIRS = bytes(i | (15 - i) << 4 for i in range(16))  # F0 E1 D2 .. 0F: low nibbles count up, high nibbles count down
IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]  # what IQ4_NL's 4-bit numbers select
SC = [1, 2, 3, 63, 17, 34, 51, 60]                    # Q4_K, Q5_K: 6-bit scale and minimum of the eight sub-blocks
MIN = [0, 1, 33, 63, 22, 41, 60, 5]
SC_PACKED = bytes.fromhex("4182c3ff 4081e13f 6192c35c")
SC3 = [1, -2, 3, -32, 17, -17, 31, -1, 2, -3, 4, -31, 16, -16, 30, 0]  # Q3_K: sub-scales less 32
SC3_PACKED = bytes.fromhex("21de4310 010fef0f ee51ee84")
SC_XS = [1, -32, 31, -1, 17, -17, 0, 5]               # IQ4_XS: the same
SC_XS_PACKED = bytes.fromhex("72a3 01fff150")

# Types with grids: some entries, and eight signs as bytes; the eighth of IQ2_XXS, IQ2_XS and IQ3_XXS is not stored.
GRID = {"iq3_s": {0: (1, 1, 1, 1), 1: (3, 1, 1, 1), 257: (5, 7, 9, 5), 511: (1, 1, 15, 15)},
        "iq3_xxs": {0: (4, 4, 4, 4), 1: (20, 4, 4, 4), 128: (4, 62, 28, 20), 255: (4, 28, 52, 62)},
        "iq2_s": {0: (8,) * 8, 1: (43,) + (8,) * 7, 257: (8, 43, 25, 25, 25, 8, 25, 8), 1023: (43,) * 8},
        "iq2_xs": {0: (8,) * 8, 1: (43,) + (8,) * 7, 300: (8, 25, 25, 8, 8, 25, 8, 25), 511: (43,) * 8},
        "iq2_xxs": {0: (8,) * 8, 1: (43,) + (8,) * 7, 128: (8, 43, 8, 8, 8, 43, 43, 8),
                    255: (8, 25, 8, 8, 25, 43, 43, 43)}}
SIGNS = [0x00, 0x81, 0x3C, 0xFF]  # an even number of minus signs each
NV_SCALES = [0x38, 0x01, 0x7E, 0x7F]  # NVFP4: 1, 2^-9, 448, and one that counts as 0
NV_VALUES = [1.0, 2.0**-9, 448.0, 0.0]


def f16(x):
    return struct.pack("<e", x)


# ---- the hand-computed blocks: (block bytes, values) -----------------------------------------------------------------

def hand_f16():
    words = [0x3C00, 0xC000, 0x3555, 0x7BFF, 0x0400, 0x0001, 0x83FF, 0x8000]
    return struct.pack("<8H", *words), [1.0, -2.0, 1365 / 4096, 65504.0, 2.0**-14, 2.0**-24, -1023 * 2.0**-24, -0.0]


def hand_bf16():
    words = [0x3F80, 0xC000, 0x3EAB, 0x4049, 0x7F7F, 0x0080, 0x0001, 0x8000]
    return struct.pack("<8H", *words), [1.0, -2.0, 171 / 512, 201 / 64, 255 * 2.0**120, 2.0**-126, 2.0**-133, -0.0]


def hand_q8_0():
    q = [8 * (i - 16) for i in range(32)]
    return f16(-0.5) + struct.pack("<32b", *q), [-0.5 * v for v in q]


def hand_q4_0():
    return f16(0.5) + STAIRS, [0.5 * (i - 8) for i in range(16)] + [0.5 * (7 - i) for i in range(16)]


def hand_q4_1():
    return f16(0.5) + f16(-3.0) + STAIRS, [0.5 * q - 3 for q in [*range(16), *range(15, -1, -1)]]


def hand_q5_0():
    # Bit i of the four bytes AA AA 55 55 is set for odd i below 16 and for even i from 16 on.
    high = [i % 2 if i < 16 else 1 - i % 2 for i in range(32)]
    low = list(range(16)) + list(range(15, -1, -1))
    return f16(0.5) + b"\xaa\xaa\x55\x55" + STAIRS, [0.5 * (q + 16 * h - 16) for q, h in zip(low, high)]


def hand_q5_1():
    return f16(0.5) + f16(-3.0) + b"\xaa\xaa\x55\x55" + STAIRS, [v + 8 - 3 for v in hand_q5_0()[1]]


def hand_iq4_nl():
    return f16(0.5) + STAIRS, [0.5 * v for v in IQ4 + IQ4[::-1]]


def hand_mxfp4():
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
    return bytes([125]) + STAIRS, [0.25 * v for v in values + values[::-1]]


def hand_nvfp4():
    values = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
    out = []
    for s, scale in enumerate(NV_VALUES):  # bytes 8s .. 8s+7 of the stairs, twice
        first = s % 2 * 8
        out += [scale * values[first + i] for i in range(8)] + [scale * values[15 - first - i] for i in range(8)]
    return bytes(NV_SCALES) + STAIRS * 2, out


def grid_values(name, n, scale_of):
    """Group g of n neighbours has entry g % 4 of GRID and, of every eight weights, signs g * n / 8 % 4."""
    entries, out = list(GRID[name].values()), []
    for w in range(256):
        sign = -1 if SIGNS[w // 8 % 4] >> w % 8 & 1 else 1
        out.append(scale_of(w) * entries[w // n % 4][w % n] * sign)
    return out


def hand_iq2_xxs():
    # The word of sub-block s: seven bits of each of SIGNS; s from bit 28 on.
    signs = sum((v & 127) << 7 * k for k, v in enumerate(SIGNS))
    subs = b"".join(bytes(GRID["iq2_xxs"]) + struct.pack("<I", signs | s << 28) for s in range(8))
    return f16(0.5) + subs, grid_values("iq2_xxs", 8, lambda w: 0.5 * (1 + 2 * (w // 32)) / 8)


def hand_iq2_xs():
    # Sub-scale s of 16 weights is s.
    q = struct.pack("<4H", *(e | (v & 127) << 9 for e, v in zip(GRID["iq2_xs"], SIGNS)))
    return (f16(0.5) + q * 8 + bytes(2 * i | (2 * i + 1) << 4 for i in range(8)),
            grid_values("iq2_xs", 8, lambda w: 0.5 * (1 + 2 * (w // 16)) / 8))


def hand_iq2_s():
    q = bytes(e & 255 for e in GRID["iq2_s"])
    high = sum((e >> 8) << 2 * k for k, e in enumerate(GRID["iq2_s"]))
    subs = bytes(2 * i | (2 * i + 1) << 4 for i in range(8))
    return (f16(0.5) + q * 8 + bytes(SIGNS) * 8 + bytes([high]) * 8 + subs,
            grid_values("iq2_s", 8, lambda w: 0.5 * (1 + 2 * (w // 16)) / 8))


def hand_iq3_xxs():
    signs = sum((v & 127) << 7 * k for k, v in enumerate(SIGNS))
    words = b"".join(struct.pack("<I", signs | s << 28) for s in range(8))
    return (f16(0.5) + bytes(GRID["iq3_xxs"]) * 16 + words,
            grid_values("iq3_xxs", 4, lambda w: 0.5 * (1 + 2 * (w // 32)) / 4))


def hand_iq3_s():
    q = bytes(e & 255 for e in GRID["iq3_s"])
    high = sum((e >> 8) << k for k, e in enumerate(GRID["iq3_s"])) * 0x11
    subs = bytes(2 * i | (2 * i + 1) << 4 for i in range(4))
    return (f16(0.5) + q * 16 + bytes([high]) * 8 + bytes(SIGNS) * 8 + subs,
            grid_values("iq3_s", 4, lambda w: 0.5 * (1 + 2 * (w // 32))))


def hand_q2_k():
    # Even bytes E4: quarter k of a half has the quant k; odd bytes 1B: 3 - k. Sub-block s: scale s, minimum 15 - s.
    values = []
    for w in range(256):
        k = w // 32 % 4
        values.append(0.5 * (w // 16) * (3 - k if w % 2 else k) - 0.25 * (15 - w // 16))
    return STAIRS + b"\xe4\x1b" * 32 + f16(0.5) + f16(0.25), values


def hand_q3_k():
    # The low two bits as in Q2_K; bytes AA 55: the third bit of sub-block s of 32 weights is set where w + s is odd.
    values = []
    for w in range(256):
        k, high = w // 32 % 4, (w + w // 32) % 2
        values.append(0.25 * SC3[w // 16] * ((3 - k if w % 2 else k) + 4 * high - 4))
    return b"\xaa\x55" * 16 + b"\xe4\x1b" * 32 + SC3_PACKED + f16(0.25), values


def hand_iq4_xs():
    values = [0.25 * SC_XS[s] * v for s in range(8) for v in IQ4 + IQ4[::-1]]
    return f16(0.25) + SC_XS_PACKED + STAIRS * 8, values


def stair(j, i):
    """4-bit quant of weight i (0..31) of sub-block j when the quants are STAIRS repeated."""
    return 15 - i % 16 if j % 2 else i % 16


def hand_q4_k():
    values = [0.5 * SC[j] * stair(j, i) - 0.25 * MIN[j] for j in range(8) for i in range(32)]
    return f16(0.5) + f16(0.25) + SC_PACKED + STAIRS * 8, values


def hand_q5_k():
    values = [0.5 * SC[j] * (stair(j, i) + 16 * ((i + j) % 2)) - 0.25 * MIN[j] for j in range(8) for i in range(32)]
    return f16(0.5) + f16(0.25) + SC_PACKED + b"\xaa\x55" * 16 + STAIRS * 8, values


def hand_q6_k():
    scales = [-(s + 1) if s % 2 else s + 1 for s in range(16)]
    values = []
    for w in range(256):
        quarter, step = w // 32 % 4, w % 16  # quarters 0 and 1 of a half sit in low nibbles, 2 and 3 in high ones
        q = (15 - step if quarter >= 2 else step) + 16 * quarter - 32
        values.append(0.25 * scales[w // 16] * q)
    return STAIRS * 8 + b"\xe4" * 64 + struct.pack("<16b", *scales) + f16(0.25), values


# ---- edge cases and random blocks ------------------------------------------------------------------------------------

SCALES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xBC00]  # 0, -0, subnormals, the largest finite, -1
FILLS = [0xFF, 0x00, 0x7F, 0x80]                           # every quant (and inner scale) at an end of its range


def set_scales(block, places, word):
    for n, at in enumerate(places):
        block[at:at + 2] = struct.pack("<H", word ^ (0x8000 if n else 0))  # the second scale gets the other sign
    return block


def block_type(places):
    """Makes the edge and random blocks of a type whose f16 scales lie at these byte offsets."""
    def make(rng, size):
        for word in SCALES:
            yield set_scales(bytearray(rng.bytes(size)), places, word)
        for fill in FILLS:
            yield set_scales(bytearray([fill]) * size, places, 0x2E66)
        for _ in range(N_RANDOM):
            block = bytearray(rng.bytes(size))
            for at in places:
                block[at + 1] = block[at + 1] & 0xBF  # exponent below 16: finite
            yield block
    return make


def exponent_type():
    """The same for a type whose scale is one byte, an exponent; 255 would be a NaN."""
    def make(rng, size):
        for scale in (0, 1, 2, 3, 126, 127, 250, 251, 253, 254):
            yield bytes([scale]) + rng.bytes(size - 1)
        for fill in FILLS:
            yield bytes([120]) + bytes([fill]) * (size - 1)
        for scale in rng.integers(0, 255, N_RANDOM):
            yield bytes([scale]) + rng.bytes(size - 1)
    return make


def byte_scales_type(n):
    """The same for a type whose first n bytes are scales: any byte is one."""
    def make(rng, size):
        for first in range(0, 256, n):
            yield bytes((first + i) % 256 for i in range(n)) + rng.bytes(size - n)
        for fill in FILLS:
            yield bytes([0x38]) * n + bytes([fill]) * (size - n)
    return make


def float_type(infinity):
    """Edge and random values of a 16-bit float type: both infinities, the values next to 0 and 1, anything but NaN."""
    def make(rng, size):
        one = 0x3C00 if infinity == 0x7C00 else 0x3F80
        for w in (0, infinity, infinity - 1, one - 1, one + 1, 2):
            yield struct.pack("<H", w)
            yield struct.pack("<H", w | 0x8000)
        for w in rng.integers(0, 0x10000, 64):
            if w & 0x7FFF <= infinity:
                yield struct.pack("<H", int(w))
    return make


TYPES = {
    T.F16: (hand_f16, float_type(0x7C00)), T.BF16: (hand_bf16, float_type(0x7F80)),
    T.Q8_0: (hand_q8_0, block_type([0])), T.Q4_0: (hand_q4_0, block_type([0])),
    T.Q4_1: (hand_q4_1, block_type([0, 2])), T.Q5_0: (hand_q5_0, block_type([0])),
    T.Q5_1: (hand_q5_1, block_type([0, 2])), T.IQ4_NL: (hand_iq4_nl, block_type([0])),
    T.MXFP4: (hand_mxfp4, exponent_type()), T.NVFP4: (hand_nvfp4, byte_scales_type(4)),
    T.IQ2_XXS: (hand_iq2_xxs, block_type([0])), T.IQ2_XS: (hand_iq2_xs, block_type([0])),
    T.IQ2_S: (hand_iq2_s, block_type([0])), T.IQ3_XXS: (hand_iq3_xxs, block_type([0])),
    T.IQ3_S: (hand_iq3_s, block_type([0])),
    T.Q2_K: (hand_q2_k, block_type([80, 82])), T.Q3_K: (hand_q3_k, block_type([108])),
    T.IQ4_XS: (hand_iq4_xs, block_type([0])),
    T.Q4_K: (hand_q4_k, block_type([0, 2])), T.Q5_K: (hand_q5_k, block_type([0, 2])),
    T.Q6_K: (hand_q6_k, block_type([208])),
}


def dequantize(raw, qtype, size):
    return np.asarray(gguf.dequantize(np.frombuffer(raw, np.uint8).reshape(-1, size), qtype), dtype="<f4").ravel()


def make(qtype, hand, others):
    weights, size = gguf.GGML_QUANT_SIZES[qtype]
    head, values = hand()
    got = dequantize(head, qtype, size)
    assert got.tobytes() == np.array(values, dtype="<f4").tobytes(), f"{qtype.name}: the hand-computed block is wrong"
    rng = np.random.default_rng([SEED, int(qtype)])
    raw = head + b"".join(bytes(b) for b in others(rng, size))
    values = dequantize(raw, qtype, size)
    assert not np.isnan(values).any() and len(raw) % size == 0
    path = HERE / f"{qtype.name.lower()}.bin"
    path.write_bytes(b"WQNT" + struct.pack("<IIII", 1, len(raw) // size, size, weights) + raw + values.tobytes())
    print(f"{path.name}: {len(raw) // size} blocks of {size} bytes and {weights} weights, {path.stat().st_size} bytes")


if __name__ == "__main__":
    for kind, functions in TYPES.items():
        make(kind, *functions)
