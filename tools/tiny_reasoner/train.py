"""Trains the tiny reasoner, from scratch or from a GGUF file, on problems that are made while it trains.

A step is step_tokens tokens in rows of one length, drawn anew for each step; a row is one document, padded. The loss is
over the assistant's tokens only. Steps of short rows may hide pages from the tokens, see page_drop.py. Step N's
problems depend on the seed and N alone, so a resumed run sees what it would have seen.
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
import gguf_file
import page_drop
import to_gguf
import tokenizer as tokenizer_module
from model import Config, Model
from tokenizer import Tokenizer

ROWS = {512: 0.24, 1024: 0.25, 2048: 0.25, 4096: 0.16, 8192: 0.07, 16384: 0.03}


ENDLESS = 10**9  # steps, when the clock ends the run


class Steps(torch.utils.data.Dataset):
    """Item N is step N's batch: ids [rows, length + 1], the loss weight of each id, and Drops or None."""

    def __init__(self, tokenizer, args, first, last, context):
        self.tokenizer, self.seed, self.first, self.last = tokenizer, args.seed, first, last
        self.step_tokens, self.drop_share, self.drop_rows = args.step_tokens, args.drop_share, args.drop_rows
        self.rows = {n: share for n, share in ROWS.items() if n <= min(context, self.step_tokens)} or {context: 1.0}

    def __len__(self):
        return self.last - self.first

    def __getitem__(self, i):
        rng = random.Random(f"{self.seed} {self.first + i}")
        length = rng.choices(list(self.rows), self.rows.values())[0]
        chance = random.Random(f"{self.seed} {self.first + i} drops")  # apart, so that the problems stay what they were
        ids, weights, drops = self.empty(length, length <= self.drop_rows and chance.random() < self.drop_share)
        for r in range(len(ids)):
            problem = generator.document(rng, length)
            if drops is not None and problem.lines:
                row, mask, spans = page_drop.encode(self.tokenizer, problem)
                page_drop.put_drawn(chance, drops, r, mask, spans)
            else:
                row, mask = self.tokenizer.chat(problem.turns)
            n = min(len(row), length + 1)
            ids[r, :n], weights[r, :n] = torch.tensor(row[:n]), torch.tensor(mask[:n], dtype=torch.float)
        return ids, weights, drops

    def empty(self, length, dropping):
        n_rows = max(1, self.step_tokens // length)
        return (torch.full((n_rows, length + 1), self.tokenizer.pad), torch.zeros((n_rows, length + 1)),
                page_drop.plain(n_rows, length) if dropping else None)

    def shapes(self):
        """An empty batch of each kind that can come; a program is compiled for each."""
        for length in self.rows:
            if self.drop_share < 1 or length > self.drop_rows:
                yield self.empty(length, False)
            if self.drop_share > 0 and length <= self.drop_rows:
                yield self.empty(length, True)


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


def learning_rate(step, progress, args):
    """Warm-up, full rate up to a fifth of the run, then a cosine to 4 %. progress: 0..1 of the run."""
    warm = min(1.0, (step + 1) / max(1, args.warmup))
    done = max(0.0, (progress - 0.2) / 0.8)
    return args.lr * warm * (0.04 + 0.96 * 0.5 * (1 + math.cos(math.pi * done)))


class Schedule:
    """How far the run is: by steps, or with --minutes by the time spent in steps, that of earlier runs included."""

    def __init__(self, args, started, seconds):
        """started: when the process began, by time.monotonic(). seconds: of training in the runs before this one."""
        self.steps, self.before, self.began = args.steps, seconds, time.monotonic()
        self.total = args.minutes * 60 if args.minutes else None
        if args.minutes and args.wall_minutes:  # what setting up took is known by now
            self.total = min(self.total, seconds + max(0.0, started + args.wall_minutes * 60 - self.began))

    def seconds(self):
        return self.before + time.monotonic() - self.began

    def progress(self, step):
        if self.total is None:
            return step / self.steps if self.steps else 1.0
        return min(1.0, self.seconds() / self.total) if self.total > 0 else 1.0


def save_checkpoint(path, model, tokenizer, muon, adam, step, seconds):
    torch.save({"config": dataclasses.asdict(model.c),
                "tokenizer": [tokenizer.tokens, tokenizer.types, tokenizer.merges],
                "model": model.state_dict(), "muon": muon.averages, "adam": adam.state_dict(), "step": step,
                "seconds": seconds},
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
    if args.start_from:
        model, tokenizer = to_gguf.load(args.start_from)
        return model.to(args.device), tokenizer, None
    if args.vocabulary_of:
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
    parser.add_argument("--minutes", type=float,
                        help="of training: the clock, not --steps, sets rate and end; compiling is not counted")
    parser.add_argument("--wall-minutes", type=float,
                        help="with --minutes: shorten the training so that it ends this long after the process began")
    parser.add_argument("--step-tokens", type=int, default=131072)
    parser.add_argument("--pass-tokens", type=int, default=131072, help="tokens at once; less saves memory, not time")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--warmup", type=int, default=200, help="steps")
    parser.add_argument("--workers", type=int, default=8, help="processes that make problems")
    parser.add_argument("--save-every", type=int, default=500, help="steps")
    parser.add_argument("--eval-count", type=int, default=16, help="problems of each kind at the end; 0: none")
    parser.add_argument("--full-eval", action="store_true")
    parser.add_argument("--eval-window", type=int, default=256, help="tokens: measures again with pages hidden")
    parser.add_argument("--drop-share", type=float, default=0.5, help="of the steps of short rows: with page dropping")
    parser.add_argument("--drop-rows", type=int, default=2048, help="tokens; rows up to this length are short")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gguf", help="also write this, with -f16.gguf and -q8_0.gguf added, before measuring")
    parser.add_argument("--start-from", help="a GGUF file whose weights, sizes and vocabulary to go on from")
    parser.add_argument("--vocabulary-of", help="a GGUF file whose vocabulary to use instead of a new one")
    for f in dataclasses.fields(Config):
        parser.add_argument("--" + f.name.replace("_", "-"), type=type(f.default), default=f.default)
    args = parser.parse_args()
    if args.minutes is not None and args.minutes <= 0:
        parser.error(f"--minutes {args.minutes:g}: must be more than 0")
    if args.wall_minutes and not args.minutes:
        parser.error("--wall-minutes: needs --minutes, whose schedule it shortens")
    if args.start_from and args.resume:
        parser.error("--start-from and --resume: give one of them; a checkpoint has its weights")
    if not 0 <= args.drop_share <= 1:
        parser.error(f"--drop-share {args.drop_share:g}: must be from 0 to 1")
    return args


def train_step(model, run, batch, args, device_type):
    """Leaves the gradients of one step in the model; returns the mean loss."""
    ids, weights = (t.to(args.device, non_blocking=True) for t in batch[:2])
    total = weights[:, 1:].sum()
    n_rows = max(1, args.pass_tokens // (ids.shape[1] - 1))
    parts = ids.split(n_rows)
    drops = [None] * len(parts) if batch[2] is None else batch[2].to(args.device).split(n_rows)
    loss = torch.zeros((), device=args.device)
    mask_type = torch.bfloat16 if device_type == "cuda" else torch.float32
    for part, part_weights, part_drops in zip(parts, weights.split(n_rows), drops):
        mask = None if part_drops is None else page_drop.added(page_drop.visible(part_drops), mask_type)
        with torch.autocast(device_type, torch.bfloat16, enabled=device_type == "cuda"):
            part_loss = run(part[:, :-1], part[:, 1:], part_weights[:, 1:], mask) / total
        part_loss.backward()
        loss += part_loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    return loss


def compiled(model, data, args):
    """The model as one compiled program per row length, without and with a mask; all are made here."""
    import torch._dynamo
    shapes = list(data.shapes())
    name = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
    setattr(torch._dynamo.config, name, len(shapes) + 4)  # beyond it torch would go on without compiling
    run = torch.compile(model, dynamic=False)
    for ids, weights, drops in shapes:
        began = time.monotonic()
        train_step(model, run, (ids, weights + 1, drops), args, "cuda")
        model.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        print(f"compiled for rows of {ids.shape[1] - 1}{', masked' if drops else ''}: "
              f"{time.monotonic() - began:.1f} s", flush=True)
    return run


def make_optimizers(model, state, args):
    matrices = [p for p in model.blk.parameters() if p.dim() == 2]
    others = [p for name, p in model.named_parameters() if p.dim() != 2 or not name.startswith("blk.")]
    muon, adam = Muon(matrices), torch.optim.AdamW(others, lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0)
    if state:
        muon.averages = state["muon"]
        adam.load_state_dict(state["adam"])
    return muon, adam


def train(model, tokenizer, state, args, started):
    device_type = torch.device(args.device).type
    muon, adam = make_optimizers(model, state, args)
    first = state["step"] if state else 0
    data = Steps(tokenizer, args, first, ENDLESS if args.minutes else args.steps, model.c.context)
    loader = torch.utils.data.DataLoader(data, batch_size=None, num_workers=args.workers,
                                         pin_memory=device_type == "cuda")
    batches = iter(loader)  # the workers begin now, while programs are compiled
    run = compiled(model, data, args) if device_type == "cuda" and not args.no_compile else model
    schedule = Schedule(args, started, state.get("seconds", 0.0) if state else 0.0)
    until = f"{schedule.total / 60:.2f} minutes" if args.minutes else f"step {args.steps}"
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, from step {first} until {until}", flush=True)
    step, n_tokens, began = first, 0, time.monotonic()
    while (progress := schedule.progress(step)) < 1:
        batch = next(batches)
        lr = learning_rate(step, progress, args)
        loss = train_step(model, run, batch, args, device_type)
        adam.param_groups[0]["lr"] = lr
        adam.step()
        muon.step(lr)
        model.zero_grad(set_to_none=True)
        n_tokens += batch[0].numel()
        if step % 20 == 0:
            rate = n_tokens / max(1e-9, time.monotonic() - began)
            print(f"step {step} loss {loss.item():.4f} row {batch[0].shape[1] - 1}{' masked' if batch[2] else ''} "
                  f"lr {lr:.5f} {rate:,.0f} tokens/s {100 * progress:.0f} %", flush=True)
        step += 1
        if step % args.save_every == 0:
            save_checkpoint(args.out, model, tokenizer, muon, adam, step, schedule.seconds())
    save_checkpoint(args.out, model, tokenizer, muon, adam, step, schedule.seconds())
    print(f"{step - first} steps, {n_tokens:,} tokens in {time.monotonic() - began:.0f} s", flush=True)


def main():
    started = time.monotonic()
    args = parse_args()
    torch.set_float32_matmul_precision("high")
    if torch.device(args.device).type == "cuda":
        # Leaves flash attention for what has no mask, and the memory-efficient kernel for what has one.
        torch.backends.cuda.enable_cudnn_sdp(False)
    model, tokenizer, state = make_model(args)
    train(model, tokenizer, state, args, started)
    for kind in to_gguf.FILE_TYPES if args.gguf else []:
        to_gguf.save(f"{args.gguf}-{kind}.gguf", model, tokenizer, kind)
    if args.eval_count:
        cases = evaluate.FULL if args.full_eval else evaluate.QUICK
        evaluate.evaluate(model, tokenizer, cases, args.eval_count)
        evaluate.evaluate(model, tokenizer, cases, args.eval_count, args.eval_window)


if __name__ == "__main__":
    main()
