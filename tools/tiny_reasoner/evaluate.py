"""Measures a model: the share of problems of each kind whose every token is right when it decodes greedily.

Greedy decoding gives the right answer exactly when, with the right answer given so far, the likeliest next token is the
right one at every place. So one pass over prompt and answer measures the same as decoding; --decode does decode. With
--window N a pass hides pages of 16 tokens as in training with page dropping: while it answers, the model sees
the prompt, the last N tokens, and the lines that the line being written needs; this is a cache policy that never errs.
"""
import argparse
import time

import torch

import generator
import page_drop
from model import greedy

# (family, size) or, for base, (family, size, distance of the milestones)
QUICK = [("rule", 20), ("base", 60), ("base", 200, 40), ("facts", 30), ("hubs", 30), ("hubs", 80), ("passkey", 1000)]
FULL = [("rule", 20), ("rule", 200), ("rule", 350), ("base", 20), ("base", 60), ("base", 200), ("base", 200, 20),
        ("base", 200, 40), ("base", 400), ("base", 800), ("facts", 30), ("facts", 200), ("hubs", 80), ("hubs", 200),
        ("passkey", 1000), ("passkey", 7000), ("passkey", 14000)]
PASS_TOKENS, PASS_MASK = 1 << 16, 1 << 28  # at once: tokens, and elements of a mask
ALIGN = 64                                 # tokens; CUDA's kernels want masks of even lengths


def test_problems(case, count):
    family, size, *every = case
    options = {"every": every[0]} if every else {}
    return [generator.test_problem(family, size, seed, **options) for seed in range(count)]


@torch.no_grad()
def right_rows(model, rows, window, pad):
    """For each row (ids, mask, spans): whether every token that the assistant says is the likeliest."""
    device = model.token_embd.weight.device
    n_tok = -(-max(len(ids) - 1 for ids, _, _ in rows) // ALIGN) * ALIGN
    n_tok = min(n_tok, model.c.context)
    tokens = torch.full((len(rows), n_tok + 1), pad)
    said = torch.zeros((len(rows), n_tok), dtype=torch.bool)
    drops = page_drop.plain(len(rows), n_tok) if window else None
    for r, (ids, mask, spans) in enumerate(rows):
        tokens[r, :len(ids)], said[r, :len(ids) - 1] = torch.tensor(ids), torch.tensor(mask[1:], dtype=torch.bool)
        if window:
            page_drop.put(drops, r, mask, spans, window, mask.index(1))
    tokens, said = tokens.to(device), said.to(device)
    seen = page_drop.added(page_drop.visible(drops.to(device)), torch.float32) if window else None
    hidden = model.hidden(tokens[:, :-1], mask=seen)
    wrong = torch.zeros_like(said)
    wrong[said] = model.logits(hidden[said]).argmax(-1) != tokens[:, 1:][said]
    return (~wrong.any(1)).tolist()


def share_in_one_pass(model, tokenizer, problems, window):
    rows = [page_drop.encode(tokenizer, p) for p in problems]
    longest = max(len(ids) for ids, _, _ in rows)
    if longest - 1 > model.c.context:
        return None
    n = max(1, min(PASS_TOKENS // longest, PASS_MASK // longest**2 if window else len(rows)))
    return sum(sum(right_rows(model, rows[i:i + n], window, tokenizer.pad)) for i in range(0, len(rows), n)) / len(rows)


def share_decoded(model, tokenizer, problems):
    prompts = [tokenizer.chat(p.turns[:1] + [("assistant", None)])[0] for p in problems]
    answers = [tokenizer.encode(p.turns[1][1]) for p in problems]
    max_new = max(map(len, answers)) + 1
    if max(map(len, prompts)) + max_new > model.c.context:
        return None
    said = greedy(model, prompts, max_new, tokenizer.end)
    return sum(s == a for s, a in zip(said, answers)) / len(problems)


def evaluate(model, tokenizer, cases, count, window=None, decode=False, say=print):
    """Returns {case: share}. Left out: cases that do not fit the model's context and, with a window, pass keys."""
    shares = {}
    say(f"pages hidden, window {window}:" if window else "dense:", flush=True)
    for case in cases:
        if window and case[0] == "passkey":
            continue
        began = time.monotonic()
        problems = test_problems(case, count)
        share = (share_decoded(model, tokenizer, problems) if decode else
                 share_in_one_pass(model, tokenizer, problems, window))
        if share is None:
            continue
        shares[case] = share
        name = f"{case[0]} {case[1]}" + (f" (M = {case[2]})" if case[2:] else "")
        say(f"{name}: {share:.2f}   ({time.monotonic() - began:.1f} s)", flush=True)
    return shares


def load_any(path):
    if path.endswith(".gguf"):
        from to_gguf import load
        return load(path)
    from train import load_checkpoint
    return load_checkpoint(path)[:2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="a GGUF file or a checkpoint")
    parser.add_argument("--count", type=int, default=8, help="problems of each kind")
    parser.add_argument("--full", action="store_true", help="also the long ones; best on a GPU")
    parser.add_argument("--case", nargs="+", metavar=("FAMILY", "SIZE"),
                        help="one case instead, such as: base 200 40, where 40 is the distance of the milestones")
    parser.add_argument("--window", type=int, help="tokens; measure also with pages hidden")
    parser.add_argument("--decode", action="store_true", help="decode token by token; only dense")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    if args.case and len(args.case) < 2:
        parser.error("--case: needs a family and a size")
    if args.decode and args.window:
        parser.error("--decode measures dense attention only: leave out --window")
    cases = [(args.case[0], *map(int, args.case[1:]))] if args.case else FULL if args.full else QUICK
    model, tokenizer = load_any(args.model)
    model = model.to(args.device)
    evaluate(model, tokenizer, cases, args.count, decode=args.decode)
    if args.window:
        evaluate(model, tokenizer, cases, args.count, args.window)


if __name__ == "__main__":
    main()
