"""The layers that are not attention, in float64 numpy, one token after another, as the equations have it: gated delta
net, Mamba-2, short convolution, and routers that weigh by sigmoid.

check_golden.py computes whole models with it, make_drift_golden.py long runs. Shapes have the token first. What it does
not do: chunks, or anything fast.
"""
import numpy as np

L2_EPS = 1e-6  # of the length of q and k in a delta net


def silu(x):
    return x * sigmoid(x)


def sigmoid(x):
    return np.where(x >= 0, 1 / (1 + np.exp(-np.abs(x))), np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x))))


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def rms(x, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


def convolve(x, taps, bias=0.0):
    """x [n_tok, channels], taps [channels, kernel], the last one for the newest row; before the first row are zeros."""
    kernel = taps.shape[1]
    rows = np.concatenate([np.zeros((kernel - 1, x.shape[1])), x])
    return sum(rows[i:i + len(x)] * taps[:, i] for i in range(kernel)) + bias


# ---- states ----------------------------------------------------------------------------------------------------------

def delta_step(state, q, k, v, g, beta):
    """One token of all value heads: state [heads, dk, dv] changes in place; q, k [heads, dk], v [heads, dv], g and beta
    [heads]. Returns [heads, dv]."""
    state *= np.exp(g)[:, None, None]
    error = beta[:, None] * (v - np.einsum("hkv,hk->hv", state, k))
    state += k[:, :, None] * error[:, None, :]
    return np.einsum("hkv,hk->hv", state, q)


def mamba2_step(state, x, dt, a, b, c):
    """One token of all heads: state [heads, p, n] changes in place; x [heads, p], dt and a [heads], b and c [heads, n],
    those of a head's group. Returns [heads, p], without the skip."""
    state *= np.exp(dt * a)[:, None, None]
    state += (dt[:, None] * x)[:, :, None] * b[:, None, :]
    return np.einsum("hpn,hn->hp", state, c)


# ---- layers ----------------------------------------------------------------------------------------------------------

def delta_net(x, w, r, eps, tiled):
    """x [n_tok, d_model]; w: tensors by their names without "blk.N."; r: sizes. `tiled`: value head h reads key head
    h mod groups, else h / (heads / groups)."""
    n_tok, per_key, dk = len(x), r.heads // r.groups, r.state
    dv = r.inner // r.heads
    key = [h % r.groups if tiled else h // per_key for h in range(r.heads)]
    if "ssm_in.weight" in w:
        parts = np.split((x @ w["ssm_in.weight"].T).reshape(n_tok, r.groups, -1),
                         np.cumsum([dk, dk, per_key * dv]), axis=2)
        q, k, v, z = (p.reshape(n_tok, -1) for p in parts)
        m = np.concatenate([q, k, v], axis=1)
    else:
        m, z = x @ w["attn_qkv.weight"].T, x @ w["attn_gate.weight"].T
    if "ssm_ba.weight" in w:
        both = (x @ w["ssm_ba.weight"].T).reshape(n_tok, r.groups, 2, per_key)
        beta, alpha = (both[:, :, i].reshape(n_tok, -1) for i in range(2))
    else:
        beta, alpha = x @ w["ssm_beta.weight"].T, x @ w["ssm_alpha.weight"].T
    beta = sigmoid(beta)
    g = w["ssm_a"] * softplus(alpha + w["ssm_dt.bias"])
    c = silu(convolve(m, w["ssm_conv1d.weight"]))
    q, k, v = np.split(c, np.cumsum([dk * r.groups] * 2), axis=1)
    q, k = (y.reshape(n_tok, r.groups, dk) for y in (q, k))
    q, k = (y / np.sqrt((y * y).sum(-1, keepdims=True) + L2_EPS) for y in (q, k))
    v, z = v.reshape(n_tok, r.heads, dv), z.reshape(n_tok, r.heads, dv)
    state, out = np.zeros((r.heads, dk, dv)), np.empty((n_tok, r.heads, dv))
    for t in range(n_tok):
        out[t] = delta_step(state, q[t, key] / np.sqrt(dk), k[t, key], v[t], g[t], beta[t])
    out = rms(out, eps) * w["ssm_norm.weight"] * silu(z)
    return out.reshape(n_tok, -1) @ w["ssm_out.weight"].T


def mamba2(x, w, r, eps):
    n_tok, p, bc = len(x), r.inner // r.heads, r.groups * r.state
    z, m, dt = np.split(x @ w["ssm_in.weight"].T, np.cumsum([r.inner, r.inner + 2 * bc]), axis=1)
    dt = softplus(dt + w["ssm_dt.bias"])
    m = silu(convolve(m, w["ssm_conv1d.weight"], w["ssm_conv1d.bias"]))
    u, b, c = np.split(m, np.cumsum([r.inner, bc]), axis=1)
    u = u.reshape(n_tok, r.heads, p)
    b, c = (np.repeat(y.reshape(n_tok, r.groups, -1), r.heads // r.groups, axis=1) for y in (b, c))
    state, out = np.zeros((r.heads, p, r.state)), np.empty((n_tok, r.heads, p))
    for t in range(n_tok):
        out[t] = mamba2_step(state, u[t], dt[t], w["ssm_a"][:, 0], b[t], c[t])
    out = (out + w["ssm_d"] * u).reshape(n_tok, -1) * silu(z)
    out = rms(out.reshape(n_tok, r.groups, -1), eps) * w["ssm_norm.weight"]
    return out.reshape(n_tok, -1) @ w["ssm_out.weight"].T


def short_conv(x, w):
    b, c, u = np.split(x @ w["shortconv.in_proj.weight"].T, 3, axis=1)
    return (c * convolve(b * u, w["shortconv.conv.weight"])) @ w["shortconv.out_proj.weight"].T


# ---- routers ---------------------------------------------------------------------------------------------------------

def choose_by_sigmoid(logits, bias, n_used, groups=(1, 1)):
    """One token's experts and their weights, which add up to 1. The bias has a say in the choice alone; of groups[0]
    groups the groups[1] stay whose two best experts are best."""
    score = sigmoid(logits)
    choice = (score + bias).reshape(groups[0], -1)
    best = np.sort(choice, axis=1)[:, -2:].sum(1)
    choice[np.argsort(-best, kind="stable")[groups[1]:]] = -np.inf
    chosen = np.argsort(-choice.reshape(-1), kind="stable")[:n_used]
    return chosen, score[chosen] / score[chosen].sum()
