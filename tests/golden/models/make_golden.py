#!/usr/bin/env python3
"""Makes the golden model files of this folder: <name>.gguf, <name>.golden and <name>.bf16kv.golden.

Run by hand, never by a build or a test:  python3 make_golden.py [name ...]     (no name: all of them)
Needs numpy, gguf, torch (CPU) and transformers; README.md lists the versions that made the committed files.

For each row of MODELS it draws random weights, writes a complete GGUF file as the usual converters lay it out, reads
that file back, gives the dequantised weights to the Hugging Face implementation of the architecture, and stores its
float32 logits. Because the weights come out of the file, an implementation under test can differ from a golden only by
the order of its arithmetic.

Every random number comes from a generator seeded with the model's name, and the token sequence is the best of SEEDS
candidates: the one whose smallest distance between the best and the second-best logit is largest, so that top-1 can be
compared at every position.
"""
import struct
import sys
import zlib
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
import transformers
from model_file import ADJACENT, FUSED, GEMMA, MODELS, SECTIONS, VOCAB, long_factors, read_tensors, write_gguf
from recurrent_hf import recurrent_ablations, recurrent_model

HERE = Path(__file__).resolve().parent
N_TOK = 40       # two full pages of 16 tokens and a half-filled one
SEEDS = 1024     # token sequences tried per model
BATCH = 32       # so many at a time
MIN_GAP = 1e-3   # smallest accepted (top1 - top2) / max |logit| of a position


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
            "glm4moe": {"post_attention_norm": "post_attention_layernorm", "exp_probs_b": "mlp.gate",
                        "ffn_gate_shexp": "mlp.shared_experts.gate_proj", "ffn_up_shexp": "mlp.shared_experts.up_proj",
                        "ffn_down_shexp": "mlp.shared_experts.down_proj"},
            "granitemoe": {"ffn_gate_inp": "block_sparse_moe.router", "ffn_down_shexp": "shared_mlp.output_linear",
                           "ffn_up_shexp": "shared_mlp.input_linear"},
            "phi3": {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}}


OSS_NAMES = {"attn_sinks": "self_attn.sinks", "ffn_gate_inp": "mlp.router",
             "post_attention_norm": "post_attention_layernorm"}


def hf_name(name, arch):
    parts = name.split(".")
    if arch == "gpt-oss" and parts[-2] in OSS_NAMES:
        return f"model.layers.{parts[1]}.{OSS_NAMES[parts[2]]}" + (f".{parts[3]}" if parts[2] != "attn_sinks" else "")
    if parts[0] == "blk":
        stem = HF_OTHER.get(arch, {}).get(parts[2]) or HF_NAMES[parts[2]]
        if parts[2] == "exp_probs_b":
            return f"model.layers.{parts[1]}.{stem}.e_score_correction_bias"
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
    for i in range(m.lead, m.n_layers):
        b, to = f"blk.{i}.ffn_", f"model.layers.{i}.mlp.experts."
        if m.arch == "granitemoe":
            to = f"model.layers.{i}.block_sparse_moe.experts."
        if m.fused:
            state[to + "gate_up_proj"] = torch.from_numpy(tensors[b + "gate_up_exps.weight"])
            state[to + "down_proj"] = torch.from_numpy(tensors[b + "down_exps.weight"])
            continue
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
    rest = {name: value[None] if "inp_shexp" in name else value for name, value in tensors.items()
            if "_exps." not in name}
    for name in [name for name in rest if m.arch == "granitemoe" and "gate_shexp" in name]:
        up = name.replace("gate", "up")
        rest[up] = np.concatenate([rest.pop(name), rest[up]])
    return rest


