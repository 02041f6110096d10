#!/usr/bin/env python3
"""Makes the golden model files of this folder: <name>.gguf, <name>.golden and <name>.bf16kv.golden.

Run by hand, never by a build or a test:  python3 make_golden.py [name ...]     (no name: all of them)
Needs numpy, gguf, torch (CPU) and transformers; README.md lists the versions that made the committed files.

For each row of MODELS it draws random weights, writes a complete GGUF file as the usual converters lay it out, reads
that file back, gives the dequantised weights to the Hugging Face implementation of the architecture, and stores its
float32 logits. Because the weights come out of the file, an implementation under test can differ from a golden only by
the order of its arithmetic. What it does not do: quantise well. The blocks of RANDOM_BLOCKS are random bytes with sane
scales.

Every random number comes from a generator seeded with the model's name, and the token sequence is the best of SEEDS
candidates: the one whose smallest distance between the best and the second-best logit is largest, so that top-1 can be
compared at every position.
"""
import struct
import sys
import zlib
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as T

HERE = Path(__file__).resolve().parent
N_TOK = 40       # two full pages of 16 tokens and a half-filled one
SEEDS = 1024     # token sequences tried per model
MIN_GAP = 1e-3   # smallest accepted (top1 - top2) / max |logit| of a position
NORM_EPS = 1e-5

FILE_TYPES = {T.F32: 0, T.F16: 1, T.BF16: 32, T.Q8_0: 7, T.Q4_0: 2, T.Q4_1: 3, T.Q5_0: 8, T.Q5_1: 9, T.IQ4_NL: 25,
              T.MXFP4: 38, T.Q2_K: 10, T.Q3_K: 12, T.IQ4_XS: 30, T.Q4_K: 15, T.Q5_K: 17, T.Q6_K: 18}

# The 6-bit matrices of a Q4_K_M file: the output, and in the more important layers the value and down projections.
Q4_K_M = {"attn_v": T.Q6_K, "ffn_down": T.Q6_K, "output": T.Q6_K}


@dataclass
class Model:
    name: str
    arch: str = "llama"
    qtype: T = T.F16        # type of every matrix; norms and biases are always F32
    d_model: int = 32
    n_layers: int = 2
    n_heads: int = 2
    n_kv_heads: int = 1
    head_dim: int = 64
    d_ff: int = 64
    tied: bool = True       # no output.weight: the embedding is used again
    context: int = 512
    rope_base: float = 10000.0
    rope: dict | None = None           # Hugging Face rope parameters of a scaled RoPE, without the base
    types: dict | None = None          # matrix stem -> type where it differs from qtype
    omit: tuple = ()                   # optional keys left out, to exercise their defaults
    window: int = 0                    # positions that a local layer sees: of gemma2, gemma3 and phi3
    experts: int = 0                   # a mixture of so many experts of d_ff rows
    used: int = 0                      # experts that each token goes through
    norm_as: str = ""                  # the architecture whose rule weighs the experts, where it is not arch
    shared: int = 0                    # qwen2moe: rows of the shared expert's gate
    every: int = 0                     # gemma3: every so-manyth layer is global; 0: no key, the default
    caps: tuple = (0.0, 0.0)           # gemma2: of attention logits and of output logits
    factors: dict | None = None        # granite: key -> factor
    rope_dim: int = 0                  # elements of a head that rotate; 0: all


ADJACENT = ("llama", "smollm3", "granite")  # their converters reorder the rows of q and k
GEMMA = ("gemma2", "gemma3")
FUSED = ("phi3", "glm4")                    # gate and up are one tensor


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
LONG = {"rope_type": "longrope", "factor": 16.0, "original_max_position_embeddings": 32, "attention_factor": 1.19}
SHORT = {**LONG, "factor": 0.5, "original_max_position_embeddings": 1024, "attention_factor": 1.05}
GRANITE = {"embedding_scale": 3.0, "residual_scale": 0.6, "attention.scale": 0.09, "logit_scale": 4.0}
MXFP4_EXPERTS = {f"ffn_{n}_exps": T.MXFP4 for n in ("gate", "up", "down")}
OSS_YARN = {**YARN, "factor": 8.0, "original_max_position_embeddings": 128, "truncate": False}
BIG = {"d_model": 256, "n_layers": 1, "n_heads": 4, "d_ff": 256}  # K-quants need rows of a multiple of 256 weights

