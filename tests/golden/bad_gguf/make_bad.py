#!/usr/bin/env python3
"""Makes the files of this folder that Weir must refuse, and the lists of what it must say.

By hand:  python3 make_bad.py     Only the standard library is needed; the same files come out every time.

  *.gguf, expected.txt         break the container format; GgufFile::open refuses them
  model/*.gguf, expected.txt   are sound containers that weir_model_open refuses: hyper-parameters, tensors or tokenizer
                               are wrong. Each differs in one thing from model/good_bpe.gguf or model/good_spm.gguf,
                               which must open; so nothing else can be the reason.

It also writes tests/fuzz/corpus/gguf, a few sound files that fuzz_gguf starts from.

A line of expected.txt is: file, status, a text that the message must contain (to the end of the line; - for none).
"""
import struct
from pathlib import Path

HERE = Path(__file__).resolve().parent
U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)  # value types
FORMS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}
T_F32, T_F16, T_Q4_0, T_Q8_0, T_Q8_1, T_Q4_K = 0, 1, 2, 8, 9, 12            # tensor types
BLOCKS = {T_F32: (1, 4), T_F16: (1, 2), T_Q4_0: (32, 18), T_Q8_0: (32, 34), T_Q8_1: (32, 36)}
FORMAT, UNSUPPORTED, IO, OK = "WEIR_ERR_FORMAT", "WEIR_ERR_UNSUPPORTED", "WEIR_ERR_IO", "WEIR_OK"
MAX64 = 2**64 - 1


# ---- pieces of a file ------------------------------------------------------------------------------------------------

def u32(n):
    return struct.pack("<I", n)


def u64(n):
    return struct.pack("<Q", n & MAX64)


def text(data, length=None):
    """A string; `length` is what its length field says when that is not the truth."""
    data = data.encode() if isinstance(data, str) else data
    return u64(len(data) if length is None else length) + data


def value(kind, x):
    """Type and value. For an array, x is (element type, list)."""
    if kind == ARR:
        element, items = x
        body = b"".join(text(i) if element == STR else struct.pack("<" + FORMS[element], i) for i in items)
        return u32(ARR) + u32(element) + u64(len(items)) + body
    return u32(kind) + (text(x) if kind == STR else struct.pack("<" + FORMS[kind], x))


def kv(key, kind, x):
    return text(key) + value(kind, x)


def header(n_tensors=0, n_kv=0, version=3):
    return b"GGUF" + u32(version) + u64(n_tensors) + u64(n_kv)


def info(name, dims, kind=T_F32, offset=0):
    """An entry of the tensor table; dims as the file stores them, fastest axis first."""
    return text(name) + u32(len(dims)) + b"".join(u64(d) for d in dims) + u32(kind) + u64(offset)


def pad(data, alignment=32):
    return data + bytes(-len(data) % alignment)


def with_tensor(entry, data=bytes(64), n=1):
    return pad(header(n) + entry) + data


def with_kv(*entries):
    return header(0, len(entries)) + b"".join(entries)


# ---- containers ------------------------------------------------------------------------------------------------------

def headers():
    yield "empty", IO, "the file is empty", b""
    yield "bad_magic", FORMAT, "not a GGUF file", b"GGUG" + header()[4:]
    yield "bad_magic_old_format", FORMAT, "67 67 6a 74", b"ggjt" + header()[4:]
    for version in 0, 1, 4, 0xFFFFFFFF:
        yield f"bad_version_{version:x}", UNSUPPORTED, f"GGUF version {version};", header(version=version)
    big = b"GGUF" + struct.pack(">IQQ", 3, 0, 0)
    yield "big_endian", UNSUPPORTED, "big-endian", big
    for name, n, part in ("magic", 3, "the magic bytes"), ("version", 7, "the version"), \
            ("n_tensors", 15, "the number of tensors"), ("n_kv", 23, "the number of metadata keys"):
        yield f"cut_{name}", FORMAT, f"ends inside {part}", header()[:n]
    one = kv("a", U8, 1)
    yield "n_kv_one_too_many", FORMAT, "announces 2 metadata keys", header(0, 2) + one
    yield "n_kv_huge", FORMAT, f"announces {MAX64} metadata keys", header(0, MAX64) + one
    n = 2**64 // 14 + 1  # times the smallest entry is just above 2^64
    yield "n_kv_times_size_wraps", FORMAT, f"announces {n} metadata keys", header(0, n) + one
    yield "n_tensors_one_too_many", FORMAT, "announces 2 tensors", header(2) + info("a", [1]) + bytes(32)
    yield "n_tensors_huge", FORMAT, f"announces {2**63} tensors", header(2**63) + info("a", [1])
    n = 2**64 // 33 + 1
    yield "n_tensors_times_size_wraps", FORMAT, f"announces {n} tensors", header(n) + info("a", [1])


