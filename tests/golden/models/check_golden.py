#!/usr/bin/env python3
"""Checks <name>.golden and <name>.bf16kv.golden of this folder against a second, independent implementation: float64
numpy on the GGUF file.

By hand:  python3 check_golden.py [name ...]     Needs numpy and gguf, nothing else.

It reads metadata and tensors from the file alone, as a runtime must: RoPE pairs are (2i, 2i+1) for `llama`,
`smollm3`, `granite`, `granitehybrid` and `glm4`, and (i, i + rope_dim / 2) for the others, scaled RoPE comes from the
rope.scaling keys or the tensors rope_freqs.weight and rope_factors_*.weight. Layers that are not attention are in
recurrent_layers.py. Slow and plain on purpose. Exit status 1 if a golden is further than TOLERANCE from it, or top-1
differs at any position.
"""
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import gguf
import numpy as np
from recurrent_layers import choose_by_sigmoid, delta_net, mamba2, short_conv, sigmoid

HERE = Path(__file__).resolve().parent
TOLERANCE = 2e-5         # max |difference| / max |logit|: float32 noise of the golden
TOLERANCE_BF16KV = 1e-3  # there, float32 noise can move a key or value to the neighbouring bf16 number


def read_golden(path):
    raw = path.read_bytes()
    magic, version, n_tok, vocab = struct.unpack_from("<4sIII", raw)
    assert (magic, version) == (b"WGLD", 1) and len(raw) == 16 + 4 * n_tok + 4 * n_tok * vocab, path.name
    return np.frombuffer(raw, "<i4", n_tok, 16), np.frombuffer(raw, "<f4", offset=16 + 4 * n_tok).reshape(n_tok, vocab)