MODELS = [
    Model("llama_f32", qtype=T.F32, n_heads=4, n_kv_heads=2, tied=False),
    Model("llama_f16", tied=False),
    Model("llama_bf16", qtype=T.BF16, tied=False),
    Model("llama_hd80", d_model=48, n_layers=1, n_heads=6, n_kv_heads=2, head_dim=80),
    Model("llama_hd96", n_layers=1, n_kv_heads=2, head_dim=96, omit=("head_count_kv",)),
    Model("llama_hd256", n_layers=1, head_dim=256),
    Model("llama_mqa", n_layers=1, n_heads=4, omit=("freq_base",)),
    Model("llama_linear", rope_base=100.0, rope={"rope_type": "linear", "factor": 4.0}),
    Model("llama_llama3", rope_base=100.0, rope=LLAMA3, context=256),
    Model("llama_yarn", rope_base=100.0, rope=YARN, context=1024),
    Model("qwen2_f32", arch="qwen2", qtype=T.F32, n_layers=1, n_heads=7, rope_base=1e6),
    Model("qwen2_q8_0", arch="qwen2", qtype=T.Q8_0, d_model=128, rope_base=1e6),
    Model("qwen3_f32", arch="qwen3", qtype=T.F32, n_layers=1, n_heads=4, head_dim=128, tied=False, rope_base=1e6),
    Model("qwen3_tied", arch="qwen3", qtype=T.BF16, head_dim=128, rope_base=1e6),
    Model("llama_q8_0", qtype=T.Q8_0, d_model=128, n_layers=1),
    Model("llama_q4_0", qtype=T.Q4_0, d_model=128, tied=False),
    Model("llama_q4_1", qtype=T.Q4_1, d_model=128, tied=False),
    Model("llama_q5_0", qtype=T.Q5_0, d_model=128, tied=False),
    Model("llama_q5_1", qtype=T.Q5_1, d_model=128, tied=False),
    Model("llama_iq4_nl", qtype=T.IQ4_NL, d_model=128, tied=False),
    Model("llama_mxfp4", qtype=T.MXFP4, d_model=128, tied=False),
    Model("llama_q2_k", qtype=T.Q2_K, **BIG),
    Model("llama_q3_k", qtype=T.Q3_K, **BIG),
    Model("llama_iq4_xs", qtype=T.IQ4_XS, **BIG),
    Model("llama_q4_k", qtype=T.Q4_K, **BIG),
    Model("llama_q5_k", qtype=T.Q5_K, **BIG),
    Model("llama_q6_k", qtype=T.Q6_K, **BIG),
    Model("gemma3_f32", arch="gemma3", qtype=T.F32, n_layers=3, rope_base=1e6, window=20, every=3),
    Model("gemma3_q8_0", arch="gemma3", qtype=T.Q8_0, d_model=64, n_layers=6, rope_base=1e6, window=9),
    Model("qwen3moe_f32", arch="qwen3moe", qtype=T.F32, n_layers=2, d_ff=32, experts=8, used=3, rope_base=1e6),
    Model("qwen3moe_q8_0", arch="qwen3moe", qtype=T.Q8_0, d_model=64, d_ff=32, experts=5, used=2, rope_base=1e6),
    Model("qwen2moe_f32", arch="qwen2moe", qtype=T.F32, n_layers=2, d_ff=32, experts=6, used=2, shared=64,
          rope_base=1e6),
    Model("qwen2moe_q8_0", arch="qwen2moe", qtype=T.Q8_0, d_model=128, d_ff=32, experts=4, used=2, shared=64,
          rope_base=1e6),
    Model("gemma2_f32", arch="gemma2", qtype=T.F32, window=9, caps=(5.0, 8.0)),
    Model("gemma2_q8_0", arch="gemma2", qtype=T.Q8_0, d_model=64, n_layers=3, n_heads=4, window=20, caps=(8.0, 12.0)),
    Model("phi3_f32", arch="phi3", qtype=T.F32, n_layers=1, n_heads=4, n_kv_heads=2, head_dim=96, tied=False),
    Model("phi3_long", arch="phi3", qtype=T.Q8_0, d_model=192, n_layers=1, head_dim=96, rope=LONG),
    Model("phi3_short", arch="phi3", qtype=T.Q8_0, d_model=192, n_layers=1, head_dim=96, rope=SHORT),
    Model("phi3_window", arch="phi3", qtype=T.Q8_0, d_model=64, window=9, tied=False),
    Model("smollm3_f32", arch="smollm3", qtype=T.F32, n_layers=4, rope_base=1e4),
    Model("smollm3_q8_0", arch="smollm3", qtype=T.Q8_0, d_model=64, n_layers=5, rope_base=1e4),
    Model("granite_f32", arch="granite", qtype=T.F32, n_heads=4, n_kv_heads=2, factors=GRANITE),
    Model("granite_q8_0", arch="granite", qtype=T.Q8_0, d_model=64, factors=GRANITE, tied=False),
    Model("olmo2_f32", arch="olmo2", qtype=T.F32, n_heads=4, n_kv_heads=2, tied=False),
    Model("olmo2_q8_0", arch="olmo2", qtype=T.Q8_0, d_model=64, tied=False),
    Model("glm4_f32", arch="glm4", qtype=T.F32, rope_dim=32, tied=False),
    Model("glm4_q8_0", arch="glm4", qtype=T.Q8_0, d_model=64, n_heads=4, rope_dim=32, tied=False),
    Model("gpt_oss_f32", arch="gpt-oss", qtype=T.F32, d_ff=32, n_heads=4, n_kv_heads=2, experts=6, used=2,
          rope_base=100.0, rope=OSS_YARN, context=1024, window=12),
    Model("gpt_oss_q8_0", arch="gpt-oss", qtype=T.Q8_0, d_model=64, d_ff=64, experts=4, used=2, rope_base=100.0,
          rope=OSS_YARN, context=1024, window=20, tied=False),
    Model("gpt_oss_mxfp4", arch="gpt-oss", qtype=T.Q8_0, types=MXFP4_EXPERTS, d_model=64, d_ff=96, experts=5, used=3,
          rope_base=100.0, rope=OSS_YARN, context=1024, window=16),
    Model("llama_q4_k_m_mix", qtype=T.Q4_K, types=Q4_K_M, tied=False, **BIG),
]


