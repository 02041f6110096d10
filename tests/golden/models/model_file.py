"""What the golden models are made of: their sizes and keys (MODELS), random weights, and complete GGUF files.

make_golden.py writes the files and computes their logits. Every random number comes from a generator seeded with the
model's name. What it does not do: quantise well. The blocks of RANDOM_BLOCKS are random bytes with sane scales.
"""
import zlib
from dataclasses import dataclass

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T
from recurrent_file import Draw, Recurrent, recurrent_keys, recurrent_tensors

NORM_EPS = 1e-5

FILE_TYPES = {T.F32: 0, T.F16: 1, T.BF16: 32, T.Q8_0: 7, T.Q4_0: 2, T.Q4_1: 3, T.Q5_0: 8, T.Q5_1: 9, T.IQ4_NL: 25,
              T.MXFP4: 38, T.NVFP4: 39, T.IQ2_XXS: 19, T.IQ2_XS: 20, T.IQ2_S: 28, T.Q2_K: 10, T.IQ3_XXS: 23,
              T.IQ3_S: 26, T.Q3_K: 12, T.IQ4_XS: 30, T.Q4_K: 15, T.Q5_K: 17, T.Q6_K: 18}

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
    bias: bool = False                 # llama: every matrix of a layer has a bias
    eps: float = NORM_EPS              # of norms
    rec: Recurrent | None = None       # layers that are not attention
    dense_ff: int = 0                  # rows of the dense layers of a model with experts
    lead: int = 0                      # so many layers of a model with experts are dense, of dense_ff rows
    qk_norm: bool = False              # glm4moe: heads of q and k are normalised
    scale: float = 1.0                 # of the experts' weights
    groups: tuple = (1, 1)             # of experts, and how many a token may choose from
    mtp: bool = False                  # a block that predicts the token after the next one follows the layers
    fused: bool = False                # gate and up of all experts are one tensor
    beta: float = 0.0                  # mistral3: of the attention's temperature


ADJACENT = ("llama", "smollm3", "granite", "granitemoe", "mistral3")  # their converters reorder the rows of q and k
GEMMA = ("gemma2", "gemma3")
FUSED = ("phi3", "glm4")                    # gate and up are one tensor
QK_NORM = ("qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "gemma3", "olmo2")
NORM_BEFORE = ("gpt-oss", "glm4moe")        # post_attention_norm is the norm before the feed-forward network


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 256}
LONG = {"rope_type": "longrope", "factor": 16.0, "original_max_position_embeddings": 32, "attention_factor": 1.19}
SHORT = {**LONG, "factor": 0.5, "original_max_position_embeddings": 1024, "attention_factor": 1.05}
GRANITE = {"embedding_scale": 3.0, "residual_scale": 0.6, "attention.scale": 0.09, "logit_scale": 4.0}
MXFP4_EXPERTS = {f"ffn_{n}_exps": T.MXFP4 for n in ("gate", "up", "down")}
OSS_YARN = {**YARN, "factor": 8.0, "original_max_position_embeddings": 128, "truncate": False}
MISTRAL_YARN = {**YARN, "original_max_position_embeddings": 16, "mscale": 1.0, "mscale_all_dim": 1.0}
SECTIONS = [12, 10, 10]                     # of qwen3vl: pairs of a head that turn by each of an image's positions
QWEN35 = {"eps": 1e-6, "rope_base": 1e7, "rope_dim": 16}
BIG = {"d_model": 256, "n_layers": 1, "n_heads": 4, "d_ff": 256}  # K-quants need rows of a multiple of 256 weights

