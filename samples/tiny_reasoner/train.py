"""Trains the tiny reasoner from scratch on problems that are made while it trains.

A step is step_tokens tokens in rows of one length, drawn anew for each step; a row is one document, padded. The loss is
over the assistant's tokens only. Step N's problems depend on the seed and N alone, so a resumed run sees what it would
have seen.
"""
import argparse
import dataclasses
import math
import os
import random
import time

import torch

import evaluate
import generator
import tokenizer as tokenizer_module
from model import Config, Model
from tokenizer import Tokenizer

ROWS = {512: 0.24, 1024: 0.25, 2048: 0.25, 4096: 0.16, 8192: 0.07, 16384: 0.03}


class Steps(torch.utils.data.Dataset):
    """Item N is step N's batch: ids [rows, length + 1] and the loss weight of each id."""

    def __init__(self, tokenizer, seed, first, last, step_tokens, context):
        self.tokenizer, self.seed, self.first, self.last, self.step_tokens = tokenizer, seed, first, last, step_tokens
        self.rows = {n: share for n, share in ROWS.items() if n <= min(context, step_tokens)} or {context: 1.0}

    def __len__(self):
        return self.last - self.first

    def __getitem__(self, i):
        rng = random.Random(f"{self.seed} {self.first + i}")
        length = rng.choices(list(self.rows), self.rows.values())[0]
        n_rows = max(1, self.step_tokens // length)
        ids = torch.full((n_rows, length + 1), self.tokenizer.pad)
        weights = torch.zeros((n_rows, length + 1))
        for r in range(n_rows):
            row, mask = self.tokenizer.chat(generator.document(rng, length).turns)
            n = min(len(row), length + 1)
            ids[r, :n], weights[r, :n] = torch.tensor(row[:n]), torch.tensor(mask[:n], dtype=torch.float)
        return ids, weights


def orthogonal(g):
    """The nearest orthogonal matrix to each of g [n, rows, cols], roughly, by five Newton-Schulz steps."""
    x = g.bfloat16() if g.is_cuda else g
    tall = g.shape[-2] > g.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return (x.mT if tall else x).to(g.dtype)


class Muon:
    """Momentum whose every step is made orthogonal (Jordan et al., "Muon: an optimizer for hidden layers", 2024).

    Scaled so that a step changes a weight about as much as AdamW's does (Liu et al., arXiv:2502.16982, sec. 2.2), hence
    one learning rate serves both. Matrices of one shape are handled together.
    """

    def __init__(self, params, momentum=0.95):
        shapes = {}
        for p in params:
            shapes.setdefault(p.shape, []).append(p)
        self.groups = list(shapes.values())
        self.averages = [torch.zeros((len(g), *g[0].shape), device=g[0].device) for g in self.groups]
        self.momentum = momentum

    @torch.no_grad()
    def step(self, lr):
        for params, average in zip(self.groups, self.averages):
            grad = torch.stack([p.grad for p in params])
            average.lerp_(grad, 1 - self.momentum)
            change = orthogonal(grad.lerp(average, self.momentum))
            scale = 0.2 * math.sqrt(max(params[0].shape))
            for p, c in zip(params, change):
                p.sub_(c, alpha=lr * scale)


def learning_rate(step, args):
    """Warm-up, a fifth of the steps at full rate, then a cosine to 4 %."""
    warm = min(1.0, (step + 1) / max(1, args.warmup))
    done = max(0.0, (step / args.steps - 0.2) / 0.8)
    return args.lr * warm * (0.04 + 0.96 * 0.5 * (1 + math.cos(math.pi * done)))


def save_checkpoint(path, model, tokenizer, muon, adam, step):
    torch.save({"config": dataclasses.asdict(model.c),
                "tokenizer": [tokenizer.tokens, tokenizer.types, tokenizer.merges],
                "model": model.state_dict(), "muon": muon.averages, "adam": adam.state_dict(), "step": step},
               path + ".part")
    os.replace(path + ".part", path)  # a run that is cut off leaves the last checkpoint whole


def load_checkpoint(path, device="cpu"):
    """(model, tokenizer, everything that save_checkpoint wrote)."""
    state = torch.load(path, map_location=device, weights_only=True)
    model = Model(Config(**state["config"])).to(device)
    model.load_state_dict(state["model"])
    return model, Tokenizer(*state["tokenizer"]), state


def make_model(args):
    if args.resume:
        return load_checkpoint(args.out, args.device)
    torch.manual_seed(args.seed)
    if args.vocabulary_of:
        import gguf_file
        import to_gguf
        tokenizer = to_gguf.read_tokenizer(gguf_file.Reader(args.vocabulary_of))
    else:
        tokenizer = tokenizer_module.build()
    config = Config(**{f.name: getattr(args, f.name) for f in dataclasses.fields(Config)})
    return Model(config).to(args.device), tokenizer, None


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default="tiny_reasoner.pt", help="the checkpoint to write")
    parser.add_argument("--resume", action="store_true", help="go on from --out")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; on cuda in bf16 and compiled")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--steps", type=int, default=8114)
    parser.add_argument("--step-tokens", type=int, default=131072)
    parser.add_argument("--pass-tokens", type=int, default=131072, help="tokens at once; less saves memory, not time")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=200, help="steps")
    parser.add_argument("--workers", type=int, default=8, help="processes that make problems")
    parser.add_argument("--save-every", type=int, default=500, help="steps")
    parser.add_argument("--eval-count", type=int, default=16, help="problems of each kind at the end; 0: none")
    parser.add_argument("--full-eval", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--vocabulary-of", help="a GGUF file whose vocabulary to use instead of a new one")
    for f in dataclasses.fields(Config):
        parser.add_argument("--" + f.name.replace("_", "-"), type=type(f.default), default=f.default)
    return parser.parse_args()


def train_step(model, run, batch, args, device_type):
    """Leaves the gradients of one step in the model; returns the mean loss."""
    ids, weights = (t.to(args.device, non_blocking=True) for t in batch)
    total = weights[:, 1:].sum()
    n_rows = max(1, args.pass_tokens // (ids.shape[1] - 1))
    loss = torch.zeros((), device=args.device)
    for part, part_weights in zip(ids.split(n_rows), weights.split(n_rows)):
        with torch.autocast(device_type, torch.bfloat16, enabled=device_type == "cuda"):
            part_loss = run(part[:, :-1], part[:, 1:], part_weights[:, 1:]) / total
        part_loss.backward()
        loss += part_loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return loss


def main():
    args = parse_args()
    device_type = torch.device(args.device).type
    torch.set_float32_matmul_precision("high")
    model, tokenizer, state = make_model(args)
    matrices = [p for p in model.blk.parameters() if p.dim() == 2]
    others = [p for name, p in model.named_parameters() if p.dim() != 2 or not name.startswith("blk.")]
    muon, adam = Muon(matrices), torch.optim.AdamW(others, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)
    first = 0
    if state:
        muon.averages, first = state["muon"], state["step"]
        adam.load_state_dict(state["adam"])
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, steps {first}..{args.steps}")
    # One compiled program per row length.
    run = torch.compile(model, dynamic=False) if device_type == "cuda" and not args.no_compile else model
    data = Steps(tokenizer, args.seed, first, args.steps, args.step_tokens, model.c.context)
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=args.workers,
                                         pin_memory=device_type == "cuda")
    began, n_tokens = time.monotonic(), 0
    for step, batch in enumerate(loader, first):
        lr = learning_rate(step, args)
        loss = train_step(model, run, batch, args, device_type)
        adam.param_groups[0]["lr"] = lr
        adam.step()
        muon.step(lr)
        model.zero_grad(set_to_none=True)
        n_tokens += batch[0].numel()
        if step % 20 == 0 or step + 1 == args.steps:
            rate = n_tokens / (time.monotonic() - began)
            print(f"step {step} loss {loss.item():.4f} row {batch[0].shape[1] - 1} lr {lr:.5f} {rate:,.0f} tokens/s",
                  flush=True)
        if (step + 1) % args.save_every == 0 or step + 1 == args.steps:
            save_checkpoint(args.out, model, tokenizer, muon, adam, step + 1)
    if args.eval_count:
        evaluate.evaluate(model, tokenizer, evaluate.FULL if args.full_eval else evaluate.QUICK, args.eval_count)


if __name__ == "__main__":
    main()