# ---- tokenizer -------------------------------------------------------------------------------------------------------

MERGES = ["h e", "Ġ t", "i n", "e r", "Ġt he", "o n", "Ġ a", "r e", "a t", "in g", "l l", "Ġ w"]
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]


def byte_tokens():
    """The 256 byte symbols in vocabulary order: printable bytes stand for themselves, the others move to U+0100 on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [b for b in range(256) if b not in shown]
    return [chr(b) for b in shown] + [chr(0x100 + i) for i in range(len(hidden))]


TOKENS = byte_tokens() + [m.replace(" ", "") for m in MERGES] + CONTROL
VOCAB = len(TOKENS)


def add_tokenizer(w):
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(TOKENS)
    normal, control = int(gguf.TokenType.NORMAL), int(gguf.TokenType.CONTROL)
    w.add_token_types([control if t in CONTROL else normal for t in TOKENS])
    w.add_token_merges(MERGES)
    w.add_bos_token_id(TOKENS.index("<|endoftext|>"))
    w.add_eos_token_id(TOKENS.index("<|im_end|>"))
    w.add_pad_token_id(TOKENS.index("<|pad|>"))
    w.add_add_bos_token(False)


# ---- weights ---------------------------------------------------------------------------------------------------------

# Types whose blocks are random bytes, because the gguf package does not quantise to them: offsets of the f16 scales,
# and their ratios. A scale of minimums follows that of the weights, in the ratio that centres the values; without one,
# inner scales or the numbers themselves have signs, and the mean is near zero.
RANDOM_BLOCKS = {T.IQ4_NL: ([0], [1.0]), T.IQ4_XS: ([0], [1.0]), T.Q3_K: ([108], [1.0]), T.Q6_K: ([208], [1.0]),
                 T.Q2_K: ([80, 82], [1.0, 1.5]), T.Q4_K: ([0, 2], [1.0, 7.5]), T.Q5_K: ([0, 2], [1.0, 15.5])}


def random_blocks(rng, shape, std, qtype):
    """Random blocks whose dequantised values have about the wanted standard deviation. Returns u8 [rows, row bytes]."""
    rows, cols = shape
    weights, size = gguf.GGML_QUANT_SIZES[qtype]
    blocks = rng.integers(0, 256, (rows * cols // weights, size), dtype=np.uint8)
    jitter = rng.uniform(0.5, 1.5, (len(blocks), 1))
    at, ratio = RANDOM_BLOCKS[qtype]

    def put(scale):
        for a, r in zip(at, ratio):
            blocks[:, a:a + 2] = (scale * r * jitter).astype(np.float16).view(np.uint8)

    put(1.0)
    put(std / gguf.dequantize(blocks, qtype).std())
    return blocks.reshape(rows, -1)


def matrix(rng, shape, std, qtype):
    """A random [rows, cols] matrix in the storage of qtype: f32 or f16 values, or bytes."""
    if qtype in RANDOM_BLOCKS:
        return random_blocks(rng, shape, std, qtype)
    x = (rng.standard_normal(shape) * std).astype(np.float32)
    if qtype == T.F32:
        return x
    if qtype == T.F16:
        return x.astype(np.float16)
    return gguf.quantize(x, qtype)


def draw_tensors(m):
    """Yields (GGUF name, data, type). The deviations keep attention peaked and let no path dominate the logits."""
    rng = np.random.default_rng(zlib.crc32(m.name.encode()))
    d, q_rows, kv_rows = m.d_model, m.n_heads * m.head_dim, m.n_kv_heads * m.head_dim

    def mat(name, rows, cols, std):
        stem = name.split(".")[-1]
        qtype = (m.types or {}).get(stem, m.qtype)
        return name + ".weight", matrix(rng, (rows, cols), std, qtype), qtype

    def vec(name, size, mean, std):
        return name, (mean + std * rng.standard_normal(size)).astype(np.float32), T.F32

    yield mat("token_embd", VOCAB, d, 2.0 / d**0.5 if m.tied else 1.0)
    if m.rope and m.rope["rope_type"] == "llama3":
        yield "rope_freqs.weight", llama3_factors(m), T.F32
    if m.rope and m.rope["rope_type"] == "longrope":
        for kind, factors in long_factors(m).items():
            yield f"rope_factors_{kind}.weight", factors, T.F32
    post_norms = m.arch in (*GEMMA, "olmo2", "glm4")
    for i in range(m.n_layers):
        b = f"blk.{i}."
        if m.arch != "olmo2":
            yield vec(b + "attn_norm.weight", d, 1.0, 0.2)
        if m.arch == "phi3":
            yield mat(b + "attn_qkv", q_rows + 2 * kv_rows, d, 1.2 / d**0.5)
        else:
            for stem, rows, std in ("attn_q", q_rows, 1.2), ("attn_k", kv_rows, 1.2), ("attn_v", kv_rows, 1.0):
                yield mat(b + stem, rows, d, std / d**0.5)
                if m.arch in ("qwen2", "qwen2moe", "glm4", "gpt-oss"):
                    yield vec(b + stem + ".bias", rows, 0.0, 0.5)
        if m.arch in ("qwen3", "qwen3moe", "gemma3", "olmo2"):
            rows = (q_rows, kv_rows) if m.arch == "olmo2" else (m.head_dim, m.head_dim)
            yield vec(b + "attn_q_norm.weight", rows[0], 1.2, 0.3)
            yield vec(b + "attn_k_norm.weight", rows[1], 1.2, 0.3)
        yield mat(b + "attn_output", d, q_rows, 3.0 / q_rows**0.5)
        if m.arch == "gpt-oss":
            yield vec(b + "attn_output.bias", d, 0.0, 0.5)
            yield vec(b + "attn_sinks.weight", m.n_heads, 1.0, 1.5)
        if post_norms or m.arch == "gpt-oss":  # in gpt-oss it is the norm before the experts
            yield vec(b + "post_attention_norm.weight", d, 1.0, 0.2)
        if m.arch not in ("olmo2", "gpt-oss"):
            yield vec(b + "ffn_norm.weight", d, 1.0, 0.2)
        if m.experts:
            yield from expert_tensors(m, rng, b)
            continue
        if m.arch not in FUSED:
            yield mat(b + "ffn_gate", m.d_ff, d, 1.5 / d**0.5)
        yield mat(b + "ffn_up", m.d_ff * (2 if m.arch in FUSED else 1), d, 1.5 / d**0.5)
        yield mat(b + "ffn_down", d, m.d_ff, 2.0 / m.d_ff**0.5)
        if post_norms:
            yield vec(b + "post_ffw_norm.weight", d, 1.0, 0.2)
    yield vec("output_norm.weight", d, 1.0, 0.2)
    if not m.tied:
        yield mat("output", VOCAB, d, 3.0 / d**0.5)


def expert_tensors(m, rng, b):
    """The feed-forward network of one layer as experts, each matrix of a stack drawn by itself."""
    d, f32 = m.d_model, np.float32

    def stack(name, rows, cols, std):
        qtype = (m.types or {}).get(name, m.qtype)
        drawn = [matrix(rng, (rows, cols), std, qtype) for _ in range(m.experts)]
        return b + name + ".weight", np.stack(drawn), qtype

    def biases(name, rows, std):
        return b + name + ".bias", (rng.standard_normal((m.experts, rows)) * std).astype(f32), T.F32

    yield b + "ffn_gate_inp.weight", (rng.standard_normal((m.experts, d)) * 1.5 / d**0.5).astype(f32), T.F32
    yield stack("ffn_gate_exps", m.d_ff, d, 1.5 / d**0.5)
    yield stack("ffn_up_exps", m.d_ff, d, 1.5 / d**0.5)
    yield stack("ffn_down_exps", d, m.d_ff, 3.0 / m.d_ff**0.5)
    if m.arch == "gpt-oss":  # wide enough for the gates' limits of 7
        yield b + "ffn_gate_inp.bias", rng.standard_normal(m.experts).astype(f32), T.F32
        yield biases("ffn_gate_exps", m.d_ff, 5.0)
        yield biases("ffn_up_exps", m.d_ff, 5.0)
        yield biases("ffn_down_exps", d, 1.0)
    if m.shared:
        yield b + "ffn_gate_inp_shexp.weight", (rng.standard_normal(d) / d**0.5).astype(f32), T.F32
        for stem, rows, cols, std in (("gate", m.shared, d, 1.5), ("up", m.shared, d, 1.5), ("down", d, m.shared, 2.0)):
            name = f"{b}ffn_{stem}_shexp.weight"
            yield name, matrix(rng, (rows, cols), std / cols**0.5, m.qtype), m.qtype


def long_factors(m):
    """LongRoPE's divisors of the RoPE frequencies for short and for long contexts, f32 [head_dim / 2] each."""
    rng = np.random.default_rng(zlib.crc32((m.name + " rope").encode()))
    n = m.head_dim // 2
    return {"long": (1.0 + 15.0 * rng.random(n) * np.arange(n) / n).astype(np.float32),
            "short": (1.0 + rng.random(n) * np.arange(n) / n).astype(np.float32)}


