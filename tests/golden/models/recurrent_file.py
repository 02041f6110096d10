"""Keys and tensors of the golden models whose layers are not all attention: gated delta nets (qwen35, qwen35moe,
qwen3next), Mamba-2 (granitehybrid, nemotron_h, nemotron_h_moe) and short convolutions (lfm2, lfm2moe).

model_file.py calls it. Names, shapes and orders are those of the public converters. What it does not do: load weights
into another implementation (recurrent_hf.py), or compute (recurrent_layers.py).
"""
from dataclasses import dataclass

import numpy as np
from gguf import ExpertGatingFuncType
from gguf import GGMLQuantizationType as T

QWEN = ("qwen35", "qwen35moe", "qwen3next")
LFM = ("lfm2", "lfm2moe")
NEMOTRON = ("nemotron_h", "nemotron_h_moe")


@dataclass
class Recurrent:
    """What the layers are, and the sizes of those that are not attention."""
    mixers: str          # a letter per layer: (a)ttention, (d)elta net, (m)amba2, (c)onvolution, (f)eed-forward alone
    kernel: int          # rows that a convolution sees
    state: int = 0       # d: size of a key head, which is that of a value head; m: state per channel
    groups: int = 0      # d: key heads; m: groups of B and C
    heads: int = 0       # d: value heads; m: heads
    inner: int = 0       # d: heads * state; m: channels
    legacy: bool = False   # qwen3next: one tensor for q, k, v and z, as the first files had it
    rope: bool = True      # granitehybrid: whether attention rotates
    latent: int = 0        # nemotron_h_moe: the experts' inputs and outputs, where they are not d_model

    def every(self):
        """qwen: every so-manyth layer is attention."""
        return self.mixers.index("a") + 1


# ---- keys ------------------------------------------------------------------------------------------------------------