MODELS = [
    Model("llama_f32", qtype=T.F32, n_heads=4, n_kv_heads=2, tied=False),
    Model("llama_f16", tied=False),
    Model("llama_bf16", qtype=T.BF16, tied=False),
    Model("llama_hd80", d_model=48, n_layers=1, n_heads=6, n_kv_heads=2, head_dim=80),
    Model("llama_hd96", n_layers=1, n_kv_heads=2, head_dim=96, omit=("head_count_kv",)),
    Model("llama_hd256", n_layers=1, head_dim=256),
    Model("llama_mqa", n_layers=1, n_heads=4, omit=("freq_base",)),
    Model("llama_bias", qtype=T.F32, n_heads=4, n_kv_heads=2, bias=True),
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
    Model("llama_nvfp4", qtype=T.NVFP4, d_model=128, tied=False),
    Model("llama_iq2_xxs", qtype=T.IQ2_XXS, **BIG),
    Model("llama_iq2_xs", qtype=T.IQ2_XS, **BIG),
    Model("llama_iq2_s", qtype=T.IQ2_S, **BIG),
    Model("llama_q2_k", qtype=T.Q2_K, **BIG),
    Model("llama_iq3_xxs", qtype=T.IQ3_XXS, **BIG),
    Model("llama_iq3_s", qtype=T.IQ3_S, **BIG),
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
    Model("smollm3_q8_0", arch="smollm3", qtype=T.Q8_0, d_model=64, n_layers=4, rope_base=1e4),
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
    Model("glm4moe_f32", arch="glm4moe", qtype=T.F32, n_heads=4, n_kv_heads=2, d_ff=32, dense_ff=64, lead=1,
          experts=6, used=2, shared=32, rope_dim=32, qk_norm=True, scale=1.5, mtp=True, tied=False),
    Model("glm4moe_q8_0", arch="glm4moe", qtype=T.Q8_0, d_model=64, n_heads=4, d_ff=32, dense_ff=64, lead=1,
          experts=12, used=4, groups=(4, 2), shared=64, rope_dim=32, scale=2.5, fused=True, tied=False),
    Model("granitemoe_f32", arch="granitemoe", qtype=T.F32, n_heads=4, n_kv_heads=2, d_ff=32, experts=6, used=2,
          factors=GRANITE),
    Model("granitemoe_q8_0", arch="granitemoe", qtype=T.Q8_0, d_model=64, d_ff=32, experts=5, used=3, shared=64,
          factors=GRANITE, tied=False),
    Model("qwen3vlmoe_f32", arch="qwen3vlmoe", qtype=T.F32, d_ff=32, experts=8, used=3, rope_base=5e6),
    Model("qwen3vlmoe_q8_0", arch="qwen3vlmoe", qtype=T.Q8_0, d_model=64, d_ff=32, experts=5, used=2, rope_base=5e6),
    Model("qwen3vl_f32", arch="qwen3vl", qtype=T.F32, n_heads=4, n_kv_heads=2, tied=False, rope_base=5e6),
    Model("qwen3vl_q8_0", arch="qwen3vl", qtype=T.Q8_0, d_model=64, rope_base=5e6),
    Model("mistral3_f32", arch="mistral3", qtype=T.F32, n_heads=4, n_kv_heads=2, rope_base=100.0, rope=MISTRAL_YARN,
          context=256, beta=0.3, tied=False),
    Model("mistral3_q8_0", arch="mistral3", qtype=T.Q8_0, d_model=64, rope_base=100.0, rope=MISTRAL_YARN, context=256,
          beta=0.1),
    Model("qwen35_f32", arch="qwen35", qtype=T.F32, n_layers=4, n_heads=4, n_kv_heads=2, tied=False, **QWEN35,
          rec=Recurrent("ddda", kernel=4, state=16, groups=2, heads=4, inner=64)),
    Model("qwen35_q8_0", arch="qwen35", qtype=T.Q8_0, d_model=64, n_layers=6, **QWEN35,
          rec=Recurrent("ddadda", kernel=4, state=32, groups=2, heads=6, inner=192)),
    Model("qwen35_f16", arch="qwen35", n_layers=2, **QWEN35,
          rec=Recurrent("da", kernel=4, state=128, groups=1, heads=2, inner=256), mtp=True),
    Model("lfm2_f32", arch="lfm2", qtype=T.F32, n_layers=4, n_heads=4, n_kv_heads=2, rope_base=1e6,
          rec=Recurrent("ccac", kernel=3)),
    Model("lfm2_q8_0", arch="lfm2", qtype=T.Q8_0, d_model=128, n_layers=5, rope_base=1e6,
          rec=Recurrent("cacca", kernel=4)),
    Model("granitehybrid_f32", arch="granitehybrid", qtype=T.F32, n_layers=4, n_heads=4, n_kv_heads=2,
          factors={**GRANITE, "attention.scale": 0.25},
          rec=Recurrent("mmam", kernel=4, state=16, groups=1, heads=4, inner=64, rope=False)),
    Model("granitehybrid_q8_0", arch="granitehybrid", qtype=T.Q8_0, d_model=128, n_layers=3, d_ff=32, experts=5, used=2,
          shared=64, factors=GRANITE,
          rec=Recurrent("mam", kernel=4, state=32, groups=2, heads=4, inner=256, rope=False)),
    Model("granitehybrid_f16", arch="granitehybrid", n_layers=3, factors=GRANITE, tied=False,
          rec=Recurrent("mam", kernel=4, state=128, groups=2, heads=2, inner=64)),
    Model("nemotron_h_f32", arch="nemotron_h", qtype=T.F32, n_layers=6, n_heads=4, n_kv_heads=2, tied=False,
          rec=Recurrent("mfamaf", kernel=4, state=16, groups=2, heads=6, inner=96)),
    Model("nemotron_h_q8_0", arch="nemotron_h", qtype=T.Q8_0, d_model=64, n_layers=5, tied=False,
          rec=Recurrent("mfmaf", kernel=4, state=128, groups=2, heads=4, inner=128)),
    Model("qwen35moe_f32", arch="qwen35moe", qtype=T.F32, n_layers=4, d_ff=32, experts=6, used=2, shared=64, **QWEN35,
          rec=Recurrent("dada", kernel=4, state=16, groups=2, heads=4, inner=64)),
    Model("qwen35moe_q8_0", arch="qwen35moe", qtype=T.Q8_0, d_model=64, n_layers=3, d_ff=32, experts=5, used=3,
          shared=32, tied=False, **QWEN35, rec=Recurrent("dda", kernel=4, state=32, groups=2, heads=4, inner=128)),
    Model("lfm2moe_f32", arch="lfm2moe", qtype=T.F32, n_layers=4, d_ff=32, dense_ff=64, experts=6, used=2,
          rope_base=1e6, lead=1, rec=Recurrent("caca", kernel=3)),
    Model("lfm2moe_q8_0", arch="lfm2moe", qtype=T.Q8_0, d_model=128, n_layers=4, d_ff=32, dense_ff=96, experts=5,
          used=3, rope_base=1e6, lead=2, rec=Recurrent("ccac", kernel=3)),
    Model("qwen3next_f32", arch="qwen3next", qtype=T.F32, n_layers=4, d_ff=32, experts=6, used=2, shared=32, **QWEN35,
          rec=Recurrent("ddda", kernel=4, state=16, groups=2, heads=4, inner=64)),
    Model("nemotron_h_moe_f32", arch="nemotron_h_moe", qtype=T.F32, n_layers=5, d_ff=32, experts=6, used=2, shared=64,
          tied=False,
          scale=2.5, rec=Recurrent("mfmaf", kernel=4, state=16, groups=2, heads=4, inner=64)),
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
# inner scales or the numbers themselves have signs, and the mean is near zero. NVFP4's scales are bytes.
RANDOM_BLOCKS = {T.IQ2_XXS: ([0], [1.0]), T.IQ2_XS: ([0], [1.0]), T.IQ2_S: ([0], [1.0]), T.IQ3_XXS: ([0], [1.0]),
                 T.IQ3_S: ([0], [1.0]), T.NVFP4: ([0, 1, 2, 3], [1.0]),
                 T.IQ4_NL: ([0], [1.0]), T.IQ4_XS: ([0], [1.0]), T.Q3_K: ([108], [1.0]), T.Q6_K: ([208], [1.0]),
                 T.Q2_K: ([80, 82], [1.0, 1.5]), T.Q4_K: ([0, 2], [1.0, 7.5]), T.Q5_K: ([0, 2], [1.0, 15.5])}


def random_blocks(rng, shape, std, qtype):
    """Random blocks whose dequantised values have about the wanted standard deviation. Returns u8 [rows, row bytes]."""
    rows, cols = shape
    weights, size = gguf.GGML_QUANT_SIZES[qtype]
    blocks = rng.integers(0, 256, (rows * cols // weights, size), dtype=np.uint8)
    jitter = rng.uniform(0.5, 1.5, (len(blocks), 1))
    at, ratio = RANDOM_BLOCKS[qtype]

    def put(scale):
        if qtype == T.NVFP4:
            blocks[:, at] = gguf.quants.NVFP4.fp32_to_ue4m3((scale * jitter).astype(np.float32))
            return
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

    if m.rec:
        stored = lambda name: (m.types or {}).get(name.split(".")[-1], m.qtype)  # noqa: E731
        yield from recurrent_tensors(m, Draw(rng, matrix, stored, m.experts, VOCAB))
        return
    yield mat("token_embd", VOCAB, d, 2.0 / d**0.5 if m.tied else 1.0)
    if m.rope and m.rope["rope_type"] == "llama3":
        yield "rope_freqs.weight", llama3_factors(m), T.F32
    if m.rope and m.rope["rope_type"] == "longrope":
        for kind, factors in long_factors(m).items():
            yield f"rope_factors_{kind}.weight", factors, T.F32
    post_norms = m.arch in (*GEMMA, "olmo2", "glm4")
    for i in range(m.n_layers + m.mtp):
        b = f"blk.{i}."
        if m.arch != "olmo2":
            yield vec(b + "attn_norm.weight", d, 1.0, 0.2)
        if m.arch == "phi3":
            yield mat(b + "attn_qkv", q_rows + 2 * kv_rows, d, 1.2 / d**0.5)
        else:
            for stem, rows, std in ("attn_q", q_rows, 1.2), ("attn_k", kv_rows, 1.2), ("attn_v", kv_rows, 1.0):
                yield mat(b + stem, rows, d, std / d**0.5)
                if m.bias or m.arch in ("qwen2", "qwen2moe", "glm4", "glm4moe", "gpt-oss"):
                    yield vec(b + stem + ".bias", rows, 0.0, 0.5)
        if m.arch in QK_NORM or m.qk_norm:
            rows = (q_rows, kv_rows) if m.arch == "olmo2" else (m.head_dim, m.head_dim)
            yield vec(b + "attn_q_norm.weight", rows[0], 1.2, 0.3)
            yield vec(b + "attn_k_norm.weight", rows[1], 1.2, 0.3)
        yield mat(b + "attn_output", d, q_rows, 3.0 / q_rows**0.5)
        if m.bias:
            yield vec(b + "attn_output.bias", d, 0.0, 0.5)
        if m.arch == "gpt-oss":
            yield vec(b + "attn_output.bias", d, 0.0, 0.5)
            yield vec(b + "attn_sinks.weight", m.n_heads, 1.0, 1.5)
        if post_norms or m.arch in NORM_BEFORE:
            yield vec(b + "post_attention_norm.weight", d, 1.0, 0.2)
        if m.arch not in ("olmo2", *NORM_BEFORE):
            yield vec(b + "ffn_norm.weight", d, 1.0, 0.2)
        if m.experts and i >= m.lead:
            yield from expert_tensors(m, rng, b)
            if i == m.n_layers:
                yield mat(b + "nextn.eh_proj", d, 2 * d, 1.0)
                yield mat(b + "nextn.embed_tokens", VOCAB, d, 1.0)
                yield mat(b + "nextn.shared_head_head", VOCAB, d, 1.0)
                for stem in "enorm", "hnorm", "shared_head_norm":
                    yield vec(f"{b}nextn.{stem}.weight", d, 1.0, 0.2)
            continue
        d_ff = m.dense_ff or m.d_ff
        if m.arch not in FUSED:
            yield mat(b + "ffn_gate", d_ff, d, 1.5 / d**0.5)
        yield mat(b + "ffn_up", d_ff * (2 if m.arch in FUSED else 1), d, 1.5 / d**0.5)
        yield mat(b + "ffn_down", d, d_ff, 2.0 / d_ff**0.5)
        if m.bias:
            for stem, rows in ("ffn_gate", m.d_ff), ("ffn_up", m.d_ff), ("ffn_down", d):
                yield vec(b + stem + ".bias", rows, 0.0, 0.5)
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
    if m.fused:
        yield stack("ffn_gate_up_exps", 2 * m.d_ff, d, 1.5 / d**0.5)
    else:
        yield stack("ffn_gate_exps", m.d_ff, d, 1.5 / d**0.5)
        yield stack("ffn_up_exps", m.d_ff, d, 1.5 / d**0.5)
    yield stack("ffn_down_exps", d, m.d_ff, 3.0 / m.d_ff**0.5)
    if m.arch == "gpt-oss":  # wide enough for the gates' limits of 7
        yield b + "ffn_gate_inp.bias", rng.standard_normal(m.experts).astype(f32), T.F32
        yield biases("ffn_gate_exps", m.d_ff, 5.0)
        yield biases("ffn_up_exps", m.d_ff, 5.0)
        yield biases("ffn_down_exps", d, 1.0)
    if m.arch == "glm4moe":
        yield b + "exp_probs_b.bias", (rng.standard_normal(m.experts) * 0.2).astype(f32), T.F32
    if m.shared:
        if m.arch == "qwen2moe":
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
    if m.rec:
        recurrent_keys(m, w, VOCAB)
    else:
        add_keys(m, w)
    add_tokenizer(w)
    for name, data, qtype in draw_tensors(m):
        w.add_tensor(name, data, raw_dtype=qtype)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def add_keys(m, w):
    """The architecture's keys."""
    w.add_context_length(m.context)
    w.add_embedding_length(m.d_model)
    w.add_block_count(m.n_layers + m.mtp)
    w.add_feed_forward_length(m.dense_ff or m.d_ff)
    w.add_head_count(m.n_heads)
    if "head_count_kv" not in m.omit:
        w.add_head_count_kv(m.n_kv_heads)
    w.add_layer_norm_rms_eps(NORM_EPS)
    if "freq_base" not in m.omit:
        w.add_rope_freq_base(m.rope_base)
    if m.arch in ("llama", "mistral3", "granitemoe"):
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
        if m.arch != "granitemoe":
            w.add_expert_feed_forward_length(m.d_ff)
    if m.shared and m.arch != "glm4moe":
        w.add_expert_shared_feed_forward_length(m.shared)
    if m.arch == "glm4moe":
        w.add_expert_shared_count(m.shared // m.d_ff)
        w.add_leading_dense_block_count(m.lead)
        w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
        w.add_expert_weights_scale(m.scale)
        w.add_expert_weights_norm(True)
        w.add_expert_group_count(m.groups[0])
        w.add_expert_group_used_count(m.groups[1])
    if m.mtp:
        w.add_nextn_predict_layers(1)
    if m.arch in ("qwen3vl", "qwen3vlmoe"):
        w.add_rope_dimension_sections([*SECTIONS, 0])
        w.add_num_deepstack_layers(3)
    if m.beta:
        w.add_rope_scaling_yarn_log_mul(1.0)
        w.add_attn_temperature_scale(m.beta)
    if m.window:
        w.add_sliding_window(m.window)
    if m.every:
        w.add_uint32(f"{m.arch}.attention.sliding_window_pattern", m.every)
    if m.arch in ("qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", *GEMMA) or m.head_dim * m.n_heads != m.d_model:
        w.add_key_length(m.head_dim)
        w.add_value_length(m.head_dim)
    if m.rope and m.rope["rope_type"] in ("linear", "yarn"):  # llama3 is carried by rope_freqs.weight alone
        w.add_rope_scaling_type(gguf.RopeScalingType(m.rope["rope_type"]))
        w.add_rope_scaling_factor(m.rope["factor"])
    if m.rope and m.rope["rope_type"] in ("yarn", "longrope"):
        w.add_rope_scaling_orig_ctx_len(m.rope["original_max_position_embeddings"])
    if m.rope and m.rope["rope_type"] == "longrope":
        w.add_rope_scaling_attn_factors(m.rope["attention_factor"])


def read_tensors(path):
    """GGUF tensor name -> dequantised f32 array, rows first."""
    out = {}
    for t in gguf.GGUFReader(path).tensors:
        out[t.name] = np.array(gguf.dequantize(t.data, t.tensor_type), dtype=np.float32)
        assert list(out[t.name].shape) == [int(n) for n in reversed(t.shape)], t.name
        assert np.isfinite(out[t.name]).all(), t.name
    return out
