"""The Hugging Face models of the architectures whose layers are not all attention, with the weights of a GGUF file:
what the converters do to names, shapes and orders, backwards; and mistakes that a golden must show.

make_golden.py calls it. What it does not do: compute anything.
"""
import numpy as np
import torch
import transformers
from recurrent_file import LFM, NEMOTRON, QWEN, sections

KINDS = {"qwen35": (transformers.Qwen3_5TextConfig, transformers.Qwen3_5ForCausalLM),
         "qwen35moe": (transformers.Qwen3_5MoeTextConfig, transformers.Qwen3_5MoeForCausalLM),
         "qwen3next": (transformers.Qwen3NextConfig, transformers.Qwen3NextForCausalLM),
         "lfm2": (transformers.Lfm2Config, transformers.Lfm2ForCausalLM),
         "lfm2moe": (transformers.Lfm2MoeConfig, transformers.Lfm2MoeForCausalLM),
         "granitehybrid": (transformers.GraniteMoeHybridConfig, transformers.GraniteMoeHybridForCausalLM),
         "nemotron_h": (transformers.NemotronHConfig, transformers.NemotronHForCausalLM),
         "nemotron_h_moe": (transformers.NemotronHConfig, transformers.NemotronHForCausalLM)}

CHUNK = 64  # tokens of the library's scans; it computes no fewer

LAYER = {"a": "full_attention", "d": "linear_attention", "m": "linear_attention", "c": "conv", "f": "mlp"}


def config_of(m, vocab):
    config_type, _ = KINDS[m.arch]
    r = m.rec
    layers = [LAYER[kind] if kind != "f" or not m.experts else "moe" for kind in r.mixers]
    shared = dict(vocab_size=vocab, hidden_size=m.d_model, num_attention_heads=m.n_heads,
                  num_key_value_heads=m.n_kv_heads, head_dim=m.head_dim, max_position_embeddings=m.context,
                  tie_word_embeddings=m.tied, bos_token_id=None, eos_token_id=None, pad_token_id=None,
                  attn_implementation="eager")
    rope = {"rope_type": "default", "rope_theta": m.rope_base}
    if m.arch not in NEMOTRON:
        shared |= dict(num_hidden_layers=m.n_layers, layer_types=layers, rope_parameters=rope)
    if m.arch in QWEN:
        rope["partial_rotary_factor"] = m.rope_dim / m.head_dim
        if m.arch != "qwen3next":
            rope |= {"mrope_section": sections(m)[:3], "mrope_interleaved": True}
        shared |= dict(rms_norm_eps=m.eps, linear_conv_kernel_dim=r.kernel, linear_key_head_dim=r.state,
                       linear_value_head_dim=r.inner // r.heads, linear_num_key_heads=r.groups,
                       linear_num_value_heads=r.heads)
        shared |= dict(num_experts=m.experts, num_experts_per_tok=m.used, moe_intermediate_size=m.d_ff,
                       shared_expert_intermediate_size=m.shared) if m.experts else dict(intermediate_size=m.d_ff)
    if m.arch in LFM:
        shared |= dict(norm_eps=m.eps, conv_L_cache=r.kernel, intermediate_size=m.dense_ff or m.d_ff)
        shared |= dict(num_experts=m.experts, num_experts_per_tok=m.used, moe_intermediate_size=m.d_ff,
                       num_dense_layers=m.lead) if m.experts else dict(block_auto_adjust_ff_dim=False)
    if m.arch == "granitehybrid":
        names = {"embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
                 "attention.scale": "attention_multiplier", "logit_scale": "logits_scaling"}
        shared |= {names[key]: value for key, value in m.factors.items()}
        shared |= dict(rms_norm_eps=m.eps, intermediate_size=m.d_ff, shared_intermediate_size=m.shared or m.d_ff,
                       num_local_experts=m.experts, num_experts_per_tok=m.used, mamba_n_heads=r.heads,
                       mamba_n_groups=r.groups, mamba_d_state=r.state, mamba_d_head=r.inner // r.heads,
                       mamba_d_conv=r.kernel, mamba_expand=r.inner // m.d_model, mamba_chunk_size=CHUNK,
                       position_embedding_type="rope" if r.rope else None)
    if m.arch in NEMOTRON:  # time_step_min: the least dt of chunks, but not of steps; none is smaller
        shared |= dict(layers_block_type=layers, layer_norm_epsilon=m.eps, intermediate_size=m.d_ff,
                       ssm_state_size=r.state, mamba_num_heads=r.heads, mamba_head_dim=r.inner // r.heads,
                       n_groups=r.groups, conv_kernel=r.kernel, chunk_size=CHUNK, time_step_min=1e-30)
    if m.arch == "nemotron_h_moe":
        shared |= dict(n_routed_experts=m.experts, num_experts_per_tok=m.used, moe_intermediate_size=m.d_ff,
                       moe_shared_expert_intermediate_size=m.shared, moe_latent_size=r.latent or None,
                       n_group=m.groups[0], topk_group=m.groups[1],
                       routed_scaling_factor=m.scale)
    return config_type(**shared)


