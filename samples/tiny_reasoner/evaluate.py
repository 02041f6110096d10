"""Measures a model by greedy decoding: the share of problems of each kind whose every token is right."""
import argparse
import time

import torch

import generator
from model import greedy

QUICK = [("rule", 20), ("base", 60), ("facts", 30), ("hubs", 30), ("passkey", 1000)]
FULL = [("rule", 20), ("rule", 200), ("rule", 350), ("base", 60), ("base", 200), ("base", 400), ("base", 800),
        ("facts", 30), ("facts", 200), ("hubs", 200), ("passkey", 1000), ("passkey", 7000), ("passkey", 14000)]


def evaluate(model, tokenizer, cases, count, say=print):
    """cases: (family, size) each; cases that do not fit the model's context are left out. Returns {case: share}."""
    shares = {}
    for family, size in cases:
        problems = [generator.test_problem(family, size, seed) for seed in range(count)]
        prompts = [tokenizer.chat(p.turns[:1] + [("assistant", None)])[0] for p in problems]
        answers = [tokenizer.encode(p.turns[1][1]) for p in problems]
        max_new = max(map(len, answers)) + 1
        if max(map(len, prompts)) + max_new > model.c.context:
            continue
        began = time.monotonic()
        said = greedy(model, prompts, max_new, tokenizer.end)
        shares[family, size] = sum(s == a for s, a in zip(said, answers)) / count
        say(f"{family} {size}: {shares[family, size]:.2f}   ({time.monotonic() - began:.1f} s)")
    return shares


def load_any(path):
    if path.endswith(".gguf"):
        from to_gguf import load
        return load(path)
    from train import load_checkpoint
    return load_checkpoint(path)[:2]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a GGUF file or a checkpoint")
    parser.add_argument("--count", type=int, default=8, help="problems of each kind")
    parser.add_argument("--full", action="store_true", help="also the long ones; best on a GPU")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    model, tokenizer = load_any(args.model)
    evaluate(model.to(args.device), tokenizer, FULL if args.full else QUICK, args.count)


if __name__ == "__main__":
    main()
