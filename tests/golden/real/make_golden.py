#!/usr/bin/env python3
"""Makes the golden files of this folder: what a float64 numpy implementation, independent of Weir, computes from the
dequantised weights of the two real models. By hand, with the files that `./dev real-models DIR` fetched:

    python3 make_golden.py DIR WEIR [name ...]     Needs numpy and gguf. WEIR is the weir program, for tokens alone.

The input is the first 512 tokens of the reporting text. The logits of 512 positions are 100 MB and more, so a golden
file has a sample of each position that is enough for a KL divergence; README.md says how, and how good it is.
"""
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np

HERE = Path(__file__).resolve().parent
MODELS = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m.Q4_K_M.gguf"}
TEXT = "opticks.txt"
N_TOKENS = 512
N_TOP, N_DRAWN = 64, 4  # tokens listed one by one; drawn of every further doubling of the rank
# What a chat begins with; its greedy continuation is in the file of the model that has a chat template.
CHAT = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n")
N_GREEDY = 40


def to_bf16(x):
    """The nearest bf16 numbers, ties to even, of what is rounded to float32 first."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits += 0x7fff + ((bits >> np.uint64(16)) & np.uint64(1))
    return (bits & np.uint64(0xffff0000)).astype(np.uint32).view(np.float32).astype(np.float64)


class Model:
    """The text models of the architectures `llama` and `gemma3`, one whole sequence at a time."""

    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.keys = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("GGUF.")}
        self.w = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
        self.arch = self.keys["general.architecture"]
        assert self.arch in ("llama", "gemma3"), self.arch
        self.gemma = self.arch == "gemma3"
        self.n_layers, self.n_heads = self.key("block_count"), self.key("attention.head_count")
        self.n_kv = self.key("attention.head_count_kv")
        self.d_model = self.key("embedding_length")
        self.dim = self.keys.get(f"{self.arch}.attention.key_length", self.d_model // self.n_heads)
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.output = self.w.get("output.weight", self.w["token_embd.weight"])

    def key(self, name):
        return self.keys[f"{self.arch}.{name}"]

    def matrix(self, name):
        return self.w[name].astype(np.float64)

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + self.eps) * self.matrix(name)

    def rotate(self, x, local):
        """x [n, heads, dim]: pairs (2i, 2i + 1) of llama, (i, i + dim / 2) of gemma3."""
        half = self.dim // 2
        base = 10000.0 if local else self.key("rope.freq_base")
        angle = np.arange(x.shape[0])[:, None] * base ** (-np.arange(half) / half)
        c, s = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
        first, second = (slice(0, half), slice(half, None)) if self.gemma else (slice(0, None, 2), slice(1, None, 2))
        a, b = x[..., first], x[..., second]
        out = np.empty_like(x)
        out[..., first], out[..., second] = a * c - b * s, a * s + b * c
        return out

    def attention(self, h, layer, bf16):
        n, local = h.shape[0], self.gemma and (layer + 1) % 6 != 0
        q = (h @ self.matrix(f"blk.{layer}.attn_q.weight").T).reshape(n, self.n_heads, self.dim)
        k = (h @ self.matrix(f"blk.{layer}.attn_k.weight").T).reshape(n, self.n_kv, self.dim)
        v = (h @ self.matrix(f"blk.{layer}.attn_v.weight").T).reshape(n, self.n_kv, self.dim)
        if self.gemma:
            q, k = self.norm(q, f"blk.{layer}.attn_q_norm.weight"), self.norm(k, f"blk.{layer}.attn_k_norm.weight")
        q, k = self.rotate(q, local), self.rotate(k, local)
        if bf16:
            k, v = to_bf16(k), to_bf16(v)
        distance = np.arange(n)[:, None] - np.arange(n)[None, :]
        seen = (distance >= 0) & (distance < (self.key("attention.sliding_window") if local else n))
        out = np.empty_like(q)
        for head in range(self.n_heads):
            kv = head * self.n_kv // self.n_heads
            scores = np.where(seen, q[:, head] @ k[:, kv].T / np.sqrt(self.dim), -np.inf)
            p = np.exp(scores - scores.max(-1, keepdims=True))
            out[:, head] = p / p.sum(-1, keepdims=True) @ v[:, kv]
        return out.reshape(n, -1) @ self.matrix(f"blk.{layer}.attn_output.weight").T

    def feed_forward(self, h, layer):
        gate, up = (h @ self.matrix(f"blk.{layer}.ffn_{name}.weight").T for name in ("gate", "up"))
        if self.gemma:
            gate = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate ** 3)))
        else:
            gate = gate / (1 + np.exp(-gate))
        return (gate * up) @ self.matrix(f"blk.{layer}.ffn_down.weight").T

    def states(self, tokens, bf16):
        """[n, d_model] behind the last norm."""
        x = self.w["token_embd.weight"][tokens].astype(np.float64)
        if self.gemma:
            x *= np.sqrt(self.d_model)
        for layer in range(self.n_layers):
            a = self.attention(self.norm(x, f"blk.{layer}.attn_norm.weight"), layer, bf16)
            x = x + (self.norm(a, f"blk.{layer}.post_attention_norm.weight") if self.gemma else a)
            f = self.feed_forward(self.norm(x, f"blk.{layer}.ffn_norm.weight"), layer)
            x = x + (self.norm(f, f"blk.{layer}.post_ffw_norm.weight") if self.gemma else f)
        return self.norm(x, "output_norm.weight")

    def log_p(self, states):
        """[n, vocab_size] log(softmax(logits))."""
        logits = states @ self.output.T.astype(np.float64)
        top = logits.max(-1, keepdims=True)
        return logits - top - np.log(np.exp(logits - top).sum(-1, keepdims=True))


def ranks(vocab):
    """Strata of ranks behind the top ones, each as long as all before it, and how many tokens each stands for."""
    strata, first = [], N_TOP
    while first < vocab:
        strata.append((first, min(2 * first, vocab)))
        first *= 2
    return strata


def divergence(p, q, ids, weights):
    """The estimate of KL(p || q) that the test makes: sum of weight * (p log(p / q) - p + q), each term >= 0."""
    a, b = p[ids], q[ids]
    return float(np.sum(weights * (np.exp(a) * (a - b) - np.exp(a) + np.exp(b))))


def greedy(model, prompt, n):
    tokens, margin = list(prompt), np.inf
    for _ in range(n):
        log_p = model.log_p(model.states(np.array(tokens), True)[-1:])[0]
        best, second = np.sort(log_p)[-1:-3:-1]
        margin = min(margin, best - second)
        tokens.append(int(np.argmax(log_p)))
    return tokens[len(prompt):], margin


def make(name, folder, weir):
    path = folder / MODELS[name]
    model = Model(path)

    def tokenize(text, *flags):
        run = subprocess.run([weir, "tokenize", "-m", path, *flags], input=text, capture_output=True, check=True)
        return [int(token) for token in run.stdout.split()]

    tokens = tokenize((folder / TEXT).read_bytes()[:8192])[:N_TOKENS]
    if model.keys.get("tokenizer.ggml.add_bos_token", False):
        tokens[0] = model.keys["tokenizer.ggml.bos_token_id"]
    plain, bf16 = (model.states(np.array(tokens), rounded) for rounded in (False, True))
    vocab = model.output.shape[0]
    strata = ranks(vocab)
    weights = np.concatenate([np.ones(N_TOP)] + [np.full(N_DRAWN, (end - first) / N_DRAWN) for first, end in strata])
    rng = np.random.default_rng(1)
    ids, listed, next_p = [], [[], []], [[], []]
    truth = estimate = agree = 0.0
    batch = 32  # positions whose logits are there at a time
    for at in range(N_TOKENS):
        if at % batch == 0:
            ps, qs = model.log_p(plain[at:at + batch]), model.log_p(bf16[at:at + batch])
        p, q = ps[at % batch], qs[at % batch]
        order = np.lexsort((np.arange(vocab), -p))
        row = np.concatenate([order[:N_TOP]] + [order[rng.integers(first, end, N_DRAWN)] for first, end in strata])
        ids.append(row)
        for i, log_p in enumerate((p, q)):
            listed[i].append(log_p[row])
            if at + 1 < N_TOKENS:
                next_p[i].append(log_p[tokens[at + 1]])
        truth += np.sum(np.exp(p) * (p - q)) / N_TOKENS
        estimate += divergence(p, q, row, weights) / N_TOKENS
        agree += float(np.argmax(p) == np.argmax(q)) / N_TOKENS
    nll = [-float(np.sum(values)) for values in next_p]
    prompt = tokenize(CHAT.encode(), "--parse-special") if "tokenizer.chat_template" in model.keys else []
    answer, margin = greedy(model, prompt, N_GREEDY) if prompt else ([], np.inf)
    data = struct.pack("<8s6I2d", b"WEIRREAL", N_TOKENS, vocab, len(weights), len(prompt), len(answer), 0, *nll)
    data += np.array(tokens + prompt + answer, "<i4").tobytes() + weights.astype("<f4").tobytes()
    data += np.array(ids, "<i4").tobytes() + b"".join(np.array(log_p, "<f4").tobytes() for log_p in listed)
    (HERE / f"{name}.golden").write_bytes(data)
    print(f"{name}: {len(data)} bytes; perplexity {np.exp(nll[0] / (N_TOKENS - 1)):.4f}, K and V in bf16 "
          f"{np.exp(nll[1] / (N_TOKENS - 1)):.4f}; KL(plain || bf16) {truth:.4g}, by the sample {estimate:.4g}; "
          f"same top {100 * agree:.2f} %; least margin of the answer {margin:.3f} nats")


def main(folder, weir, *names):
    for name in names or MODELS:
        make(name, Path(folder), weir)


if __name__ == "__main__":
    main(*sys.argv[1:])