def values():
    """Metadata that is cut, too long, or of no type."""
    def cut(name, part, data):
        yield f"cut_{name}", FORMAT, part, header(0, 1) + data

    long_key = "a" * 40
    yield from cut("key_length", "announces 1 metadata keys", text("ab")[:7])
    yield from cut("key", "ends inside the key", text(long_key)[:-1])
    yield from cut("value_type", "ends inside its value type", text(long_key) + u32(U8)[:3])
    yield from cut("scalar", "ends inside its value", text(long_key) + value(F64, 1.0)[:-1])
    yield from cut("string_length", "ends inside its value", text(long_key) + u32(STR) + u64(1)[:7])
    yield from cut("string", "ends inside its value", text(long_key) + value(STR, "word")[:-1])
    array = value(ARR, (U16, [1, 2, 3]))
    yield from cut("array_type", "ends inside its element type", text(long_key) + array[:7])
    yield from cut("array_count", "ends inside its number of elements", text(long_key) + array[:15])
    yield from cut("array_element", "ends inside its elements", text(long_key) + array[:-1])
    strings = value(ARR, (STR, ["one", "two"]))
    yield from cut("array_string", "string 1 of 2", text(long_key) + strings[:-1])

    def one(name, part, data, status=FORMAT):  # 32 more bytes follow, so that the counts of the header can be true
        yield name, status, part, with_kv(data) + bytes(32)

    def array_of(element, count, body=b"", key="a.list"):
        return text(key) + u32(ARR) + u32(element) + u64(count) + body

    yield from one("key_length_huge", "ends inside the key", text("key", MAX64) + value(U8, 1))
    yield from one("key_length_wraps", "ends inside the key", text("key", MAX64 - 31) + value(U8, 1))
    yield from one("string_length_huge", "long.string", text("long.string") + u32(STR) + text("x", 2**63))
    yield from one("string_length_wraps", "long.string", text("long.string") + u32(STR) + text("x", MAX64 - 50))
    yield from one("array_count_huge", "a.list", array_of(U8, MAX64))
    yield from one("array_count_wraps", "a.list", array_of(U32, 2**62 + 1, bytes(4)))
    yield from one("array_strings_huge", "strings does not fit", array_of(STR, MAX64))
    yield from one("array_strings_wrap", "strings does not fit", array_of(STR, 2**61))
    yield from one("array_string_length_huge", "string 0 of 1", array_of(STR, 1, text("x", MAX64)))
    yield from one("value_type_13", "its value type is 13", text("odd.type") + u32(13) + bytes(8))
    yield from one("value_type_huge", "odd.type", text("odd.type") + u32(0xFFFFFFFF) + bytes(8))
    yield from one("element_type_13", "its element type is 13", array_of(13, 0))
    inner = u32(U8) + u64(1) + b"\1"
    yield from one("nested_array", "arrays of arrays", array_of(ARR, 1, inner, "deep.list"), UNSUPPORTED)
    yield from one("bool_2", "a.flag", text("a.flag") + u32(BOOL) + b"\2")
    yield from one("bool_array_255", "boolean 2 is 255", array_of(BOOL, 3, b"\0\1\xff", "a.flags"))


def names():
    """Keys and tensor names."""
    entries = kv("twice.here", U8, 1), kv("other", U8, 1), kv("twice.here", STR, "x")
    yield "duplicate_key", FORMAT, "twice.here", with_kv(*entries)
    twice = info("twice.weight", [4]) + info("other", [4]) + info("twice.weight", [4], T_F32, 32)
    yield "duplicate_tensor", FORMAT, "twice.weight", with_tensor(twice, n=3)
    yield "tensor_name_too_long", FORMAT, "65 bytes; the format allows 64", with_tensor(info("n" * 65, [4]))
    bad = {"empty": (b"", "is empty"), "nul": (b"nul\0byte", "contains a NUL"), "newline": (b"two\nlines", "U+000A"),
           "escape": (b"\x1b[31mred", "U+001B"), "utf8": (b"caf\xe9", "not valid UTF-8"),
           "utf8_overlong": (b"a\xc0\xafb", "not valid UTF-8"), "utf8_surrogate": (b"\xed\xa0\x80", "not valid UTF-8"),
           "utf8_cut": (b"caf\xc3", "not valid UTF-8")}
    for what, (name, part) in bad.items():
        yield f"key_{what}", FORMAT, part, with_kv(kv(name, U64, 1))
        yield f"tensor_name_{what}", FORMAT, part, with_tensor(info(name, [4]))