def llama3_factors(m):
    """Divisors of the RoPE frequencies, f32 [head_dim / 2]: 1 for short waves, `factor` for long, a blend between."""
    p = m.rope
    wave = 2 * np.pi * m.rope_base ** (np.arange(0, m.head_dim, 2) / m.head_dim)
    turns = p["original_max_position_embeddings"] / wave
    blend = (turns - p["low_freq_factor"]) / (p["high_freq_factor"] - p["low_freq_factor"])
    blend = np.clip(blend, 0.0, 1.0)
    return (1.0 / ((1 - blend) / p["factor"] + blend)).astype(np.float32)


# ---- GGUF ------------------------------------------------------------------------------------------------------------

def write_gguf(m, path):
    w = gguf.GGUFWriter(path, m.arch)
    w.add_type("model")
    w.add_name(m.name)
    w.add_file_type(FILE_TYPES[m.qtype])
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_context_length(m.context)
    w.add_embedding_length(m.d_model)
    w.add_block_count(m.n_layers)
    w.add_feed_forward_length(m.d_ff)
    w.add_head_count(m.n_heads)
    if "head_count_kv" not in m.omit:
        w.add_head_count_kv(m.n_kv_heads)
    w.add_layer_norm_rms_eps(NORM_EPS)
    if "freq_base" not in m.omit:
        w.add_rope_freq_base(m.rope_base)
    if m.arch == "llama":  # the converters write these two for this architecture only
        w.add_vocab_size(VOCAB)
        w.add_rope_dimension_count(m.head_dim)
    elif m.rope_dim or m.arch == "phi3":
        w.add_rope_dimension_count(m.rope_dim or m.head_dim)
    for key, value in (m.factors or {}).items():
        w.add_float32(f"{m.arch}.{key}", value)
    if m.arch == "gemma2":
        w.add_attn_logit_softcapping(m.caps[0])
        w.add_final_logit_softcapping(m.caps[1])
    if m.experts:
        w.add_expert_count(m.experts)
        w.add_expert_used_count(m.used)
        w.add_expert_feed_forward_length(m.d_ff)
    if m.shared:
        w.add_expert_shared_feed_forward_length(m.shared)
    if m.window:
        w.add_sliding_window(m.window)
    if m.every:
        w.add_uint32(f"{m.arch}.attention.sliding_window_pattern", m.every)
    if m.arch in ("qwen3", "qwen3moe", *GEMMA) or m.head_dim * m.n_heads != m.d_model:
        w.add_key_length(m.head_dim)
        w.add_value_length(m.head_dim)
    if m.rope and m.rope["rope_type"] in ("linear", "yarn"):  # llama3 is carried by rope_freqs.weight alone
        w.add_rope_scaling_type(gguf.RopeScalingType(m.rope["rope_type"]))
        w.add_rope_scaling_factor(m.rope["factor"])
    if m.rope and m.rope["rope_type"] in ("yarn", "longrope"):
        w.add_rope_scaling_orig_ctx_len(m.rope["original_max_position_embeddings"])
    if m.rope and m.rope["rope_type"] == "longrope":
        w.add_rope_scaling_attn_factors(m.rope["attention_factor"])
    add_tokenizer(w)
    for name, data, qtype in draw_tensors(m):
        w.add_tensor(name, data, raw_dtype=qtype)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def read_tensors(path):
    """GGUF tensor name -> dequantised f32 array, rows first."""
    out = {}
    for t in gguf.GGUFReader(path).tensors:
        out[t.name] = np.array(gguf.dequantize(t.data, t.tensor_type), dtype=np.float32)
        assert list(out[t.name].shape) == [int(n) for n in reversed(t.shape)], t.name
        assert np.isfinite(out[t.name]).all(), t.name
    return out