def recurrent_keys(m, w, vocab):
    """The architecture's keys in the converters' order."""
    r = m.rec
    per_layer = m.arch not in QWEN
    w.add_block_count(m.n_layers + m.mtp)
    w.add_context_length(m.context)
    w.add_embedding_length(m.d_model)
    if m.arch in NEMOTRON:
        w.add_feed_forward_length([m.d_ff if kind == "f" else 0 for kind in r.mixers])
    elif m.arch != "qwen35moe":
        w.add_feed_forward_length(m.dense_ff or m.d_ff)
    w.add_head_count(m.n_heads)
    w.add_head_count_kv([m.n_kv_heads if kind == "a" else 0 for kind in r.mixers] if per_layer else m.n_kv_heads)
    if m.arch in ("qwen35", "qwen35moe"):
        w.add_rope_dimension_sections(sections(m))
    w.add_rope_freq_base(m.rope_base)
    w.add_layer_norm_rms_eps(m.eps)
    if m.arch in NEMOTRON:
        w.add_layer_norm_eps(m.eps)
    if m.arch == "granitehybrid" or m.experts and m.arch not in NEMOTRON:
        w.add_expert_count(m.experts)
        w.add_expert_used_count(m.used)
    if m.arch == "nemotron_h_moe":
        w.add_expert_used_count(m.used)
        w.add_expert_group_count(m.groups[0])
        w.add_expert_group_used_count(m.groups[1])
    if m.arch in QWEN or m.d_model != m.n_heads * m.head_dim and m.arch not in NEMOTRON:
        w.add_key_length(m.head_dim)
        w.add_value_length(m.head_dim)
    if m.arch in QWEN and m.experts:
        w.add_expert_feed_forward_length(m.d_ff)
        w.add_expert_shared_feed_forward_length(m.shared)
    if m.arch == "lfm2moe":
        w.add_expert_feed_forward_length(m.d_ff)
        w.add_leading_dense_block_count(m.lead)
        w.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)
    if m.arch not in QWEN:
        w.add_vocab_size(vocab)
    if m.arch in LFM:
        w.add_shortconv_l_cache(r.kernel)
    if m.arch in ("granitehybrid", *NEMOTRON):
        w.add_rope_dimension_count(m.d_model // m.n_heads if m.arch in NEMOTRON else m.head_dim)
    for key, value in (m.factors or {}).items():
        w.add_float32(f"{m.arch}.{key}", value)
    if m.arch == "granitehybrid":
        w.add_expert_shared_feed_forward_length(m.shared or m.d_ff)
    if m.arch not in LFM:
        w.add_ssm_conv_kernel(r.kernel)
        w.add_ssm_state_size(r.state)
        w.add_ssm_group_count(r.groups)
        if m.arch in QWEN:
            w.add_ssm_time_step_rank(r.heads)
            w.add_ssm_inner_size(r.inner)
        else:
            w.add_ssm_inner_size(r.inner)
            w.add_ssm_time_step_rank(r.heads)
            w.add_rope_scaling_finetuned(r.rope and m.arch == "granitehybrid")
    if m.arch in QWEN:
        w.add_full_attention_interval(r.every())
        w.add_rope_dimension_count(m.rope_dim)
    if m.mtp:
        w.add_nextn_predict_layers(1)
    if m.arch in NEMOTRON:
        w.add_key_length(m.head_dim)
        w.add_value_length(m.head_dim)
    if m.arch == "nemotron_h_moe":
        w.add_expert_feed_forward_length(m.d_ff)
        w.add_expert_shared_feed_forward_length(m.shared)
        w.add_expert_count(m.experts)
        w.add_expert_shared_count(1)
        w.add_expert_weights_norm(True)
        w.add_expert_weights_scale(m.scale)
        if r.latent:
            w.add_moe_latent_size(r.latent)


def sections(m):
    """How many pairs turn by which of an image's positions; text has the same number in all of them."""
    n = m.rope_dim // 2
    third = n // 3
    return [n - 2 * third, third, third, 0] if n % 3 < 2 else [third + 1, third + 1, third, 0]


# ---- tensors ---------------------------------------------------------------------------------------------------------

def recurrent_tensors(m, draw):
    """Yields (GGUF name, data, type). Deviations are as in draw_tensors; states keep from 2 to some 100 tokens."""
    d = m.d_model
    yield draw.mat("token_embd", draw.vocab, d, 2.0 / d**0.5 if m.tied else 1.0)
    for i, kind in enumerate(m.rec.mixers):
        b = f"blk.{i}."
        yield draw.vec(b + "attn_norm.weight", d, 1.0, 0.2)
        yield from {"a": attention, "d": delta_net, "m": mamba2, "c": short_conv, "f": nothing}[kind](m, draw, b)
        if m.arch not in NEMOTRON:
            yield draw.vec(b + ("post_attention_norm" if m.arch in QWEN else "ffn_norm") + ".weight", d, 1.0, 0.2)
            yield from feed_forward(m, draw, b, i)
        elif kind == "f":
            yield from feed_forward(m, draw, b, i)
    if m.mtp:
        yield from mtp_block(m, draw, f"blk.{m.n_layers}.")
    yield draw.vec(("token_embd_norm" if m.arch in LFM else "output_norm") + ".weight", d, 1.0, 0.2)
    if not m.tied:
        yield draw.mat("output", draw.vocab, d, 3.0 / d**0.5)


def nothing(m, draw, b):
    return []


def attention(m, draw, b):
    d, q_rows, kv_rows = m.d_model, m.n_heads * m.head_dim, m.n_kv_heads * m.head_dim
    gated = m.arch in QWEN  # each head's rows are its query's and then its gate's
    yield draw.mat(b + "attn_q", q_rows * (2 if gated else 1), d, 1.2 / d**0.5)
    yield draw.mat(b + "attn_k", kv_rows, d, 1.2 / d**0.5)
    yield draw.mat(b + "attn_v", kv_rows, d, 1.0 / d**0.5)
    if m.arch in (*QWEN, *LFM):
        yield draw.vec(b + "attn_q_norm.weight", m.head_dim, 1.2, 0.3)
        yield draw.vec(b + "attn_k_norm.weight", m.head_dim, 1.2, 0.3)
    yield draw.mat(b + "attn_output", d, q_rows, (6.0 if gated else 3.0) / q_rows**0.5)


def delta_net(m, draw, b):
    d, r = m.d_model, m.rec
    qk = 2 * r.state * r.groups
    if r.legacy:
        yield draw.mat(b + "ssm_in", qk + 2 * r.inner, d, 1.5 / d**0.5)
    else:
        yield draw.mat(b + "attn_qkv", qk + r.inner, d, 1.5 / d**0.5)
        yield draw.mat(b + "attn_gate", r.inner, d, 1.5 / d**0.5)
    if m.arch == "qwen3next":
        yield draw.mat(b + "ssm_ba", 2 * r.heads, d, 1.0 / d**0.5)
    else:
        yield draw.mat(b + "ssm_beta", r.heads, d, 1.0 / d**0.5)
        yield draw.mat(b + "ssm_alpha", r.heads, d, 1.0 / d**0.5)
    yield draw.array(b + "ssm_a", -np.exp(draw.rng.uniform(-2.0, 1.0, r.heads)))
    yield draw.vec(b + "ssm_dt.bias", r.heads, -1.5, 0.8)
    yield draw.array(b + "ssm_conv1d.weight", 0.5 * draw.rng.standard_normal((qk + r.inner, r.kernel)))
    yield draw.vec(b + "ssm_norm.weight", r.state, 1.0, 0.2)
    yield draw.mat(b + "ssm_out", d, r.inner, 3.0 / r.inner**0.5)


def mamba2(m, draw, b):
    d, r = m.d_model, m.rec
    channels = r.inner + 2 * r.groups * r.state
    yield draw.mat(b + "ssm_in", r.inner + channels + r.heads, d, 1.5 / d**0.5)
    yield draw.array(b + "ssm_conv1d.weight", 0.5 * draw.rng.standard_normal((channels, r.kernel)))
    yield draw.vec(b + "ssm_conv1d.bias", channels, 0.0, 0.3)
    yield draw.vec(b + "ssm_dt.bias", r.heads, -1.5, 0.8)
    yield draw.array(b + "ssm_a", -np.exp(draw.rng.uniform(-2.0, 1.0, (r.heads, 1))))
    yield draw.array(b + "ssm_d", 1.0 + 0.5 * draw.rng.standard_normal((r.heads, 1)))
    yield draw.array(b + "ssm_norm.weight", 1.0 + 0.2 * draw.rng.standard_normal((r.groups, r.inner // r.groups)))
    yield draw.mat(b + "ssm_out", d, r.inner, 3.0 / r.inner**0.5)


def short_conv(m, draw, b):
    d = m.d_model
    yield draw.mat(b + "shortconv.in_proj", 3 * d, d, 1.3 / d**0.5)
    yield draw.array(b + "shortconv.conv.weight", 0.6 * draw.rng.standard_normal((d, m.rec.kernel)))
    yield draw.mat(b + "shortconv.out_proj", d, d, 2.0 / d**0.5)


def feed_forward(m, draw, b, layer):
    d, ff = m.d_model, m.d_ff
    gated = m.arch not in NEMOTRON  # there relu squared, which is large where it is not zero
    if not m.experts or layer < m.lead:
        ff = m.dense_ff or ff
        if gated:
            yield draw.mat(b + "ffn_gate", ff, d, 1.5 / d**0.5)
        yield draw.mat(b + "ffn_up", ff, d, 1.5 / d**0.5)
        yield draw.mat(b + "ffn_down", d, ff, (2.0 if gated else 1.0) / ff**0.5)
        return
    size = m.rec.latent or d
    yield draw.array(b + "ffn_gate_inp.weight", draw.rng.standard_normal((m.experts, d)) * 1.5 / d**0.5)
    if m.arch in ("lfm2moe", "nemotron_h_moe"):
        yield draw.vec(b + "exp_probs_b.bias", m.experts, 0.0, 0.2)
    if m.rec.latent:
        yield draw.mat(b + "ffn_latent_down", size, d, 1.0 / d**0.5)
        yield draw.mat(b + "ffn_latent_up", d, size, 1.0 / size**0.5)
    if gated:
        yield draw.stack(b + "ffn_gate_exps", ff, size, 1.5 / size**0.5)
    yield draw.stack(b + "ffn_up_exps", ff, size, 1.5 / size**0.5)
    yield draw.stack(b + "ffn_down_exps", size, ff, (3.0 if gated else 1.0) / ff**0.5)
    if not m.shared:
        return
    if m.arch in QWEN:
        yield draw.array(b + "ffn_gate_inp_shexp.weight", draw.rng.standard_normal(d) / d**0.5)
    if gated:
        yield draw.mat(b + "ffn_gate_shexp", m.shared, d, 1.5 / d**0.5)
    yield draw.mat(b + "ffn_up_shexp", m.shared, d, 1.5 / d**0.5)
    yield draw.mat(b + "ffn_down_shexp", d, m.shared, (2.0 if gated else 1.0) / m.shared**0.5)


def mtp_block(m, draw, b):
    """A block that plain decoding must not use."""
    d = m.d_model
    yield draw.mat(b + "nextn.eh_proj", d, 2 * d, 1.0 / d**0.5)
    for name in "nextn.enorm", "nextn.hnorm", "nextn.shared_head_norm", "attn_norm", "post_attention_norm":
        yield draw.vec(f"{b}{name}.weight", d, 1.0, 0.2)
    yield from attention(m, draw, b)
    yield from feed_forward(m, draw, b, m.n_layers)


class Draw:
    """Random tensors of one model. `matrix` is that of model_file.py; `stored` maps a matrix's name to its type."""

    def __init__(self, rng, matrix, stored, experts, vocab):
        self.rng, self.matrix, self.stored, self.experts, self.vocab = rng, matrix, stored, experts, vocab

    def mat(self, name, rows, cols, std):
        qtype = self.stored(name)
        return name + ".weight", self.matrix(self.rng, (rows, cols), std, qtype), qtype

    def stack(self, name, rows, cols, std):
        """A matrix per expert, each drawn by itself."""
        qtype = self.stored(name)
        drawn = [self.matrix(self.rng, (rows, cols), std, qtype) for _ in range(self.experts)]
        return name + ".weight", np.stack(drawn), qtype

    def vec(self, name, size, mean, std):
        return self.array(name, mean + std * self.rng.standard_normal(size))

    def array(self, name, values):
        """What no converter quantises."""
        return name, np.asarray(values, dtype=np.float32), T.F32
