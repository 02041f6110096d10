"""Reads and writes the part of GGUF v3 that the tiny reasoner needs: metadata, and F32, F16 and Q8_0 tensors.

Shapes here are NumPy's, slowest axis first; GGUF stores them the other way round.
"""
import struct

import numpy as np

ALIGNMENT = 32
F32, F16, Q8_0 = 0, 1, 8  # tensor types
QBLOCK = 32               # weights of one Q8_0 block: an f16 scale, then that many signed bytes
SCALARS = {"u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"), "i32": (5, "<i"),
           "f32": (6, "<f"), "bool": (7, "<?"), "u64": (10, "<Q"), "i64": (11, "<q"), "f64": (12, "<d")}
NAMES = {number: name for name, (number, _) in SCALARS.items()} | {8: "str", 9: "array"}


def to_q8_0(weights):
    """Blocks of 32: scale = largest magnitude / 127. Rounds halves away from zero, as is usual for this type."""
    blocks = np.ascontiguousarray(weights, np.float32).reshape(-1, QBLOCK)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    inverse = np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale > 0)
    scaled = blocks * inverse
    out = np.empty(len(blocks), np.dtype([("scale", "<f2"), ("q", "i1", QBLOCK)]))
    out["scale"] = scale[:, 0]
    out["q"] = np.trunc(scaled + np.copysign(np.float32(0.5), scaled))
    return out.tobytes()


def from_q8_0(data, shape):
    blocks = np.frombuffer(data, np.dtype([("scale", "<f2"), ("q", "i1", QBLOCK)]))
    return (blocks["scale"].astype(np.float32)[:, None] * blocks["q"]).reshape(shape)


def n_bytes(kind, shape):
    n = int(np.prod(shape))
    return {F32: 4 * n, F16: 2 * n, Q8_0: n // QBLOCK * 34}[kind]


def pack_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def pack_value(kind, value):
    """kind: a name of SCALARS, "str", or "[...]" for an array of one of these. The type's number comes first."""
    if kind.startswith("["):
        inner = kind[1:-1]
        number = 8 if inner == "str" else SCALARS[inner][0]
        return struct.pack("<IIQ", 9, number, len(value)) + b"".join(pack_value(inner, v)[4:] for v in value)
    if kind == "str":
        return struct.pack("<I", 8) + pack_string(value)
    number, form = SCALARS[kind]
    return struct.pack("<I", number) + struct.pack(form, value)


def write(path, metadata, tensors):
    """metadata: (key, kind, value) each. tensors: (name, type, float32 array) each."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    head += b"".join(pack_string(key) + pack_value(kind, value) for key, kind, value in metadata)
    data = bytearray()
    for name, kind, array in tensors:
        data += bytes(-len(data) % ALIGNMENT)
        dims = array.shape[::-1]
        head += pack_string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += to_q8_0(array) if kind == Q8_0 else np.asarray(array, "<f2" if kind == F16 else "<f4").tobytes()
    data += bytes(-len(data) % ALIGNMENT)
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGNMENT) + data)


class Reader:
    """metadata: key -> (kind, value). tensors: name -> (type, shape). For files that are known to be sound only."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read()
        self.at = 0
        magic, version, n_tensors, n_keys = self._take("<4sIQQ")
        if magic != b"GGUF" or version != 3:
            raise ValueError(f"{path}: not a GGUF v3 file")
        self.metadata = {self._string(): self._value() for _ in range(n_keys)}
        self.tensors, self.offsets = {}, {}
        for _ in range(n_tensors):
            name = self._string()
            (n_dims,) = self._take("<I")
            shape = self._take(f"<{n_dims}Q")[::-1]
            kind, self.offsets[name] = self._take("<IQ")
            self.tensors[name] = (kind, shape)
        self.start = self.at + -self.at % ALIGNMENT

    def _take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def _string(self):
        (n,) = self._take("<Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def _value(self, number=None):
        number = self._take("<I")[0] if number is None else number
        name = NAMES[number]
        if name == "array":
            inner, n = self._take("<IQ")
            return f"[{NAMES[inner]}]", [self._value(inner)[1] for _ in range(n)]
        return name, self._string() if name == "str" else self._take(SCALARS[name][1])[0]

    def array(self, name):
        kind, shape = self.tensors[name]
        start = self.start + self.offsets[name]
        data = self.data[start:start + n_bytes(kind, shape)]
        if kind == Q8_0:
            return from_q8_0(data, shape)
        return np.frombuffer(data, "<f2" if kind == F16 else "<f4").astype(np.float32).reshape(shape)