def tensors():
    entry = info("cut.weight", [4, 2])
    first = info("long." + "n" * 59, [1])  # long enough to make the header's count plausible
    for name, n, part in ("name", 12, "the name"), ("n_dims", 21, "its number of dimensions"), \
            ("dims", 30, "its dimensions"), ("type", 41, "its type"), ("offset", 49, "its offset"):
        yield f"cut_tensor_{name}", FORMAT, f"ends inside {part}", header(2) + first + entry[:n]
    yield "cut_before_data", FORMAT, "cut.weight", header(1) + entry
    yield "cut_data", FORMAT, "beyond the end of the file", with_tensor(entry, bytes(31))
    for n in 0, 5, 0xFFFFFFFF:
        data = text("odd.dims") + u32(n) + u64(1) * min(n, 5) + u32(T_F32) + u64(0)
        yield f"n_dims_{n}", FORMAT, f"{n} dimensions", with_tensor(data)
    yield "dim_0", FORMAT, "dimension 0 is 0", with_tensor(info("no.rows", [4, 0]))
    for name, dims in ("overflow", [2**17, 2**17, 2**15, 2**15]), ("wraps_to_4", [2**33 + 2, 2**63 + 2]):
        yield f"dims_product_{name}", FORMAT, "exceeds 64 bits", with_tensor(info("big.weight", dims))
    for name, n in ("overflow", 2**62), ("wrap", 2**62 + 1):
        yield f"dims_bytes_{name}", FORMAT, "size in bytes exceeds 64 bits", with_tensor(info("big.weight", [n]))
    yield "dims_huge", FORMAT, "big.weight", with_tensor(info("big.weight", [2**31, 2**28]))
    for name, dims, kind, n in ("not_whole_blocks", [33, 32], T_Q8_0, 32), ("half_a_block", [128, 2], T_Q4_K, 256):
        data = with_tensor(info("odd.weight", dims, kind), bytes(2048))
        yield f"row_{name}", FORMAT, f"not whole blocks of {n}", data
    for kind in 4, 31, 99, 0xFFFFFFFF:
        data = with_tensor(info("odd.type", [32], kind))
        yield f"tensor_type_{kind}", UNSUPPORTED, f"unknown tensor type {kind}", data
    for n in 16, 33:
        part = "off.weight: offset %u is not a multiple of the alignment 32" % n
        yield f"offset_{n}", FORMAT, part, with_tensor(info("off.weight", [4], T_F32, n))
    yield "offset_past_end", FORMAT, "off.weight", with_tensor(info("off.weight", [4], T_F32, 64))
    yield "offset_wraps", FORMAT, "off.weight", with_tensor(info("off.weight", [4], T_F32, MAX64 - 31))
    yield "offset_and_size_wrap", FORMAT, "off.weight", with_tensor(info("off.weight", [2**61], T_F32, 2**63 - 2**7))
    two = info("a.weight", [2**61 - 4]) + info("b.weight", [2**61], T_F32, 2**63)
    yield "padded_sizes_overflow", FORMAT, "a.weight", with_tensor(two, n=2)
    yield "second_tensor_past_end", FORMAT, "b.weight", with_tensor(info("a", [4]) + info("b.weight", [17]), n=2)


def alignments():
    def one(kind, x):
        return pad(header(1, 1) + kv("general.alignment", kind, x) + info("a.weight", [1])) + bytes(64)

    for n in 0, 1, 3, 4, 24, 33, 2**21, 2**31, 2**32 - 1:
        yield f"alignment_{n}", FORMAT, "general.alignment", one(U32, n)
    for name, kind, x in ("text", STR, "32"), ("negative", I32, -32), ("array", ARR, (U32, [32])), \
            ("wide", U64, 2**32 + 32):
        yield f"alignment_{name}", FORMAT, "general.alignment", one(kind, x)
    yield "alignment_beyond_the_file", FORMAT, "a.weight", one(U32, 2**20)


# ---- models ----------------------------------------------------------------------------------------------------------

LETTERS = "abcdefghij"
BPE = list(LETTERS) + ["ab", "abc", "<|bos|>", "<|eos|>", "<|pad|>", "\u0120"]                  # 16 tokens
SPM = ["<unk>", "<s>", "</s>"] + list(LETTERS) + ["ab", "\u2581", "\u2581a"]                    # 16 tokens
D_MODEL, D_FF, HEAD_DIM, N_EXPERTS = 32, 32, 16, 4


def base(spm=False):
    """Metadata and tensors of a tiny llama that opens: dicts, so that a bad file is made by changing one entry."""
    keys = {"general.architecture": (STR, "llama"), "general.name": (STR, "tiny")}
    for key, n in ("block_count", 1), ("context_length", 64), ("embedding_length", D_MODEL), \
            ("feed_forward_length", D_FF), ("attention.head_count", 2), ("attention.head_count_kv", 1), \
            ("rope.dimension_count", HEAD_DIM):
        keys["llama." + key] = (U32, n)
    keys["llama.attention.layer_norm_rms_epsilon"] = (F32, 1e-5)
    keys["tokenizer.ggml.model"] = (STR, "llama" if spm else "gpt2")
    keys["tokenizer.ggml.pre"] = (STR, "default" if spm else "llama-bpe")
    keys["tokenizer.ggml.tokens"] = (ARR, (STR, SPM if spm else BPE))
    if spm:
        keys["tokenizer.ggml.scores"] = (ARR, (F32, [float(-i) for i in range(len(SPM))]))
        keys["tokenizer.ggml.token_type"] = (ARR, (I32, [2, 3, 3] + [1] * (len(SPM) - 3)))
    else:
        keys["tokenizer.ggml.token_type"] = (ARR, (I32, [3 if t.startswith("<|") else 1 for t in BPE]))
        keys["tokenizer.ggml.merges"] = (ARR, (STR, ["a b", "ab c"]))
    keys["tokenizer.ggml.bos_token_id"] = (U32, 1 if spm else 12)
    keys["tokenizer.ggml.eos_token_id"] = (U32, 2 if spm else 13)
    q, kv_rows, rows = 2 * HEAD_DIM, HEAD_DIM, {}
    for name, n in ("attn_q", q), ("attn_k", kv_rows), ("attn_v", kv_rows), ("attn_output", D_MODEL), \
            ("ffn_gate", D_FF), ("ffn_up", D_FF), ("ffn_down", D_MODEL):
        rows[f"blk.0.{name}.weight"] = (T_Q4_0, [D_MODEL, n])
    for name in "attn_norm", "ffn_norm":
        rows[f"blk.0.{name}.weight"] = (T_F32, [D_MODEL])
    rows["token_embd.weight"] = (T_Q4_0, [D_MODEL, len(BPE)])
    rows["output_norm.weight"] = (T_F32, [D_MODEL])
    return keys, rows