# ---- Hugging Face ----------------------------------------------------------------------------------------------------

HF_NAMES = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
            "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
            "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
            "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
            "ffn_gate_inp": "mlp.gate", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
            "ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
            "ffn_down_shexp": "mlp.shared_expert.down_proj",
            "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
# Where an architecture's library code has other names.
POST_NORMS = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
HF_OTHER = {**{arch: {**POST_NORMS, "ffn_norm": "pre_feedforward_layernorm"} for arch in GEMMA},
            "olmo2": POST_NORMS,
            "glm4": {"post_attention_norm": "post_self_attn_layernorm", "post_ffw_norm": "post_mlp_layernorm",
                     "ffn_up": "mlp.gate_up_proj"},
            "phi3": {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}}


OSS_NAMES = {"attn_sinks": "self_attn.sinks", "ffn_gate_inp": "mlp.router",
             "post_attention_norm": "post_attention_layernorm"}


def hf_name(name, arch):
    parts = name.split(".")
    if arch == "gpt-oss" and parts[-2] in OSS_NAMES:
        return f"model.layers.{parts[1]}.{OSS_NAMES[parts[2]]}" + (f".{parts[3]}" if parts[2] != "attn_sinks" else "")
    if parts[0] == "blk":
        stem = HF_OTHER.get(arch, {}).get(parts[2]) or HF_NAMES[parts[2]]
        return f"model.layers.{parts[1]}.{stem}.{parts[3]}"
    return f"{HF_NAMES[parts[0]]}.{parts[1]}"