def hf_extras(m):
    """Settings of the library's configuration that only some architectures have."""
    layers = range(m.n_layers)
    if m.arch == "gpt-oss":
        return {"num_local_experts": m.experts, "num_experts_per_tok": m.used, "sliding_window": m.window}
    if m.arch == "glm4moe":
        return {"num_local_experts": m.experts, "num_experts_per_tok": m.used, "moe_intermediate_size": m.d_ff,
                "n_shared_experts": m.shared // m.d_ff, "n_group": m.groups[0], "topk_group": m.groups[1],
                "first_k_dense_replace": m.lead, "routed_scaling_factor": m.scale, "norm_topk_prob": True,
                "use_qk_norm": m.qk_norm, "attention_bias": True}
    if m.arch == "granitemoe":
        return {"num_local_experts": m.experts, "num_experts_per_tok": m.used, "shared_intermediate_size": m.shared,
                **granite_factors(m)}
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
        return {"pad_token_id": None, "sliding_window": m.window or None,
                "original_max_position_embeddings": (m.rope or {}).get("original_max_position_embeddings", m.context)}
    if m.arch == "smollm3":
        return {"no_rope_layers": [int((i + 1) % 4 != 0) for i in layers], "pad_token_id": None}
    if m.arch == "granite":
        return granite_factors(m)
    if m.arch == "glm4":
        return {"attention_bias": True, "pad_token_id": None}
    if m.bias:
        return {"attention_bias": True, "mlp_bias": True}
    return {"pad_token_id": None} if m.arch == "olmo2" else {}


def granite_factors(m):
    names = {"embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
             "attention.scale": "attention_multiplier", "logit_scale": "logits_scaling"}
    return {names[key]: value for key, value in m.factors.items()}


def hf_rope(m):
    rope = {"rope_theta": m.rope_base, **(m.rope or {"rope_type": "default"})}
    if rope["rope_type"] == "longrope":
        rope |= {f"{kind}_factor": factors.tolist() for kind, factors in long_factors(m).items()}
    if m.arch == "mistral3":
        rope["llama_4_scaling_beta"] = m.beta
    if m.arch in ("qwen3vl", "qwen3vlmoe"):
        rope |= {"mrope_section": SECTIONS, "mrope_interleaved": True}
    if m.arch in ("glm4", "glm4moe"):
        rope["partial_rotary_factor"] = (m.rope_dim or m.head_dim) / m.head_dim
    if m.arch == "gemma3":
        return {"full_attention": rope, "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"}}
    return rope


class TextModel(torch.nn.Module):
    """The text part of a model that also sees, with a head on it as the other models have it."""

    def __init__(self, config):
        super().__init__()
        kinds = {"qwen3_vl_text": transformers.Qwen3VLTextModel, "qwen3_vl_moe_text": transformers.Qwen3VLMoeTextModel}
        self.config = config
        self.model = kinds[config.model_type](config)
        self.lm_head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def set_attn_implementation(self, name):
        self.model.set_attn_implementation(name)

    def forward(self, **inputs):
        out = self.model(**inputs)
        return SimpleNamespace(logits=self.lm_head(out.last_hidden_state), past_key_values=out.past_key_values)


def hf_model(m, tensors):
    if m.rec:
        return recurrent_model(m, tensors, VOCAB)
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
             "glm4moe": (transformers.Glm4MoeConfig, transformers.Glm4MoeForCausalLM),
             "granitemoe": (transformers.GraniteMoeSharedConfig, transformers.GraniteMoeSharedForCausalLM),
             "qwen3vl": (transformers.Qwen3VLTextConfig, TextModel),
             "qwen3vlmoe": (transformers.Qwen3VLMoeTextConfig, TextModel),
             "mistral3": (transformers.Ministral3Config, transformers.Ministral3ForCausalLM),
             "gpt-oss": (transformers.GptOssConfig, transformers.GptOssForCausalLM)}
    config_type, model_type = kinds[m.arch]
    config = config_type(
        vocab_size=VOCAB, hidden_size=m.d_model, intermediate_size=m.dense_ff or m.d_ff, num_hidden_layers=m.n_layers,
        num_attention_heads=m.n_heads, num_key_value_heads=m.n_kv_heads, head_dim=m.head_dim, rms_norm_eps=m.eps,
        max_position_embeddings=m.context, tie_word_embeddings=m.tied,
        rope_parameters=hf_rope(m),
        bos_token_id=None, eos_token_id=None, attn_implementation="eager", **hf_extras(m))
    model = model_type(config).float().eval()
    state = {}
    if m.experts:
        tensors = join_experts(m, tensors, state)
    for name, value in tensors.items():
        if name.startswith("rope_") or name.startswith(f"blk.{m.n_layers}."):  # the latter predicts further tokens
            continue
        if m.arch in ADJACENT and name.endswith(("attn_q.weight", "attn_q.bias")):
            value = to_half_split(value, m.n_heads)
        if m.arch in ADJACENT and name.endswith(("attn_k.weight", "attn_k.bias")):
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