def moe_base():
    """The same as a mixture of four experts, of the architecture that has most of what can be wrong."""
    keys, rows = base()
    keys = {k.replace("llama.", "gpt-oss."): x for k, x in keys.items()}
    keys["general.architecture"] = (STR, "gpt-oss")
    for key, n in ("expert_count", N_EXPERTS), ("expert_used_count", 2), ("expert_feed_forward_length", D_FF), \
            ("attention.sliding_window", 16):
        keys["gpt-oss." + key] = (U32, n)
    rows = {k: x for k, x in rows.items() if "ffn_" not in k}
    for name, n in ("attn_q", 2 * HEAD_DIM), ("attn_k", HEAD_DIM), ("attn_v", HEAD_DIM), ("attn_output", D_MODEL), \
            ("ffn_gate_inp", N_EXPERTS):
        rows[f"blk.0.{name}.bias"] = (T_F32, [n])
    rows["blk.0.attn_sinks.weight"] = (T_F32, [2])
    rows["blk.0.post_attention_norm.weight"] = (T_F32, [D_MODEL])
    rows["blk.0.ffn_gate_inp.weight"] = (T_F32, [D_MODEL, N_EXPERTS])
    for name in "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps":
        rows[f"blk.0.{name}.weight"] = (T_Q4_0, [D_MODEL, D_FF, N_EXPERTS])  # D_MODEL is D_FF
        rows[f"blk.0.{name}.bias"] = (T_F32, [D_FF, N_EXPERTS])
    return keys, rows


def changed_moe(key=None, new=None, tensor=None, rows=None, first=None):
    keys, table = moe_base()
    for entries, name, x in (keys, key, new), (table, tensor, rows):
        if name is not None:
            entries.pop(name, None) if x is None else entries.update({name: x})
    return model_file(keys, table, first)


def grouped_moe(n_groups, n_used):
    keys, table = moe_base()
    keys["gpt-oss.expert_group_count"], keys["gpt-oss.expert_group_used_count"] = (U32, n_groups), (U32, n_used)
    return model_file(keys, table)


def bad_experts():
    a, b = "gpt-oss.", "blk.0."
    yield "experts_good", OK, "-", changed_moe()
    for what, n in ("0", 0), ("1025", 1025), ("2p31", 2**31), ("max", 2**32 - 1):
        yield f"expert_count_{what}", FORMAT, a + "expert_count", changed_moe(a + "expert_count", (U32, n))
    yield "expert_count_missing", FORMAT, a + "expert_count", changed_moe(a + "expert_count")
    yield "expert_count_of_more", FORMAT, b + "ffn_gate_inp.weight", changed_moe(a + "expert_count", (U32, 5))
    for what, n in ("0", 0), ("of_more", 5), ("max", 2**32 - 1):
        yield f"expert_used_{what}", FORMAT, a + "expert_used_count", changed_moe(a + "expert_used_count", (U32, n))
    yield "expert_used_missing", FORMAT, a + "expert_used_count", changed_moe(a + "expert_used_count")
    for what, n in ("0", 0), ("max", 2**32 - 1):
        yield f"expert_width_{what}", FORMAT, a + "expert_feed_forward_length", \
            changed_moe(a + "expert_feed_forward_length", (U32, n))
    yield "expert_width_other", FORMAT, b + "ffn_gate_exps.weight", \
        changed_moe(a + "expert_feed_forward_length", (U32, 64))
    # The router: another score, a factor, weights that are not normalised and groups are computed with.
    for what, key, x in ("sigmoid", "expert_gating_func", (U32, 2)), ("factor", "expert_weights_scale", (F32, 2.5)), \
            ("plain_weights", "expert_weights_norm", (BOOL, 0)), ("no_groups", "expert_group_count", (U32, 0)), \
            ("one_group", "expert_group_count", (U32, 1)), ("no_lead", "leading_dense_block_count", (U32, 0)):
        yield f"router_{what}_good", OK, "-", changed_moe(a + key, x)
    yield "router_groups_good", OK, "-", grouped_moe(2, 1)
    yield "router_bias_good", OK, "-", changed_moe(tensor=b + "exp_probs_b.bias", rows=(T_F32, [N_EXPERTS]))
    for what, n in ("4", 4), ("2p31", 2**31), ("max", 2**32 - 1):
        yield f"expert_gating_{what}", UNSUPPORTED, a + "expert_gating_func", \
            changed_moe(a + "expert_gating_func", (U32, n))
    for what, x in ("nan", float("nan")), ("inf", float("inf")), ("negative", -1.0), ("tiny", 1e-7):
        yield f"expert_scale_{what}", FORMAT, a + "expert_weights_scale", \
            changed_moe(a + "expert_weights_scale", (F32, x))
    yield "expert_norm_number", FORMAT, a + "expert_weights_norm", changed_moe(a + "expert_weights_norm", (U32, 1))
    for what, n in ("do_not_divide", 3), ("of_more", 8), ("2p31", 2**31), ("max", 2**32 - 1):
        yield f"expert_groups_{what}", FORMAT, a + "expert_group_count", grouped_moe(n, 1)
    for what, n in ("0", 0), ("of_more", 3), ("2p31", 2**31):
        yield f"expert_groups_used_{what}", FORMAT, a + "expert_group_used_count", grouped_moe(2, n)
    yield "expert_groups_used_missing", FORMAT, a + "expert_group_used_count", \
        changed_moe(a + "expert_group_count", (U32, 2))
    yield "expert_groups_used_too_few", FORMAT, a + "expert_group_used_count", grouped_moe(4, 1)
    for what, n in ("of_more", 2), ("2p31", 2**31), ("max", 2**32 - 1):
        yield f"leading_dense_{what}", FORMAT, a + "leading_dense_block_count", \
            changed_moe(a + "leading_dense_block_count", (U32, n))
    yield "leading_dense_all", FORMAT, b + "ffn_gate.weight", changed_moe(a + "leading_dense_block_count", (U32, 1))
    for what, bits in ("nan", b"\x00\x00\xc0\x7f"), ("inf", b"\x00\x00\x80\x7f"):
        yield f"router_bias_{what}", FORMAT, b + "exp_probs_b.bias", \
            changed_moe(tensor=b + "exp_probs_b.bias", rows=(T_F32, [N_EXPERTS]), first={b + "exp_probs_b.bias": bits})
    yield "shape_router_choice_bias", FORMAT, b + "exp_probs_b.bias", \
        changed_moe(tensor=b + "exp_probs_b.bias", rows=(T_F32, [N_EXPERTS + 1]))
    for name in "ffn_gate_inp.weight", "ffn_gate_inp.bias", "ffn_gate_exps.weight", "ffn_up_exps.weight", \
            "ffn_down_exps.weight", "ffn_gate_exps.bias", "ffn_up_exps.bias", "ffn_down_exps.bias", \
            "attn_sinks.weight", "attn_output.bias", "post_attention_norm.weight":
        yield f"experts_without_{name.replace('.', '_')}", FORMAT, b + name, changed_moe(tensor=b + name)
    for what, name, x in ("router_short", "ffn_gate_inp.weight", (T_F32, [D_MODEL, 3])), \
            ("router_1d", "ffn_gate_inp.weight", (T_F32, [D_MODEL * N_EXPERTS])), \
            ("router_bias_long", "ffn_gate_inp.bias", (T_F32, [5])), \
            ("sinks_long", "attn_sinks.weight", (T_F32, [3])), \
            ("stack_2d", "ffn_up_exps.weight", (T_Q4_0, [D_MODEL, D_FF * N_EXPERTS])), \
            ("stack_of_fewer", "ffn_down_exps.weight", (T_Q4_0, [D_FF, D_MODEL, 3])), \
            ("stack_bias_1d", "ffn_up_exps.bias", (T_F32, [D_FF * N_EXPERTS])):
        yield f"shape_{what}", FORMAT, b + name, changed_moe(tensor=b + name, rows=x)
    for what, name, x in ("router", "ffn_gate_inp.weight", (T_F16, [D_MODEL, N_EXPERTS])), \
            ("stack", "ffn_up_exps.weight", (T_Q8_1, [D_MODEL, D_FF, N_EXPERTS])):
        yield f"type_of_{what}", UNSUPPORTED, b + name, changed_moe(tensor=b + name, rows=x)
    yield "experts_of_llama", UNSUPPORTED, "llama.expert_count", changed("llama.expert_count", (U32, 8))


