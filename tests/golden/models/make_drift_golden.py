#!/usr/bin/env python3
"""Makes delta_net.drift and mamba2.drift: what a recurrent layer holds and gives after up to 10,000 tokens, in float64.

By hand:  python3 make_drift_golden.py     Needs numpy alone, and writes the same bytes again.

A layer without its matrices: the rows that a token's projection would give come from a generator of integers, so that a
test can make the same ones without reading megabytes. README.md has the format. It also runs the layer in float32, one
rounding per operation, and prints how far that is from float64 at each mark: what a good implementation can reach.
"""
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from recurrent_layers import L2_EPS, delta_step, mamba2_step, rms, sigmoid, silu, softplus

HERE = Path(__file__).resolve().parent
N_TOK, MARKS = 10000, (1, 2, 63, 64, 65, 1000, 2500, 5000, 7500, 10000)
SCALE = 2.0  # rows are from -SCALE to SCALE
EPS = 1e-6
DELTA = SimpleNamespace(kind=0, seed=20, kernel=4, groups=2, heads=4, state=16, inner=64)
MAMBA = SimpleNamespace(kind=1, seed=21, kernel=4, groups=2, heads=4, state=16, inner=64)
MEMORY = (4.0, 60.0, 900.0, 14000.0)  # about so many tokens until a head has forgotten two thirds


def sizes_of(r):
    """(channels of the convolution, numbers per row)."""
    channels = r.inner + 2 * r.groups * r.state
    return channels, channels + r.inner + (2 if r.kind == 0 else 1) * r.heads


def rows_of(r):
    """f32 [N_TOK, numbers]: x = x * 1664525 + 1013904223 mod 2^32, and of its upper 24 bits a number, exactly."""
    x, seed = np.empty(N_TOK * sizes_of(r)[1], dtype=np.uint32), r.seed
    for i in range(len(x)):
        seed = (seed * 1664525 + 1013904223) % 2**32
        x[i] = seed
    unit = (x >> 8).astype(np.float64) / 2**24
    return ((2 * unit - 1) * SCALE).astype(np.float32).reshape(N_TOK, -1)


def parameters(r):
    """The layer's vectors by their names in a file, f32."""
    rng = np.random.default_rng(r.seed)
    channels, _ = sizes_of(r)
    dt = np.full(r.heads, -1.0) + 0.5 * rng.standard_normal(r.heads)
    p = {"ssm_conv1d.weight": 0.5 * rng.standard_normal((channels, r.kernel)), "ssm_dt.bias": dt,
         "ssm_a": -1.0 / (np.array(MEMORY) * softplus(dt))}
    if r.kind == 1:
        p |= {"ssm_conv1d.bias": 0.3 * rng.standard_normal(channels),
              "ssm_d": 1.0 + 0.5 * rng.standard_normal(r.heads),
              "ssm_norm.weight": 1.0 + 0.2 * rng.standard_normal(r.inner)}
    else:
        p |= {"ssm_norm.weight": 1.0 + 0.2 * rng.standard_normal(r.inner // r.heads)}
    return {name: value.astype(np.float32) for name, value in p.items()}


class Layer:
    """One layer's state, in one type of numbers."""

    def __init__(self, r, p, dtype):
        self.r, self.p, self.dtype = r, {name: value.astype(dtype) for name, value in p.items()}, dtype
        self.rows = np.zeros((r.kernel - 1, sizes_of(r)[0]), dtype)
        inner = r.inner // r.heads
        self.state = np.zeros((r.heads, r.state, inner) if r.kind == 0 else (r.heads, inner, r.state), dtype)

    def step(self, row):
        """The layer's output for one token, before its last matrix."""
        return (self.delta_net if self.r.kind == 0 else self.mamba2)(row.astype(self.dtype))

    def convolve(self, m):
        rows = np.concatenate([self.rows, m[None]])
        self.rows = rows[1:]
        taps = self.p["ssm_conv1d.weight"].T
        return silu(sum(rows[i] * taps[i] for i in range(self.r.kernel)) + self.p.get("ssm_conv1d.bias", self.dtype(0)))

    def delta_net(self, row):
        r, qk = self.r, self.r.groups * self.r.state
        m, z, beta, alpha = np.split(row, np.cumsum([2 * qk + r.inner, r.inner, r.heads]))
        q, k, v = np.split(self.convolve(m), [qk, 2 * qk])
        q, k = (y.reshape(r.groups, -1) for y in (q, k))
        q, k = (y / np.sqrt((y * y).sum(-1, keepdims=True) + self.dtype(L2_EPS)) for y in (q, k))
        g = self.p["ssm_a"] * softplus(alpha + self.p["ssm_dt.bias"])
        key = np.arange(r.heads) % r.groups
        out = delta_step(self.state, q[key] / self.dtype(np.sqrt(r.state)), k[key], v.reshape(r.heads, -1), g,
                         sigmoid(beta))
        return (rms(out, self.dtype(EPS)) * self.p["ssm_norm.weight"] * silu(z.reshape(out.shape))).reshape(-1)

    def mamba2(self, row):
        r, bc = self.r, self.r.groups * self.r.state
        z, m, dt = np.split(row, [r.inner, 2 * r.inner + 2 * bc])
        x, b, c = np.split(self.convolve(m), [r.inner, r.inner + bc])
        dt = softplus(dt + self.p["ssm_dt.bias"])
        x = x.reshape(r.heads, -1)
        b, c = (np.repeat(y.reshape(r.groups, -1), r.heads // r.groups, axis=0) for y in (b, c))
        out = mamba2_step(self.state, x, dt, self.p["ssm_a"], b, c) + self.p["ssm_d"][:, None] * x
        out = (out.reshape(-1) * silu(z)).reshape(r.groups, -1)
        return rms(out, self.dtype(EPS)).reshape(-1) * self.p["ssm_norm.weight"]


ORDER = ("ssm_conv1d.weight", "ssm_conv1d.bias", "ssm_a", "ssm_dt.bias", "ssm_d", "ssm_norm.weight")


def make(name, r):
    p, rows = parameters(r), rows_of(r)
    exact, single = Layer(r, p, np.float64), Layer(r, p, np.float32)
    out = struct.pack("<4s10If", b"WGDR", 1, r.kind, N_TOK, r.kernel, r.groups, r.heads, r.state, r.inner, r.seed,
                      len(MARKS), EPS)
    out += b"".join(p[key].astype("<f4").tobytes() for key in ORDER if key in p)
    out += np.array(MARKS, dtype="<u4").tobytes()
    print(f"{name}: float32 from float64, state and output relative to the largest of a head")
    for t, row in enumerate(rows):
        y, y32 = exact.step(row), single.step(row)
        if t + 1 not in MARKS:
            continue
        out += exact.rows.astype("<f4").tobytes() + exact.state.astype("<f8").tobytes() + y.astype("<f8").tobytes()
        top = np.abs(exact.state).max((1, 2))
        apart = np.abs(single.state - exact.state).max((1, 2)) / top
        print(f"  {t + 1:6}: largest {top.round(3)}, state {apart.max():.1e}, "
              f"output {np.abs(y32 - y).max() / np.abs(y).max():.1e}")
    (HERE / f"{name}.drift").write_bytes(out)


def main():
    make("delta_net", DELTA)
    make("mamba2", MAMBA)


if __name__ == "__main__":
    main()