class Model:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
        self.w = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float64) for t in reader.tensors}
        for name in [name for name in self.w if "gate_up_exps" in name]:
            gate, up = np.split(self.w[name], 2, axis=1)
            self.w |= {name.replace("_up", ""): gate, name.replace("gate_", ""): up}
        self.arch = self.keys["general.architecture"]
        self.n_heads = self.key("attention.head_count")
        self.n_layers = self.key("block_count") - self.key("nextn_predict_layers", 0)
        kv_heads = self.key("attention.head_count_kv", self.n_heads)  # with recurrent layers one number each, 0 there
        self.kv_heads = kv_heads if isinstance(kv_heads, list) else [kv_heads] * self.n_layers
        self.n_kv_heads = max(self.kv_heads)
        self.head_dim = self.key("attention.key_length", self.key("embedding_length") // self.n_heads)
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.rope_dim = self.key("rope.dimension_count", self.head_dim)
        self.adjacent = self.arch in ("llama", "smollm3", "granite", "granitemoe", "granitehybrid", "glm4", "mistral3")
        self.nemotron = self.arch in ("nemotron_h", "nemotron_h_moe")
        self.gemma = self.arch in ("gemma2", "gemma3")
        self.scale = self.key("attention.scale", self.head_dim ** -0.5)
        assert self.w["token_embd.weight"].shape[0] == len(self.keys["tokenizer.ggml.tokens"])

    def key(self, name, default=None):
        value = self.keys.get(f"{self.arch}.{name}", default)
        assert value is not None, name
        return value

    def rope_frequencies(self):
        """(radians per position [rope_dim / 2], factor on the rotated vectors)."""
        half = self.rope_dim // 2
        base = self.key("rope.freq_base", 10000.0)
        freq = base ** (-np.arange(half) / half) / self.w.get("rope_freqs.weight", np.ones(half))
        if "rope_factors_long.weight" in self.w:  # for a session of the whole trained context
            is_long = self.key("context_length") > self.key("rope.scaling.original_context_length")
            return freq / self.w[f"rope_factors_{'long' if is_long else 'short'}.weight"], self.key(
                "rope.scaling.attn_factor")
        kind, factor = self.key("rope.scaling.type", "none"), self.key("rope.scaling.factor", 1.0)
        if kind == "linear":
            return freq / factor, 1.0
        if kind != "yarn":
            return freq, 1.0
        turns = self.key("rope.scaling.original_context_length") / (2 * np.pi)  # of pair 0 in the original context
        index = half * np.log(turns / np.array([32.0, 1.0])) / np.log(base)     # pairs making 32 turns and 1 turn
        if self.arch != "gpt-oss":
            index = np.floor(index[0]), np.ceil(index[1])
        low, high = max(index[0], 0), min(index[1], self.head_dim - 1)
        blend = np.clip((np.arange(half) - low) / max(high - low, 1e-3), 0, 1)
        magnitude = 1 + 0.1 * np.log(factor)
        if (part := self.key("rope.scaling.yarn_log_multiplier", 0.0)):
            magnitude /= 1 + 0.1 * part * np.log(factor)
        return freq * (1 - blend + blend / factor), magnitude    # blend 0: as trained, 1: stretched

    def is_local(self, layer):
        """Whether a layer sees only a window; those of gemma3 also rotate by a base of their own."""
        every = {"gemma2": 2, "gpt-oss": 2, "gemma3": 6, "phi3": 10**9}.get(self.arch, 1)
        every = self.key("attention.sliding_window_pattern", every)
        return self.key("attention.sliding_window", 0) != 0 and (layer + 1) % every != 0

    def rotate(self, x, layer):
        """x [n_tok, heads, head_dim], positions 0.."""
        if self.nemotron or not self.key("rope.scaling.finetuned", True):
            return x
        if self.arch == "smollm3" and layer % 4 == 3:
            return x
        freq, magnitude = self.rope_frequencies()
        if self.arch == "gemma3" and self.is_local(layer):
            freq, magnitude = 10000.0 ** (-np.arange(self.head_dim // 2) / (self.head_dim // 2)), 1.0
        angle = np.arange(len(x))[:, None, None] * freq
        c, s = np.cos(angle) * magnitude, np.sin(angle) * magnitude
        out = x.copy()
        d, h = self.rope_dim, self.rope_dim // 2
        a, b = (np.s_[..., 0:d:2], np.s_[..., 1:d:2]) if self.adjacent else (np.s_[..., :h], np.s_[..., h:d])
        out[a], out[b] = x[a] * c - x[b] * s, x[a] * s + x[b] * c
        return out

    def norm(self, x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.eps) * self.w[name]

    def project(self, x, name):
        y = x @ self.w[name + ".weight"].T + self.w.get(name + ".bias", 0.0)
        return y.reshape(len(x), -1, self.head_dim)

    def attention(self, x, b, layer, store):
        if b + "attn_qkv.weight" in self.w:
            q, k, v = np.split(self.project(x, b + "attn_qkv"), np.cumsum([self.n_heads, self.n_kv_heads]), axis=1)
        else:
            q, k, v = (self.project(x, b + n) for n in ("attn_q", "attn_k", "attn_v"))
        gate = np.inf
        if q.shape[1] == 2 * self.n_heads:
            q, gate = q[:, 0::2], q[:, 1::2].reshape(len(x), -1)
        if self.arch == "olmo2":  # over all heads
            q, k = (self.norm(y.reshape(len(x), -1), f"{b}attn_{n}_norm.weight").reshape(y.shape)
                    for y, n in ((q, "q"), (k, "k")))
        elif b + "attn_q_norm.weight" in self.w:
            q, k = self.norm(q, b + "attn_q_norm.weight"), self.norm(k, b + "attn_k_norm.weight")
        q, k, v = self.rotate(q, layer), store(self.rotate(k, layer)), store(v)
        if beta := self.key("attention.temperature_scale", 0.0):
            steps = np.arange(len(x)) // self.key("rope.scaling.original_context_length")
            q = q * (1 + beta * np.log1p(steps))[:, None, None]
        seen = np.tri(len(x), dtype=bool)
        if self.is_local(layer):
            seen &= ~np.tri(len(x), k=-self.key("attention.sliding_window"), dtype=bool)
        group = self.n_heads // self.n_kv_heads
        out = np.empty_like(q)
        for h in range(self.n_heads):
            s = cap(q[:, h] @ k[:, h // group].T * self.scale, self.key("attn_logit_softcapping", 0.0))
            s = np.where(seen, s, -np.inf)
            sink = self.w.get(b + "attn_sinks.weight", np.full(self.n_heads, -np.inf))[h]
            most = np.maximum(s.max(1, keepdims=True), sink)
            p = np.exp(s - most)
            out[:, h] = p / (p.sum(1, keepdims=True) + np.exp(sink - most)) @ v[:, h // group]
        return out.reshape(len(x), -1) * sigmoid(gate)

    def is_attention(self, layer):
        if self.arch in ("qwen35", "qwen35moe", "qwen3next"):
            return (layer + 1) % self.key("full_attention_interval") == 0
        return self.kv_heads[layer] != 0

    def mixer(self, x, b, layer, store):
        """What a layer's first half adds, attention or not."""
        if self.is_attention(layer):
            h = self.attention(x, b, layer, store) @ self.w[b + "attn_output.weight"].T
            return h + self.w.get(b + "attn_output.bias", 0.0)
        if self.nemotron and self.key("feed_forward_length")[layer]:
            return self.feed_forward(x, b)
        w = {name[len(b):]: value for name, value in self.w.items() if name.startswith(b)}
        if "shortconv.l_cache" in "".join(self.keys):
            assert w["shortconv.conv.weight"].shape[1] == self.key("shortconv.l_cache")
            return short_conv(x, w)
        sizes = SimpleNamespace(state=self.key("ssm.state_size"), groups=self.key("ssm.group_count"),
                                heads=self.key("ssm.time_step_rank"), inner=self.key("ssm.inner_size"))
        assert w["ssm_conv1d.weight"].shape[1] == self.key("ssm.conv_kernel")
        if "ssm_d" in w:
            return mamba2(x, w, sizes, self.eps)
        return delta_net(x, w, sizes, self.eps, tiled=self.arch != "qwen3next")

    def choose(self, logits, b):
        """One token's experts and their weights."""
        n_used = self.key("expert_used_count")
        if self.nemotron or self.key("expert_gating_func", 1) == 2:
            groups = self.key("expert_group_count", 1), self.key("expert_group_used_count", 1)
            chosen, share = choose_by_sigmoid(logits, self.w[b + "exp_probs_b.bias"], n_used, groups)
            return chosen, share * self.key("expert_weights_scale", 1.0)
        chosen = np.argsort(-logits, kind="stable")[:n_used]
        share = np.exp(logits - logits.max())
        return chosen, share[chosen] / (share.sum() if self.arch == "qwen2moe" else share[chosen].sum())

    def experts(self, x, b):
        """Token by token: the experts that the router chooses, and the shared one."""
        w, out = self.w, np.zeros_like(x)
        gates = x @ w[b + "ffn_gate_inp.weight"].T + w.get(b + "ffn_gate_inp.bias", 0.0)
        inputs = x @ w[b + "ffn_latent_down.weight"].T if b + "ffn_latent_down.weight" in w else x
        sums = np.zeros_like(inputs)
        for t, row in enumerate(inputs):
            for e, share in zip(*self.choose(gates[t], b)):
                up = w[b + "ffn_up_exps.weight"][e] @ row
                if self.nemotron:
                    inner = np.maximum(up, 0) ** 2
                else:
                    gate = w[b + "ffn_gate_exps.weight"][e] @ row
                    inner = gate / (1 + np.exp(-gate)) * up
                if self.arch == "gpt-oss":
                    gate = np.minimum(gate + w[b + "ffn_gate_exps.bias"][e], 7)
                    up = np.clip(up + w[b + "ffn_up_exps.bias"][e], -7, 7)
                    inner = gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
                down = w[b + "ffn_down_exps.weight"][e] @ inner
                sums[t] += share * (down + w.get(b + "ffn_down_exps.bias", np.zeros((e + 1, len(row))))[e])
        out += sums @ w[b + "ffn_latent_up.weight"].T if b + "ffn_latent_up.weight" in w else sums
        if b + "ffn_up_shexp.weight" in w:
            inner = x @ w[b + "ffn_up_shexp.weight"].T
            if self.nemotron:
                inner = np.maximum(inner, 0) ** 2
            else:
                gate = x @ w[b + "ffn_gate_shexp.weight"].T
                inner = gate / (1 + np.exp(-gate)) * inner
            open_ = x @ w[b + "ffn_gate_inp_shexp.weight"] if b + "ffn_gate_inp_shexp.weight" in w else np.inf
            out += inner @ w[b + "ffn_down_shexp.weight"].T / (1 + np.exp(-np.reshape(open_, (-1, 1))))
        return out

    def feed_forward(self, h, b):
        w = self.w
        if b + "ffn_gate_inp.weight" in w:
            return self.experts(h, b)
        if self.nemotron:
            return np.maximum(h @ w[b + "ffn_up.weight"].T, 0) ** 2 @ w[b + "ffn_down.weight"].T
        if b + "ffn_gate.weight" in w:
            gate, up = (h @ w[b + f"ffn_{n}.weight"].T + w.get(b + f"ffn_{n}.bias", 0.0) for n in ("gate", "up"))
        else:
            gate, up = np.split(h @ w[b + "ffn_up.weight"].T, 2, axis=1)
        inner = (gelu(gate) if self.gemma else gate / (1 + np.exp(-gate))) * up
        return inner @ w[b + "ffn_down.weight"].T + w.get(b + "ffn_down.bias", 0.0)

    def logits(self, tokens, store):
        w = self.w
        residual = self.key("residual_scale", 1.0)
        embedding = self.key("embedding_length") ** 0.5 if self.gemma else self.key("embedding_scale", 1.0)
        x = w["token_embd.weight"][tokens] * embedding

        def normed(y, name):
            return self.norm(y, name) if name in w else y

        for i in range(self.n_layers):
            b = f"blk.{i}."
            h = self.mixer(normed(x, b + "attn_norm.weight"), b, i, store)
            # What is called the norm after attention is that before the feed-forward network in these.
            before = self.arch in ("gpt-oss", "glm4moe", "qwen35", "qwen35moe", "qwen3next")
            x = x + residual * (h if before else normed(h, b + "post_attention_norm.weight"))
            if self.nemotron:
                continue
            h = self.feed_forward(normed(x, b + ("post_attention_norm.weight" if before else "ffn_norm.weight")), b)
            x = x + residual * normed(h, b + "post_ffw_norm.weight")
        last = "token_embd_norm.weight" if self.arch in ("lfm2", "lfm2moe") else "output_norm.weight"
        y = self.norm(x, last) @ w.get("output.weight", w["token_embd.weight"]).T
        return cap(y / self.key("logit_scale", 1.0), self.key("final_logit_softcapping", 0.0))


def cap(x, limit):
    return limit * np.tanh(x / limit) if limit else x


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def to_bf16(x):
    """Rounds to the nearest bf16 number, ties to even; finite input."""
    u = x.astype(np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) & 0xFFFF0000).view(np.float32).astype(np.float64)


def check(path, store, tolerance):
    tokens, want = read_golden(path)
    got = Model(HERE / (path.name.split(".")[0] + ".gguf")).logits(tokens, store)
    worst = np.abs(got - want).max() / np.abs(want).max()
    same = int((got.argmax(1) == want.argmax(1)).sum())
    good = bool(worst <= tolerance and same == len(tokens))
    print(f"{path.name}: {worst:.1e} of the largest logit, same top-1 {same}/{len(tokens)}{'' if good else '  FAILED'}")
    return good


def main():
    good, seen = True, 0
    for path in sorted(HERE.glob("*.golden")):
        name, *what = path.name.split(".")
        if what not in (["golden"], ["bf16kv", "golden"]) or (len(sys.argv) > 1 and name not in sys.argv[1:]):
            continue  # the others are those of make_policy_golden.py
        seen += 1
        bf16 = path.name.endswith(".bf16kv.golden")
        good &= check(path, to_bf16 if bf16 else lambda x: x, TOLERANCE_BF16KV if bf16 else TOLERANCE)
    return 0 if good and seen else 1


if __name__ == "__main__":
    sys.exit(main())