# ---- weights ---------------------------------------------------------------------------------------------------------

ATTENTION = {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "attn_output": "o_proj",
             "attn_q_norm": "q_norm", "attn_k_norm": "k_norm"}
DELTA = {"attn_qkv": "in_proj_qkv", "attn_gate": "in_proj_z", "ssm_beta": "in_proj_b", "ssm_alpha": "in_proj_a",
         "ssm_ba": "in_proj_ba", "ssm_in": "in_proj_qkvz", "ssm_conv1d": "conv1d", "ssm_norm": "norm",
         "ssm_out": "out_proj"}
MAMBA = {"ssm_in": "in_proj", "ssm_conv1d": "conv1d", "ssm_norm": "norm", "ssm_out": "out_proj"}


def under(prefix, names):
    return {stem: prefix + name for stem, name in names.items()}


def names_of(m):
    """GGUF stem of a layer's tensor -> the library's name within the layer."""
    if m.arch in QWEN:
        dense = under("mlp.", {"ffn_gate": "gate_proj", "ffn_up": "up_proj", "ffn_down": "down_proj"})
        shared = under("mlp.shared_expert.", {"ffn_gate_shexp": "gate_proj", "ffn_up_shexp": "up_proj",
                                              "ffn_down_shexp": "down_proj"})
        return {**under("self_attn.", ATTENTION), **under("linear_attn.", DELTA), **dense, **shared,
                "ffn_gate_inp": "mlp.gate", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
                "attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"}
    if m.arch in LFM:
        attention = {**ATTENTION, "attn_output": "out_proj", "attn_q_norm": "q_layernorm",
                     "attn_k_norm": "k_layernorm"}
        return {**under("self_attn.", attention), "shortconv.in_proj": "conv.in_proj", "shortconv.conv": "conv.conv",
                "shortconv.out_proj": "conv.out_proj", "attn_norm": "operator_norm", "ffn_norm": "ffn_norm",
                **under("feed_forward.", {"ffn_gate": "w1", "ffn_up": "w3", "ffn_down": "w2", "ffn_gate_inp": "gate"})}
    if m.arch == "granitehybrid":
        return {**under("self_attn.", ATTENTION), **under("mamba.", MAMBA), "attn_norm": "input_layernorm",
                "ffn_norm": "post_attention_layernorm", "ffn_down": "shared_mlp.output_linear",
                "ffn_down_shexp": "shared_mlp.output_linear", "ffn_gate_inp": "block_sparse_moe.router"}
    return {**under("mixer.", {**ATTENTION, **MAMBA, "ffn_up": "up_proj", "ffn_down": "down_proj",
                               "ffn_gate_inp": "gate", "ffn_up_shexp": "shared_experts.up_proj",
                               "ffn_down_shexp": "shared_experts.down_proj", "ffn_latent_down": "fc1_latent_proj",
                               "ffn_latent_up": "fc2_latent_proj"}), "attn_norm": "norm"}