def model_file(keys, rows, first=None):
    """Weights are zeros, but for the bytes that the tensors of `first` begin with."""
    head, data = header(len(rows), len(keys)) + b"".join(kv(k, *x) for k, x in keys.items()), b""
    for name, (kind, dims) in rows.items():
        data = pad(data)
        head += info(name, dims, kind, len(data))
        weights, size = BLOCKS[kind]
        n = 1
        for d in dims:
            n *= d
        begin = (first or {}).get(name, b"")
        data += begin + bytes(n // weights * size - len(begin))
    return pad(head) + data


def changed(key=None, new=None, tensor=None, rows=None, spm=False):
    """The base file with one key or tensor replaced, added, or (new value None) taken away."""
    keys, table = base(spm)
    for entries, name, x in (keys, key, new), (table, tensor, rows):
        if name is not None:
            entries.pop(name, None) if x is None else entries.update({name: x})
    return model_file(keys, table)


def changed_as(arch, key=None, new=None, tensor=None, rows=None):
    """changed() of a file of another architecture: `llama`'s tensors but for what that one has otherwise."""
    keys, table = base()
    keys = {k.replace("llama.", arch + "."): x for k, x in keys.items()}
    keys["general.architecture"] = (STR, arch)
    b, q, kv_rows = "blk.0.", 2 * HEAD_DIM, HEAD_DIM
    if arch in ("gemma2", "gemma3"):
        keys[arch + ".attention.sliding_window"] = (U32, 16)
    if arch in ("gemma2", "gemma3", "olmo2", "glm4"):
        for name in "post_attention_norm", "post_ffw_norm":
            table[f"{b}{name}.weight"] = (T_F32, [D_MODEL])
    if arch in ("gemma3", "olmo2"):
        for name, n in ("q", q if arch == "olmo2" else HEAD_DIM), ("k", kv_rows):
            table[f"{b}attn_{name}_norm.weight"] = (T_F32, [n])
    if arch == "olmo2":
        del table[b + "attn_norm.weight"], table[b + "ffn_norm.weight"]
    if arch in ("phi3", "glm4"):
        del table[b + "ffn_gate.weight"]
        table[b + "ffn_up.weight"] = (T_Q4_0, [D_MODEL, 2 * D_FF])
    if arch == "phi3":
        for name in "attn_q", "attn_k", "attn_v":
            del table[f"{b}{name}.weight"]
        table[b + "attn_qkv.weight"] = (T_Q4_0, [D_MODEL, q + 2 * kv_rows])
    for entries, name, x in (keys, key, new), (table, tensor, rows):
        if name is not None:
            entries.pop(name, None) if x is None else entries.update({name: x})
    return model_file(keys, table)


def bad_architectures():
    nan, b = float("nan"), "blk.0."
    for arch in "gemma2", "gemma3", "phi3", "smollm3", "granite", "olmo2", "glm4":
        yield f"{arch}_good", OK, "-", changed_as(arch)
    for arch in "gemma2", "gemma3":
        key = arch + ".attention.sliding_window"
        for what, x in ("missing", None), ("0", (U32, 0)), ("max", (U32, 2**32 - 1)), ("text", (STR, "16")):
            yield f"{arch}_window_{what}", FORMAT, key, changed_as(arch, key, x)
        for name in "post_attention_norm", "post_ffw_norm":
            yield f"{arch}_without_{name}", FORMAT, f"{b}{name}.weight", changed_as(arch, tensor=f"{b}{name}.weight")
    key = "gemma3.attention.sliding_window_pattern"
    yield "gemma3_pattern_0", FORMAT, key, changed_as("gemma3", key, (U32, 0))
    key = "gemma3.rope.freq_base_swa"
    yield "gemma3_local_base_nan", FORMAT, key, changed_as("gemma3", key, (F32, nan))
    for name in "attn_logit_softcapping", "final_logit_softcapping":
        for what, x in ("nan", nan), ("negative", -1.0), ("inf", float("inf")):
            yield f"gemma2_{name}_{what}", FORMAT, "gemma2." + name, changed_as("gemma2", "gemma2." + name, (F32, x))
    for name in "embedding_scale", "residual_scale", "attention.scale", "logit_scale":
        for what, x in ("nan", nan), ("negative", -1.0), ("inf", float("inf")), ("tiny", 1e-30):
            yield f"granite_{name.replace('.', '_')}_{what}", FORMAT, "granite." + name, \
                changed_as("granite", "granite." + name, (F32, x))
    for arch, name, x in ("phi3", "attn_qkv", (T_Q4_0, [D_MODEL, 2 * HEAD_DIM])), \
            ("phi3", "ffn_up", (T_Q4_0, [D_MODEL, D_FF])), ("glm4", "ffn_up", (T_Q4_0, [D_MODEL, D_FF])), \
            ("olmo2", "attn_q_norm", (T_F32, [HEAD_DIM])), ("olmo2", "attn_k_norm", (T_F32, [2 * HEAD_DIM])), \
            ("gemma3", "attn_q_norm", (T_F32, [2 * HEAD_DIM])):
        yield f"{arch}_{name}_shape", FORMAT, f"{b}{name}.weight", changed_as(arch, tensor=f"{b}{name}.weight", rows=x)
        yield f"{arch}_without_{name}", FORMAT, f"{b}{name}.weight", changed_as(arch, tensor=f"{b}{name}.weight")
    for name in "attn_norm", "ffn_norm":  # OLMo 2 has no norm before attention and feed-forward
        yield f"olmo2_{name}", UNSUPPORTED, f"{b}{name}.weight", \
            changed_as("olmo2", tensor=f"{b}{name}.weight", rows=(T_F32, [D_MODEL]))
    one = (T_F32, [HEAD_DIM // 2])
    for kind in "long", "short":
        name = f"rope_factors_{kind}.weight"
        yield f"phi3_{kind}_zero", FORMAT, name, changed_as("phi3", tensor=name, rows=one)
        yield f"phi3_{kind}_shape", FORMAT, name, changed_as("phi3", tensor=name, rows=(T_F32, [HEAD_DIM]))


def bad_shapes():
    a, t = "llama.", "llama.attention."
    yield "arch_missing", FORMAT, "general.architecture", changed("general.architecture")
    yield "arch_unknown", UNSUPPORTED, "mamba9", changed("general.architecture", (STR, "mamba9"))
    yield "arch_empty", UNSUPPORTED, "general.architecture", changed("general.architecture", (STR, ""))
    yield "arch_with_nul", UNSUPPORTED, "general.architecture", changed("general.architecture", (STR, "llama\0x"))
    yield "arch_is_a_number", FORMAT, "general.architecture", changed("general.architecture", (U32, 1))
    for key in a + "block_count", a + "context_length", a + "embedding_length", a + "feed_forward_length", \
            t + "head_count", t + "layer_norm_rms_epsilon":
        yield f"missing_{key.split('.')[-1]}", FORMAT, key, changed(key)
    for name, x in ("0", (U32, 0)), ("2p31", (U32, 2**31)), ("2p32", (U64, 2**32)), ("negative", (I32, -1)), \
            ("text", (STR, "1")), ("array", (ARR, (U32, [1]))), ("1000_without_tensors", (U32, 1000)):
        yield f"block_count_{name}", FORMAT, a + "block_count", changed(a + "block_count", x)
    for key in "context_length", "embedding_length", "feed_forward_length", "attention.head_count", \
            "attention.head_count_kv":
        yield f"{key.split('.')[-1]}_0", FORMAT, a + key, changed(a + key, (U32, 0))
        yield f"{key.split('.')[-1]}_max", FORMAT, a + key, changed(a + key, (U32, 2**32 - 1))
    yield "head_count_kv_does_not_divide", FORMAT, t + "head_count_kv", changed(t + "head_count_kv", (U32, 3))
    yield "head_count_odd", FORMAT, "llama.attention.", changed(t + "head_count", (U32, 3))
    for n in 0, 15, 17, 2**31:
        yield f"key_length_{n}", FORMAT, t + "key_length", changed(t + "key_length", (U32, n))
    yield "value_length_differs", UNSUPPORTED, t + "value_length", changed(t + "value_length", (U32, 32))
    yield "sliding_window", UNSUPPORTED, t + "sliding_window", changed(t + "sliding_window", (U32, 1))
    for key in a + "attn_logit_softcapping", a + "final_logit_softcapping", t + "scale", t + "clamp_kqv", \
            t + "max_alibi_bias", t + "temperature_scale", a + "embedding_scale", a + "residual_scale", \
            a + "logit_scale":
        yield f"unread_{key.split('.', 1)[1].replace('.', '_')}", UNSUPPORTED, key, changed(key, (F32, 0.5))
    eps = t + "layer_norm_rms_epsilon"
    for name, x in ("nan", (F32, float("nan"))), ("inf", (F32, float("inf"))), ("negative", (F32, -1e-5)), \
            ("f64_huge", (F64, 1e300)), ("integer", (U32, 0)):
        yield f"epsilon_{name}", FORMAT, eps, changed(eps, x)


def bad_rope():
    a = "llama.rope."
    for n in 0, 15, 18, 2**32 - 2:
        yield f"rope_dimension_{n}", FORMAT, a + "dimension_count", changed(a + "dimension_count", (U32, n))
    for name, x in ("nan", float("nan")), ("0", 0.0), ("negative", -1e4), ("inf", float("inf")):
        yield f"rope_base_{name}", FORMAT, a + "freq_base", changed(a + "freq_base", (F32, x))
    yield "rope_scaling_unknown", UNSUPPORTED, "spiral", changed(a + "scaling.type", (STR, "spiral"))
    yield "rope_scaling_factor_nan", FORMAT, a + "scaling.factor", changed(a + "scaling.factor", (F32, float("nan")))
    freqs = "rope_freqs.weight"
    yield "rope_freqs_shape", FORMAT, freqs, changed(tensor=freqs, rows=(T_F32, [HEAD_DIM]))
    yield "rope_freqs_zero", FORMAT, freqs, changed(tensor=freqs, rows=(T_F32, [HEAD_DIM // 2]))


def bad_tensors():
    for name in "token_embd", "output_norm", "blk.0.attn_norm", "blk.0.attn_k", "blk.0.ffn_down":
        yield f"tensor_missing_{name}", FORMAT, name + ".weight", changed(tensor=name + ".weight")
    for what, name, x in ("k_rows", "blk.0.attn_k", (T_Q4_0, [32, 32])), \
            ("q_cols", "blk.0.attn_q", (T_Q4_0, [64, 32])), \
            ("down_3d", "blk.0.ffn_down", (T_Q4_0, [32, 32, 1])), ("v_1d", "blk.0.attn_v", (T_Q4_0, [512])), \
            ("norm_long", "blk.0.attn_norm", (T_F32, [64])), ("embd_rows", "token_embd", (T_Q4_0, [32, 15])), \
            ("norm_2d", "output_norm", (T_F32, [32, 1])), ("output_rows", "output", (T_Q4_0, [32, 17])):
        yield f"shape_{what}", FORMAT, name + ".weight", changed(tensor=name + ".weight", rows=x)
    for what, name, x in ("matrix", "blk.0.attn_q.weight", (T_Q8_1, [32, 32])), \
            ("norm", "output_norm.weight", (T_F16, [32])):
        yield f"type_of_{what}", UNSUPPORTED, name, changed(tensor=name, rows=x)
    for name in "blk.0.attn_sinks.weight", "blk.1.attn_norm.weight", "surprise.weight":
        yield f"tensor_extra_{name.split('.')[-2]}", UNSUPPORTED, name, changed(tensor=name, rows=(T_F32, [32]))
    for what, layer in ("zeros", "00"), ("plus", "+0"), ("space", " 0"), ("wraps", str(2**32)), ("empty", ""):
        name = f"blk.{layer}.attn_norm.weight"  # a number that is written otherwise names no layer
        yield f"tensor_layer_{what}", UNSUPPORTED, name, changed(tensor=name, rows=(T_F32, [32]))
    yield "tensor_layer_alone", UNSUPPORTED, "blk.0: architecture", changed(tensor="blk.0", rows=(T_F32, [32]))


def bad_tokenizer():
    t = "tokenizer.ggml."

    def one(name, status, part, key, x=None, spm=False):
        yield f"tokenizer_{name}", status, part, changed(t + key, x, spm=spm)

    yield from one("model_missing", FORMAT, t + "model", "model")
    yield from one("model_unknown", UNSUPPORTED, "morse", "model", (STR, "morse"))
    yield from one("model_is_a_number", FORMAT, t + "model", "model", (U32, 2))
    yield from one("pre_unknown", UNSUPPORTED, "klingon-bpe", "pre", (STR, "klingon-bpe"))
    yield from one("pre_is_a_number", FORMAT, t + "pre", "pre", (U32, 2))
    for kind, spm in ("bpe", False), ("spm", True):
        n = len(SPM if spm else BPE)
        yield from one(f"tokens_missing_{kind}", FORMAT, t + "tokens", "tokens", None, spm)
        yield from one(f"tokens_empty_{kind}", FORMAT, t + "tokens", "tokens", (ARR, (STR, [])), spm)
        yield from one(f"tokens_are_numbers_{kind}", FORMAT, t + "tokens", "tokens", (ARR, (U32, list(range(n)))), spm)
        yield from one(f"tokens_are_a_string_{kind}", FORMAT, t + "tokens", "tokens", (STR, "abc"), spm)
        long = (SPM if spm else BPE)[:-1] + ["a" * 2000]
        yield from one(f"token_too_long_{kind}", FORMAT, t + "tokens", "tokens", (ARR, (STR, long)), spm)
        for what, x in ("short", (I32, [1] * (n - 1))), ("long", (I32, [1] * (n + 1))), ("is_f32", (F32, [1.0] * n)):
            yield from one(f"token_type_{what}_{kind}", FORMAT, t + "token_type", "token_type", (ARR, x), spm)
        for name in "bos", "eos":
            # The first is how writers say none; the next two are none, with a warning.
            for what, status, x in ("out_of_range", OK, (U32, n)), ("2p32", OK, (U64, 2**32)), \
                    ("2p31", OK, (U32, 2**31)), ("text", FORMAT, (STR, "1")):
                key = name + "_token_id"
                yield from one(f"{name}_{what}_{kind}", status, "-" if status == OK else t + key, key, x, spm)
        yield from one(f"add_bos_is_a_number_{kind}", FORMAT, t + "add_bos_token", "add_bos_token", (U32, 1), spm)
    yield from one("pad_out_of_range", OK, "-", "padding_token_id", (U32, 16))
    yield from one("scores_missing", FORMAT, t + "scores", "scores", None, True)
    yield from one("scores_short", FORMAT, t + "scores", "scores", (ARR, (F32, [0.0] * 15)), True)
    yield from one("scores_long", FORMAT, t + "scores", "scores", (ARR, (F32, [0.0] * 17)), True)
    yield from one("scores_are_integers", FORMAT, t + "scores", "scores", (ARR, (I32, [0] * 16)), True)
    yield from one("scores_nan", FORMAT, t + "scores", "scores", (ARR, (F32, [0.0] * 15 + [float("nan")])), True)
    yield from one("merges_missing", FORMAT, t + "merges", "merges")
    yield from one("merges_without_space", FORMAT, t + "merges", "merges", (ARR, (STR, ["a b", "abc"])))
    yield from one("merges_empty_part", FORMAT, t + "merges", "merges", (ARR, (STR, ["a b", " c"])))
    yield from one("merges_empty_string", FORMAT, t + "merges", "merges", (ARR, (STR, [""])))
    yield from one("merges_are_numbers", FORMAT, t + "merges", "merges", (ARR, (U32, [1, 2])))
    yield "chat_template_is_a_number", FORMAT, "tokenizer.chat_template", changed("tokenizer.chat_template", (U32, 1))


def good():
    yield "good_bpe", OK, "-", changed()
    yield "good_spm", OK, "-", changed(spm=True)


def every_type(version, alignment):
    """A container with each kind of value and some tensors, as small as can be: what a fuzzer likes to start from."""
    scalars = {U8: 200, I8: -7, U16: 60000, I16: -300, U32: 1, I32: -7, F32: 0.5, BOOL: 1, U64: 2**40, I64: -1,
               F64: 0.5}
    entries = [kv("general.alignment", U32, alignment)]
    entries += [kv(f"s{kind}", kind, x) for kind, x in scalars.items()]
    entries += [kv(f"a{kind}", ARR, (kind, [x] * 3)) for kind, x in scalars.items()]
    entries += [kv("text", STR, "w\u00f6rds"), kv("list", ARR, (STR, ["one", "", "three"])), kv("none", ARR, (I32, []))]
    table = info("t.a", [4], T_F32) + info("t.b", [32, 2], T_Q8_0, alignment) + info("t.c", [1, 1, 1, 2], T_F16)
    data = pad(bytes(16), alignment) + bytes(2 * 34)
    return pad(header(3, len(entries), version) + b"".join(entries) + table, alignment) + data


def write_seeds(folder):
    folder.mkdir(parents=True, exist_ok=True)
    seeds = {"bpe": changed(), "spm": changed(spm=True), "v2": every_type(2, 32), "v3": every_type(3, 8),
             "wide": every_type(3, 256), "nothing": header(), "one_tensor": with_tensor(info("a", [4])),
             "one_key": with_kv(kv("a", U8, 1))}
    for name, data in seeds.items():
        (folder / f"{name}.gguf").write_bytes(data)


# ---- output ----------------------------------------------------------------------------------------------------------

def write(folder, groups):
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.gguf"):
        old.unlink()
    lines = {}
    for group in groups:
        for name, status, part, data in group():
            assert name not in lines, name
            lines[name] = f"{name}.gguf {status} {part}\n"
            (folder / f"{name}.gguf").write_bytes(data)
    (folder / "expected.txt").write_text("".join(lines[name] for name in sorted(lines)), encoding="ascii")
    print(f"{folder.name}: {len(lines)} files")


def main():
    write(HERE, [headers, values, names, tensors, alignments])
    write(HERE / "model", [good, bad_shapes, bad_experts, bad_architectures, bad_rope, bad_tensors, bad_tokenizer])
    write_seeds(HERE.parents[1] / "fuzz" / "corpus" / "gguf")


if __name__ == "__main__":
    main()