def smallest_margin(decisions):
    """The least lead of the last value chosen over the first one left out, relative to the largest value, of all
    decisions: (values [n_tok, n], how many are chosen)."""
    worst = np.inf
    for values, n_used in decisions:
        best = np.sort(values, axis=1)[:, ::-1]
        lead = best[:, n_used - 1] - best[:, n_used]
        worst = min(worst, float((lead / np.abs(values[np.isfinite(values)]).max()).min()))
    return worst


def decisions_of(m, router, args, logits):
    """What a router decides by, for smallest_margin."""
    bias = args[1] if m.arch == "lfm2moe" else getattr(router, "e_score_correction_bias", None)
    if bias is None:
        return [(logits.numpy(), m.used)]
    score = (logits.sigmoid() + bias).numpy()
    groups, n_groups = m.groups
    if groups == 1:
        return [(score, m.used)]
    score = score.reshape(len(score), groups, -1)
    best = np.sort(score, axis=2)[:, :, -2:].sum(2)
    last = np.sort(best, axis=1)[:, -n_groups]
    left = np.where((best >= last[:, None])[:, :, None], score, -np.inf).reshape(len(score), -1)
    return [(best, n_groups), (left, m.used)]


def watch_routers(m, model):
    """Keeps the decisions of the latest pass in model.margins, by layer."""
    model.margins = {}
    layers = [layer for layer in model.modules() if type(layer).__name__.lower().endswith("topkrouter")]
    assert layers
    for i, router in enumerate(layers):
        def keep(module, args, out, i=i):
            model.margins[i] = decisions_of(m, module, args, out[0].detach().float())
        router.register_forward_hook(keep)


def all_decisions(model):
    return [decision for decisions in model.margins.values() for decision in decisions]


def best_tokens(m, model):
    """The best of SEEDS random sequences: (gap, seed, tokens). They are computed BATCH at a time."""
    tries = []
    for first in range(0, SEEDS, BATCH):
        seeds = range(first, first + BATCH)
        batch = np.array([np.random.default_rng([zlib.crc32(m.name.encode()), seed]).integers(
            0, VOCAB, N_TOK, dtype=np.int32) for seed in seeds])
        with torch.no_grad():
            logits = model(input_ids=torch.from_numpy(batch), use_cache=False).logits.float().numpy()
        for i, seed in enumerate(seeds):
            gap = smallest_gap(logits[i])
            if m.experts:  # what rounding changes must not decide which experts a token goes through
                rows = slice(i * N_TOK, (i + 1) * N_TOK)
                gap = min(gap, smallest_margin((values[rows], n) for values, n in all_decisions(model)))
            tries.append((gap, seed, batch[i]))
    return max(tries, key=lambda t: t[:2])


def write_golden(path, tokens, logits):
    """magic WGLD, u32 version, u32 n_tok, u32 vocab_size, i32 tokens[n_tok], f32 logits[n_tok][vocab_size]."""
    assert logits.shape == (N_TOK, VOCAB) and np.isfinite(logits).all()
    head = b"WGLD" + struct.pack("<III", 1, *logits.shape)
    path.write_bytes(head + tokens.astype("<i4").tobytes() + logits.astype("<f4").tobytes())