def to_half_split(rows, n_heads):
    """Row order of q and k from adjacent RoPE pairs (llama files) to the half-split pairs of the Hugging Face code."""
    pairs = rows.reshape(n_heads, -1, 2, *rows.shape[1:])  # [n_heads, head_dim / 2, 2, d_model]
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def alternate(a, b):
    """Along axis 1: an element of a, one of b, and so on."""
    return np.stack([a, b], axis=2).reshape(a.shape[0], -1, *a.shape[2:])


def join_experts(m, tensors, state):
    """Puts the stacks into `state`, gate and up in one tensor as the library has them; returns the other tensors."""
    for i in range(m.n_layers):
        b, to = f"blk.{i}.ffn_", f"model.layers.{i}.mlp.experts."
        gate, up = tensors[b + "gate_exps.weight"], tensors[b + "up_exps.weight"]
        if m.arch == "gpt-oss":  # gate and up alternate, and matrices are [inputs, outputs]
            state[to + "gate_up_proj"] = torch.from_numpy(alternate(gate, up).swapaxes(1, 2).copy())
            state[to + "down_proj"] = torch.from_numpy(tensors[b + "down_exps.weight"].swapaxes(1, 2).copy())
            state[to + "gate_up_proj_bias"] = torch.from_numpy(
                alternate(tensors[b + "gate_exps.bias"], tensors[b + "up_exps.bias"]))
            state[to + "down_proj_bias"] = torch.from_numpy(tensors[b + "down_exps.bias"])
            continue
        state[to + "gate_up_proj"] = torch.from_numpy(np.concatenate([gate, up], axis=1))
        state[to + "down_proj"] = torch.from_numpy(tensors[b + "down_exps.weight"])
    return {name: value[None] if "inp_shexp" in name else value for name, value in tensors.items()
            if "_exps." not in name}


def hf_extras(m):
    """Settings of the library's configuration that only some architectures have."""
    layers = range(m.n_layers)
    if m.arch == "gpt-oss":
        return {"num_local_experts": m.experts, "num_experts_per_tok": m.used, "sliding_window": m.window}
    if m.experts:
        return {"num_experts": m.experts, "num_experts_per_tok": m.used, "moe_intermediate_size": m.d_ff,
                "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": (m.norm_as or m.arch) == "qwen3moe",
                "shared_expert_intermediate_size": m.shared}
    if m.arch in GEMMA:
        every = 2 if m.arch == "gemma2" else m.every or 6
        caps = {"attn_logit_softcapping": m.caps[0] or None, "final_logit_softcapping": m.caps[1] or None}
        return {"query_pre_attn_scalar": m.head_dim, "sliding_window": m.window, **caps,
                "layer_types": ["full_attention" if (i + 1) % every == 0 else "sliding_attention" for i in layers]}
    if m.arch == "phi3":
        return {"pad_token_id": None, "sliding_window": m.window or None}
    if m.arch == "smollm3":
        return {"no_rope_layers": [int((i + 1) % 4 != 0) for i in layers], "pad_token_id": None}
    if m.arch == "granite":
        names = {"embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
                 "attention.scale": "attention_multiplier", "logit_scale": "logits_scaling"}
        return {names[key]: value for key, value in m.factors.items()}
    if m.arch == "glm4":
        return {"attention_bias": True, "pad_token_id": None}
    return {"pad_token_id": None} if m.arch == "olmo2" else {}


