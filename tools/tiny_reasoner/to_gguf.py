"""Turns a checkpoint of train.py into GGUF, F16 or Q8_0; reads such a file back; compares two.

Norms stay F32, every matrix gets the chosen type. The torch modules carry GGUF's tensor names, and the rotary pairs are
adjacent in both, so no name is mapped and no row is moved.
"""
import argparse

import gguf_file
from gguf_file import F16, F32, Q8_0

CHAT_TEMPLATE = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
                 "'<|im_end|>' + '\n'}}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
FILE_TYPES = {"f16": (F16, 1), "q8_0": (Q8_0, 7)}  # tensor type, general.file_type


def metadata(c, tokenizer, n_parameters, file_type):
    return [
        ("general.architecture", "str", "llama"),
        ("general.name", "str", "Weir Tiny Reasoner"),
        ("general.description", "str",
         f"{n_parameters / 1e6:.1f}M-parameter model trained on procedurally generated chain problems"),
        ("general.license", "str", "CC0-1.0"),
        ("llama.context_length", "u32", c.context),
        ("llama.embedding_length", "u32", c.d_model),
        ("llama.block_count", "u32", c.n_layers),
        ("llama.feed_forward_length", "u32", c.d_ff),
        ("llama.attention.head_count", "u32", c.n_heads),
        ("llama.attention.head_count_kv", "u32", c.n_kv_heads),
        ("llama.rope.dimension_count", "u32", c.head_dim),
        ("llama.rope.freq_base", "f32", c.rope_base),
        ("llama.attention.layer_norm_rms_epsilon", "f32", c.norm_eps),
        ("llama.vocab_size", "u32", c.vocab_size),
        ("general.file_type", "u32", file_type),
        ("llama.attention.key_length", "u32", c.head_dim),
        ("llama.attention.value_length", "u32", c.head_dim),
        ("tokenizer.ggml.model", "str", "gpt2"),
        ("tokenizer.ggml.pre", "str", "llama-bpe"),
        ("tokenizer.ggml.tokens", "[str]", tokenizer.tokens),
        ("tokenizer.ggml.token_type", "[i32]", tokenizer.types),
        ("tokenizer.ggml.merges", "[str]", [" ".join(m) for m in tokenizer.merges]),
        ("tokenizer.ggml.bos_token_id", "u32", tokenizer.pad),
        ("tokenizer.ggml.eos_token_id", "u32", tokenizer.end),
        ("tokenizer.ggml.padding_token_id", "u32", tokenizer.pad),
        ("tokenizer.ggml.add_bos_token", "bool", False),
        ("tokenizer.ggml.add_eos_token", "bool", False),
        ("tokenizer.chat_template", "str", CHAT_TEMPLATE),
    ]


def tensor_order(n_layers):
    """The names in the order of the file."""
    parts = ["attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
    layers = [f"blk.{i}.{part}.weight" for i in range(n_layers) for part in parts]
    return ["token_embd.weight", "output_norm.weight"] + layers


def save(path, model, tokenizer, kind):
    tensor_type, file_type = FILE_TYPES[kind]
    weights = model.state_dict()
    arrays = [(name, weights[name].float().cpu().numpy()) for name in tensor_order(model.c.n_layers)]
    n_parameters = sum(a.size for _, a in arrays)
    gguf_file.write(path, metadata(model.c, tokenizer, n_parameters, file_type),
                    [(name, tensor_type if a.ndim == 2 else F32, a) for name, a in arrays])


def read_tokenizer(reader):
    from tokenizer import Tokenizer
    tokens, types, merges = (reader.metadata["tokenizer.ggml." + k][1] for k in ("tokens", "token_type", "merges"))
    return Tokenizer(tokens, types, [m.split(" ") for m in merges])


def load(path):
    """(model, tokenizer) of a GGUF file."""
    import torch
    from model import Config, Model
    reader = gguf_file.Reader(path)

    def key(name):
        return reader.metadata["llama." + name][1]

    model = Model(Config(
        vocab_size=key("vocab_size"), n_layers=key("block_count"), d_model=key("embedding_length"),
        n_heads=key("attention.head_count"), n_kv_heads=key("attention.head_count_kv"),
        head_dim=key("attention.key_length"), d_ff=key("feed_forward_length"), context=key("context_length"),
        rope_base=key("rope.freq_base"), norm_eps=key("attention.layer_norm_rms_epsilon")))
    model.load_state_dict({name: torch.from_numpy(reader.array(name).copy()) for name in reader.tensors})
    return model, read_tokenizer(reader)


def compare(path, other_path):
    """Prints the differences in metadata, tensor names, types and shapes of two files; returns how many there are."""
    a, b = gguf_file.Reader(path), gguf_file.Reader(other_path)
    lines = []
    for what, x, y in [("key ", a.metadata, b.metadata), ("tensor ", a.tensors, b.tensors)]:
        if list(x) != list(y):
            lines.append(f"the {what}order or names differ")
        for name in sorted(x.keys() | y.keys()):
            if x.get(name) != y.get(name):
                lines.append(f"{what}{name}: {str(x.get(name))[:80]} / {str(y.get(name))[:80]}")
    print("\n".join(lines) or "no difference but the weights")
    return len(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("input", help="a checkpoint, or a GGUF file to convert again or to compare")
    parser.add_argument("output", help="the GGUF file to write, or with --compare the one to read")
    parser.add_argument("--type", choices=list(FILE_TYPES), default="q8_0")
    parser.add_argument("--compare", action="store_true")
    args = parser.parse_args()
    if args.compare:
        raise SystemExit(1 if compare(args.input, args.output) else 0)
    if args.input.endswith(".gguf"):
        model, tokenizer = load(args.input)
    else:
        from train import load_checkpoint
        model, tokenizer, _ = load_checkpoint(args.input)
    save(args.output, model, tokenizer, args.type)
    print(f"{args.output}: written")


if __name__ == "__main__":
    main()