def heads_by_key(rows, r, size, axis=0):
    """Value heads of a file, in which head j reads key head j mod groups, in the library's order: those of key head 0
    first. `size`: elements of a head along the axis."""
    rows = np.moveaxis(rows, axis, 0)
    heads = rows.reshape(r.heads // r.groups, r.groups, size, *rows.shape[1:])
    return np.moveaxis(heads.swapaxes(0, 1).reshape(rows.shape), 0, axis)


def reordered(m, stem, value):
    """One tensor of a delta net in the library's order of value heads."""
    r = m.rec
    dv, qk = r.inner // r.heads, 2 * r.state * r.groups
    if stem in ("attn_qkv", "ssm_conv1d"):
        return np.concatenate([value[:qk], heads_by_key(value[qk:], r, dv)])
    if stem == "attn_gate":
        return heads_by_key(value, r, dv)
    if stem == "ssm_out":
        return heads_by_key(value, r, dv, axis=1)
    return heads_by_key(value, r, 1) if stem in ("ssm_beta", "ssm_alpha", "ssm_a", "ssm_dt") else value


def unsplit(m, tensors, b):
    """qwen3next: q, k, v and z of a key head next to each other, as the library has them."""
    r, n = m.rec, m.d_model
    qkv, z = tensors[b + "attn_qkv.weight"], tensors[b + "attn_gate.weight"]
    parts = np.split(qkv, np.cumsum([r.state * r.groups] * 2)) + [z]
    return np.concatenate([p.reshape(r.groups, -1, n) for p in parts], axis=1).reshape(-1, n)


def to_half_split(rows, n_heads):
    pairs = rows.reshape(n_heads, -1, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def special(m, tensors, b, i):
    """Tensors of a layer that are more, or less, than one of the file's: (library's name in the layer, value); and the
    stems that are done with."""
    r, out, done = m.rec, {}, set()

    def get(stem, end=".weight"):
        done.add(stem)
        return tensors[b + stem + end]

    kind = r.mixers[i]
    prefix = {"d": "linear_attn.", "m": "mixer." if m.arch in NEMOTRON else "mamba."}.get(kind)
    if prefix:
        a, dt = get("ssm_a", ""), get("ssm_dt", ".bias")
        if m.arch in ("qwen35", "qwen35moe"):
            a, dt = reordered(m, "ssm_a", a), reordered(m, "ssm_dt", dt)
        out[prefix + "A_log"], out[prefix + "dt_bias"] = np.log(-a).reshape(-1), dt
    if kind == "m":
        out[prefix + "D"] = get("ssm_d", "").reshape(-1)
    if kind == "d" and m.arch == "qwen3next" and not r.legacy:
        out[prefix + "in_proj_qkvz.weight"] = unsplit(m, tensors, b)
        done |= {"attn_qkv", "attn_gate"}
    if m.arch == "granitehybrid":
        end = "_shexp" if m.experts else ""
        out["shared_mlp.input_linear.weight"] = np.concatenate([get("ffn_gate" + end), get("ffn_up" + end)])
    if m.experts and b + "ffn_up_exps.weight" in tensors:
        to = {"granitehybrid": "block_sparse_moe.", "lfm2moe": "feed_forward.", "nemotron_h_moe": "mixer."}.get(
            m.arch, "mlp.")
        up, down = get("ffn_up_exps"), get("ffn_down_exps")
        if m.arch == "nemotron_h_moe":
            out[to + "experts.up_proj"] = up
            out[to + "gate.e_score_correction_bias"] = get("exp_probs_b", ".bias")
        else:
            out[to + "experts.gate_up_proj"] = np.concatenate([get("ffn_gate_exps"), up], axis=1)
        if m.arch == "lfm2moe":
            out[to + "expert_bias"] = get("exp_probs_b", ".bias")
        out[to + "experts.down_proj"] = down
    return out, done


def state_of(m, tensors):
    """The library's state: name -> float32 array."""
    outer = {"token_embd": "embeddings" if m.arch in NEMOTRON else "embed_tokens", "token_embd_norm": "embedding_norm",
             "output_norm": "norm_f" if m.arch in NEMOTRON else "norm"}
    state, names, done = {}, names_of(m), {}
    for i in range(m.n_layers):
        more, done[i] = special(m, tensors, f"blk.{i}.", i)
        state |= {f"model.layers.{i}.{name}": value for name, value in more.items()}
    for name, value in tensors.items():
        stem, _, end = name.rpartition(".")
        if not name.startswith("blk."):
            state["lm_head.weight" if stem == "output" else f"model.{outer[stem]}.weight"] = value
            continue
        _, layer, stem = stem.split(".", 2) if name.count(".") > 2 else (*name.split("."),)
        layer = int(layer)
        if layer >= m.n_layers or stem in done[layer]:
            continue
        if m.arch in ("qwen35", "qwen35moe"):
            value = reordered(m, stem, value)
        if m.arch == "granitehybrid" and stem in ("attn_q", "attn_k"):
            value = to_half_split(value, m.n_heads if stem == "attn_q" else m.n_kv_heads)
        if stem in ("ssm_conv1d", "shortconv.conv") and end == "weight":
            value = value[:, None]
        if stem == "ssm_norm":
            value = value.reshape(-1)
        if stem == "ffn_gate_inp_shexp":
            value = value[None]
        state[f"model.layers.{layer}.{names[stem]}.{end}"] = value
    if m.arch in QWEN:  # the library adds 1 to these
        for name in state:
            if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
                state[name] = state[name] - 1.0
    if m.tied:
        state["lm_head.weight"] = tensors["token_embd.weight"]
    return state


def recurrent_model(m, tensors, vocab):
    model = KINDS[m.arch][1](config_of(m, vocab)).float().eval()
    state = {name: torch.from_numpy(np.ascontiguousarray(value, dtype=np.float32))
             for name, value in state_of(m, tensors).items()}
    model.load_state_dict(state, strict=True)
    return model


# ---- mistakes --------------------------------------------------------------------------------------------------------

def recurrent_ablations(m, tensors):
    """Yields (what, tensors) with one feature got wrong."""
    r = m.rec

    def changed(ends, change):
        return {k: change(v) if k.endswith(ends) and k.startswith("blk.") else v for k, v in tensors.items()}

    def tiled(k, v):  # the library's order taken for that of a file
        stem = k.split(".")[2] if k.startswith("blk.") else ""
        return reordered(m, stem, v) if "d" == mixer(k) else v

    def mixer(k):
        layer = int(k.split(".")[1]) if k.startswith("blk.") else m.n_layers
        return r.mixers[layer] if layer < m.n_layers else ""

    if m.arch in ("qwen35", "qwen35moe") and r.groups > 1 and r.heads > r.groups:
        yield "value heads in the library's order", {k: tiled(k, v) for k, v in tensors.items()}
    yield "taps in the other order", changed(("ssm_conv1d.weight", "shortconv.conv.weight"), lambda v: v[:, ::-1])
    for what, ends, change in (
            ("no decay", ("ssm_a",), lambda v: v * 0 - 1e-30), ("no bias of dt", ("ssm_dt.bias",), np.zeros_like),
            ("no norm of heads", ("ssm_norm.weight",), np.ones_like), ("no skip", ("ssm_d",), np.zeros_like),
            ("no bias of the convolution", ("ssm_conv1d.bias",), np.zeros_like),
            ("no update's rate", ("ssm_beta.weight",), np.zeros_like),
            ("no bias of the choice", ("exp_probs_b.bias",), np.zeros_like),
            ("no latent", ("ffn_latent_up.weight",), np.zeros_like)):
        if any(k.endswith(ends) for k in tensors):
            yield what, changed(ends, change)
    if m.arch in QWEN:
        def no_gate(v):
            heads = v.reshape(m.n_heads, 2, m.head_dim, -1).copy()
            heads[:, 1] = 0
            return heads.reshape(v.shape)

        def swapped(v):
            return v.reshape(m.n_heads, 2, m.head_dim, -1)[:, ::-1].reshape(v.shape)
        yield "no gate of attention", changed(("attn_q.weight",), no_gate)
        yield "gate and query swapped", changed(("attn_q.weight",), swapped)
    if m.arch in LFM:
        def other(v):
            b, c, x = np.split(v, 3)
            return np.concatenate([c, b, x])
        yield "the two gates swapped", changed(("shortconv.in_proj.weight",), other)
    if "m" in r.mixers and r.groups > 1:
        def groups_moved(v):
            at = 2 * r.inner
            bc = v[at:at + 2 * r.groups * r.state].reshape(2, r.groups, r.state, -1)
            return np.concatenate([v[:at], np.roll(bc, 1, axis=1).reshape(-1, v.shape[1]),
                                   v[at + 2 * r.groups * r.state:]])
        yield "groups moved by one", changed(("ssm_in.weight",), groups_moved)
