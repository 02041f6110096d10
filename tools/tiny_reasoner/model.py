"""The tiny reasoner's network: a Llama-style decoder, and greedy decoding with a key/value cache for measuring it.

RoPE turns adjacent pairs (2i, 2i+1) of a head, which is what GGUF's architecture `llama` expects, so the weights are
written to GGUF without reordering rows.
"""
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    vocab_size: int = 1664
    n_layers: int = 8
    d_model: int = 384
    n_heads: int = 6
    n_kv_heads: int = 2
    head_dim: int = 64
    d_ff: int = 1024
    context: int = 16384
    rope_base: float = 100000.0
    norm_eps: float = 1e-5


class RmsNorm(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return (y * self.weight).to(x.dtype)


def rope_table(c, device):
    """[context, head_dim / 2, 2] f32: cosine and sine of each position and pair."""
    freq = c.rope_base ** (-torch.arange(0, c.head_dim, 2, device=device, dtype=torch.float64) / c.head_dim)
    angle = torch.arange(c.context, device=device, dtype=torch.float64)[:, None] * freq
    return torch.stack((angle.cos(), angle.sin()), -1).float()


def rotate(x, table):
    """x [B, heads, T, head_dim], table [T, head_dim / 2, 2]."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = table.unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.attn_norm, self.ffn_norm = RmsNorm(c.d_model, c.norm_eps), RmsNorm(c.d_model, c.norm_eps)
        self.attn_q = nn.Linear(c.d_model, c.n_heads * c.head_dim, bias=False)
        self.attn_k = nn.Linear(c.d_model, c.n_kv_heads * c.head_dim, bias=False)
        self.attn_v = nn.Linear(c.d_model, c.n_kv_heads * c.head_dim, bias=False)
        self.attn_output = nn.Linear(c.n_heads * c.head_dim, c.d_model, bias=False)
        self.ffn_gate = nn.Linear(c.d_model, c.d_ff, bias=False)
        self.ffn_up = nn.Linear(c.d_model, c.d_ff, bias=False)
        self.ffn_down = nn.Linear(c.d_ff, c.d_model, bias=False)

    def forward(self, x, table, cache=None, mask=None):
        """x [B, T, d_model]. mask [B, 1, T, kv_len], bool or added to the scores, says which keys each token sees;
        without it, all up to itself."""
        def heads(y):
            return y.unflatten(-1, (-1, self.c.head_dim)).transpose(1, 2)

        h = self.attn_norm(x)
        q, k, v = rotate(heads(self.attn_q(h)), table), rotate(heads(self.attn_k(h)), table), heads(self.attn_v(h))
        if cache is not None:
            k, v = cache.append(self, k, v)
        grouped = mask is None and q.dtype == torch.bfloat16
        if not grouped:  # CUDA's fast kernel for masks and for f32 has no grouped heads
            k, v = (t.repeat_interleave(self.c.n_heads // self.c.n_kv_heads, 1) for t in (k, v))
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=grouped)
        x = x + self.attn_output(o.transpose(1, 2).flatten(2))
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.token_embd = nn.Embedding(c.vocab_size, c.d_model)  # also the output matrix
        self.blk = nn.ModuleList(Layer(c) for _ in range(c.n_layers))
        self.output_norm = RmsNorm(c.d_model, c.norm_eps)
        self.register_buffer("rope", rope_table(c, "cpu"), persistent=False)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)
        for layer in self.blk:  # the layers' sum starts at the size of one
            for last in (layer.attn_output, layer.ffn_down):
                nn.init.normal_(last.weight, std=0.02 / (2 * c.n_layers) ** 0.5)

    def hidden(self, ids, pos=0, cache=None, mask=None):
        x = self.token_embd(ids)
        table = self.rope[pos:pos + ids.shape[1]]
        for layer in self.blk:
            x = layer(x, table, cache, mask)
        return self.output_norm(x)

    def logits(self, hidden):
        return F.linear(hidden, self.token_embd.weight)

    def forward(self, ids, targets, weights, mask=None):
        """Cross entropy summed over the targets, each times its weight. ids, targets, weights: [B, T]."""
        logits = self.logits(self.hidden(ids, mask=mask)).float()
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        return (loss * weights.flatten()).sum()


class Cache:
    def __init__(self, model, batch, length, dtype):
        c, device = model.c, model.token_embd.weight.device
        shape = (batch, c.n_kv_heads, length, c.head_dim)
        self.kv = {layer: torch.zeros((2, *shape), dtype=dtype, device=device) for layer in model.blk}
        self.n = 0  # tokens in the cache before this pass

    def append(self, layer, k, v):
        end = self.n + k.shape[2]
        keys, values = self.kv[layer]
        keys[:, :, self.n:end], values[:, :, self.n:end] = k, v
        return keys[:, :, :end], values[:, :, :end]


@torch.no_grad()
def greedy(model, prompts, max_new, end_id, chunk=512):
    """Continues each prompt (a list of ids) until end_id; returns the new ids without it.

    The prompts are padded at the left and padding is masked. RoPE depends on differences of positions alone, so a shift
    changes nothing.
    """
    device = model.token_embd.weight.device
    batch, longest = len(prompts), max(map(len, prompts))
    length = min(model.c.context, longest + max_new)
    pads = torch.tensor([longest - len(p) for p in prompts], device=device)
    ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts], device=device)
    cache = Cache(model, batch, length, model.token_embd.weight.dtype)
    keys = torch.arange(length, device=device)

    def run(part):
        first, end = cache.n, cache.n + part.shape[1]
        seen = keys[:end] <= torch.arange(first, end, device=device)[:, None]  # [T, end]
        mask = seen & ((keys[:end] >= pads[:, None]) | (keys[:end] == 0))[:, None, None]  # key 0: no row may be empty
        hidden = model.hidden(part, first, cache, mask)
        cache.n = end
        return model.logits(hidden[:, -1]).argmax(-1)

    for at in range(0, longest, chunk):
        token = run(ids[:, at:at + chunk])
    new, done = [], torch.zeros(batch, dtype=torch.bool, device=device)
    while True:
        new.append(token)
        done |= token == end_id
        if cache.n == length or len(new) == max_new or done.all():
            break
        token = run(token[:, None])
    rows = torch.stack(new, 1).tolist()
    return [row[:row.index(end_id)] if end_id in row else row for row in rows]