def hf_rope(m):
    rope = {"rope_theta": m.rope_base, **(m.rope or {"rope_type": "default"})}
    if rope["rope_type"] == "longrope":
        rope |= {f"{kind}_factor": factors.tolist() for kind, factors in long_factors(m).items()}
    if m.arch == "glm4":
        rope["partial_rotary_factor"] = (m.rope_dim or m.head_dim) / m.head_dim
    if m.arch == "gemma3":
        return {"full_attention": rope, "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}
    return rope


def hf_model(m, tensors):
    kinds = {"llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
             "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
             "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
             "qwen3moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM),
             "qwen2moe": (transformers.Qwen2MoeConfig, transformers.Qwen2MoeForCausalLM),
             "gemma3": (transformers.Gemma3TextConfig, transformers.Gemma3ForCausalLM),
             "gemma2": (transformers.Gemma2Config, transformers.Gemma2ForCausalLM),
             "phi3": (transformers.Phi3Config, transformers.Phi3ForCausalLM),
             "smollm3": (transformers.SmolLM3Config, transformers.SmolLM3ForCausalLM),
             "granite": (transformers.GraniteConfig, transformers.GraniteForCausalLM),
             "olmo2": (transformers.Olmo2Config, transformers.Olmo2ForCausalLM),
             "glm4": (transformers.Glm4Config, transformers.Glm4ForCausalLM),
             "gpt-oss": (transformers.GptOssConfig, transformers.GptOssForCausalLM)}
    config_type, model_type = kinds[m.arch]
    config = config_type(
        vocab_size=VOCAB, hidden_size=m.d_model, intermediate_size=m.d_ff, num_hidden_layers=m.n_layers,
        num_attention_heads=m.n_heads, num_key_value_heads=m.n_kv_heads, head_dim=m.head_dim, rms_norm_eps=NORM_EPS,
        max_position_embeddings=m.context, tie_word_embeddings=m.tied,
        rope_parameters=hf_rope(m),
        bos_token_id=None, eos_token_id=None, attn_implementation="eager", **hf_extras(m))
    model = model_type(config).float().eval()
    state = {}
    if m.experts:
        tensors = join_experts(m, tensors, state)
    for name, value in tensors.items():
        if name.startswith("rope_"):
            continue
        if m.arch in ADJACENT and name.endswith("attn_q.weight"):
            value = to_half_split(value, m.n_heads)
        if m.arch in ADJACENT and name.endswith("attn_k.weight"):
            value = to_half_split(value, m.n_kv_heads)
        if m.arch in GEMMA and name.endswith("norm.weight"):
            value = value - 1.0  # the library adds it again
        state[hf_name(name, m.arch)] = torch.from_numpy(value.copy())
    if m.tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state, strict=True)
    assert model.model.layers[0].self_attn.o_proj.in_features == m.n_heads * m.head_dim
    if "rope_freqs.weight" in tensors:  # the file's divisors and the library's own formula must be the same thing
        plain = m.rope_base ** (-np.arange(0, m.head_dim, 2) / m.head_dim)
        np.testing.assert_allclose(plain / tensors["rope_freqs.weight"], model.model.rotary_emb.inv_freq, rtol=1e-5)
    return model


class Bf16Cache(transformers.DynamicCache):
    """A KV cache that keeps bf16 (round to nearest even): what attention reads is what such a cache can hold."""

    def update(self, keys, values, *args, **kwargs):
        return super().update(keys.bfloat16().float(), values.bfloat16().float(), *args, **kwargs)


def logits_of(model, tokens, cache=None):
    with torch.no_grad():
        out = model(input_ids=torch.tensor([tokens.tolist()]), past_key_values=cache, use_cache=cache is not None)
    return out.logits[0].float().numpy()


# ---- goldens ---------------------------------------------------------------------------------------------------------

def smallest_gap(logits):
    best = np.sort(logits, axis=1)[:, -2:]
    return float(((best[:, 1] - best[:, 0]) / np.abs(logits).max(axis=1)).min())


def smallest_margin(m, router_logits):
    """Of all tokens and layers: the last expert chosen before the first one left out, relative to the largest logit."""
    worst = np.inf
    for logits in router_logits:
        best = np.sort(logits, axis=1)[:, ::-1]
        worst = min(worst, float(((best[:, m.used - 1] - best[:, m.used]) / np.abs(logits).max()).min()))
    return worst


def watch_routers(model):
    """Keeps the router logits of the latest pass in model.margins, one array per layer."""
    model.margins = []
    layers = [layer for layer in model.modules() if type(layer).__name__.endswith("TopKRouter")]
    for i, router in enumerate(layers):
        def keep(_, __, out, i=i):
            model.margins[i:i + 1] = [out[0].detach().float().numpy()]
        router.register_forward_hook(keep)


def best_tokens(m, model):
    tries = []
    for seed in range(SEEDS):
        rng = np.random.default_rng([zlib.crc32(m.name.encode()), seed])
        tokens = rng.integers(0, VOCAB, N_TOK, dtype=np.int32)
        gap = smallest_gap(logits_of(model, tokens))
        if m.experts:  # what rounding changes must not decide which experts a token goes through
            gap = min(gap, smallest_margin(m, model.margins))
        tries.append((gap, seed, tokens))
    return max(tries, key=lambda t: t[:2])


def write_golden(path, tokens, logits):
    """magic WGLD, u32 version, u32 n_tok, u32 vocab_size, i32 tokens[n_tok], f32 logits[n_tok][vocab_size]."""
    assert logits.shape == (N_TOK, VOCAB) and np.isfinite(logits).all()
    head = b"WGLD" + struct.pack("<III", 1, *logits.shape)
    path.write_bytes(head + tokens.astype("<i4").tobytes() + logits.astype("<f4").tobytes())