def ablations(m, tensors):
    """Yields (what, model, tensors) with one feature got wrong, to show that the golden would notice."""
    if m.rec:
        for what, wrong in recurrent_ablations(m, tensors):
            yield what, m, wrong
    if m.rope:
        plain = {k: v for k, v in tensors.items() if k != "rope_freqs.weight"}
        unscaled = {**m.rope, "rope_type": "default"} if m.beta else None
        yield "no RoPE scaling", replace(m, rope=unscaled), plain
    if m.rope and not m.rope.get("truncate", True):
        yield "YaRN's range rounded", replace(m, rope={**m.rope, "truncate": True}), tensors
    if m.rope and "mscale" in m.rope:
        kept = {k: v for k, v in m.rope.items() if "mscale" not in k}
        yield "magnitude not taken back", replace(m, rope=kept), tensors
    elif m.rope and m.rope["rope_type"] in ("yarn", "longrope"):
        yield "no magnitude", replace(m, rope={**m.rope, "attention_factor": 1.0}), tensors
    if m.arch in ADJACENT:
        def halves(name, v):
            n = {"attn_q": m.n_heads, "attn_k": m.n_kv_heads}.get(name.split(".")[-2])
            return v if n is None else v.reshape(n, 2, -1, *v.shape[1:]).swapaxes(1, 2).reshape(v.shape)
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
        if m.fused:
            yield "gate and up swapped", m, {k: np.roll(v, m.d_ff, axis=1) if "gate_up_exps" in k else v
                                             for k, v in tensors.items()}
        elif m.arch != "nemotron_h_moe":
            yield "gate and up swapped", m, {k.replace("gate_exps", "?").replace("up_exps", "gate_exps").replace(
                "?", "up_exps"): v for k, v in tensors.items()}
        if m.arch in ("qwen2moe", "qwen3moe"):
            other = "qwen3moe" if m.arch == "qwen2moe" else "qwen2moe"
            yield "weights normalised otherwise", replace(m, norm_as=other), tensors
    if any("exp_probs_b" in k for k in tensors):
        yield "choice bias ignored", m, {k: v * 0 if "exp_probs_b" in k else v for k, v in tensors.items()}
    if m.scale not in (0.0, 1.0):
        yield "weights not scaled", replace(m, scale=1.0), tensors
    if m.groups[0] > 1:
        yield "no groups", replace(m, groups=(1, 1)), tensors
    if m.beta:
        yield "no temperature", replace(m, beta=0.0), tensors
    if m.shared:
        yield "no shared expert", m, {k: v * 0 if "down_shexp" in k else v for k, v in tensors.items()}
    if any("inp_shexp" in k for k in tensors):
        yield "shared expert always open", m, {k: v * 0 if "inp_shexp" in k else v for k, v in tensors.items()}
    for what, end in (("no bias", ".bias"), ("no bias of the output", "attn_output.bias"),
                      ("no bias of the gate", "ffn_gate.bias"), ("no bias of up", "ffn_up.bias"),
                      ("no bias of down", "ffn_down.bias"), ("no q norm", "attn_q_norm.weight"),
                      ("no k norm", "attn_k_norm.weight"), ("no norm after attention", "post_attention_norm.weight"),
                      ("no norm after feed-forward", "post_ffw_norm.weight")):
        hit = [k for k in tensors if k.endswith(end)]
        if hit:
            fill = 0.0 if end.endswith(".bias") else 1.0
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
        watch_routers(m, model)
    gap, seed, tokens = best_tokens(m, model)
    assert gap > MIN_GAP, f"{m.name}: smallest gap {gap:.2g}; raise SEEDS"
    logits = logits_of(model, tokens)
    write_golden(HERE / f"{m.name}.golden", tokens, logits)
    top = np.abs(logits).max()
    rounded = logits_of(model, tokens, Bf16Cache(config=model.config) if m.rec else Bf16Cache())
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