def ablations(m, tensors):
    """Yields (what, model, tensors) with one feature got wrong, to show that the golden would notice."""
    if m.rope:
        plain = {k: v for k, v in tensors.items() if k != "rope_freqs.weight"}
        yield "no RoPE scaling", replace(m, rope=None), plain
    if m.rope and not m.rope.get("truncate", True):
        yield "YaRN's range rounded", replace(m, rope={**m.rope, "truncate": True}), tensors
    if m.rope and m.rope["rope_type"] in ("yarn", "longrope"):
        yield "no magnitude", replace(m, rope={**m.rope, "attention_factor": 1.0}), tensors
    if m.arch in ADJACENT:
        def halves(name, v):
            n = {"attn_q": m.n_heads, "attn_k": m.n_kv_heads}.get(name.split(".")[-2])
            return v if n is None else v.reshape(n, 2, -1, v.shape[1]).swapaxes(1, 2).reshape(v.shape)
        yield "half-split RoPE", m, {k: halves(k, v) for k, v in tensors.items()}
    if m.arch == "gpt-oss":
        yield "no sinks", m, {k: v * 0 - 1e9 if "attn_sinks" in k else v for k, v in tensors.items()}
    if m.window:
        yield "no window", replace(m, window=m.context), tensors
        yield "window of one more", replace(m, window=m.window + 1), tensors
    if m.arch == "gemma3":
        yield "one rotation", replace(m, rope_base=10000.0), tensors
        yield "other layers global", replace(m, every=2), tensors
    if m.arch == "gemma2":
        yield "no cap of attention logits", replace(m, caps=(0.0, m.caps[1])), tensors
        yield "no cap of output logits", replace(m, caps=(m.caps[0], 0.0)), tensors
    for key in m.factors or {}:
        yield "no " + key, replace(m, factors={**m.factors, key: 1.0}), tensors
    if m.rope_dim:
        yield "all elements rotate", replace(m, rope_dim=0), tensors
    if m.arch in FUSED:
        yield "gate and up swapped", m, {k: np.roll(v, m.d_ff, axis=0) if k.endswith("ffn_up.weight") else v
                                         for k, v in tensors.items()}
    if m.experts:
        yield "one expert fewer", replace(m, used=m.used - 1), tensors
        yield "experts moved by one", m, {k: np.roll(v, 1, axis=0) if "_exps." in k else v for k, v in tensors.items()}
        yield "gate and up swapped", m, {k.replace("gate_exps", "?").replace("up_exps", "gate_exps").replace(
            "?", "up_exps"): v for k, v in tensors.items()}
        if m.arch in ("qwen2moe", "qwen3moe"):
            other = "qwen3moe" if m.arch == "qwen2moe" else "qwen2moe"
            yield "weights normalised otherwise", replace(m, norm_as=other), tensors
    if m.shared:
        yield "shared expert always open", m, {k: v * 0 if "inp_shexp" in k else v for k, v in tensors.items()}
    for what, end in (("no bias", ".bias"), ("no q norm", "attn_q_norm.weight"), ("no k norm", "attn_k_norm.weight"),
                      ("no norm after attention", "post_attention_norm.weight"),
                      ("no norm after feed-forward", "post_ffw_norm.weight")):
        hit = [k for k in tensors if k.endswith(end)]
        if hit:
            fill = 0.0 if end == ".bias" else 1.0
            yield what, m, {k: np.full_like(v, fill) if k in hit else v for k, v in tensors.items()}
    if m.n_kv_heads > 1 and m.arch != "phi3":
        def swap(name, v):
            kv = name.split(".")[-2] in ("attn_k", "attn_v")
            return np.roll(v, m.head_dim, axis=0) if kv else v
        yield "KV heads moved by one", m, {k: swap(k, v) for k, v in tensors.items()}


def make(m):
    path = HERE / f"{m.name}.gguf"
    write_gguf(m, path)
    tensors = read_tensors(path)
    model = hf_model(m, tensors)
    if m.experts:
        watch_routers(model)
    gap, seed, tokens = best_tokens(m, model)
    assert gap > MIN_GAP, f"{m.name}: smallest gap {gap:.2g}; raise SEEDS"
    logits = logits_of(model, tokens)
    write_golden(HERE / f"{m.name}.golden", tokens, logits)
    top = np.abs(logits).max()
    rounded = logits_of(model, tokens, Bf16Cache())
    write_golden(HERE / f"{m.name}.bf16kv.golden", tokens, rounded)
    worst = [(np.abs(logits_of(hf_model(m2, t2), tokens) - logits).max() / top, what)
             for what, m2, t2 in ablations(m, tensors)]
    note = "{1}: {0:.2g}".format(*min(worst)) if worst else "-"
    same = int((rounded.argmax(1) == logits.argmax(1)).sum())
    print(f"| {m.name} | {path.stat().st_size} | {seed} | {top:.1f} | {gap:.2g} | "
          f"{np.abs(rounded - logits).max() / top:.1g} | {same} | {note} |", flush=True)


def main():
    torch.set_num_threads(1)
    print(", ".join(f"{p} {version(p)}" for p in ("numpy", "gguf", "torch", "transformers")))
    print("| name | bytes | seed | max logit | smallest gap | bf16 KV | same top-1 | nearest mistake |")
    for m in MODELS:
        if len(sys.argv) == 1 or m.name in sys.argv[1:]:
            make(m)


if __name__ == "__main__":
    main()
