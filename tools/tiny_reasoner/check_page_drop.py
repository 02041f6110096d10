"""Checks the masks of page_drop.py against their rules, token by token, and prints one to look at.

It needs no model: the vocabulary is built anew (or read, with --vocabulary-of). Ends with an AssertionError if a rule
is broken.
"""
import argparse
import random

import torch

import generator
import gguf_file
import page_drop
import to_gguf
import tokenizer as tokenizer_module
from page_drop import PAGE


def touches(page, first, end):
    return page * PAGE < end and first < (page + 1) * PAGE


def must_see(token, key, mask, spans, window, start, others):
    """The rules of page_drop.py, said again in the slowest way."""
    if key > token:
        return False
    page = key // PAGE
    own = [line for line, first, end in spans if first <= token + 1 < end]
    needs = own[0].needs if own else ()
    return (token < start or page in others or touches(page, max(0, token - window + 1), token + 1) or
            any(not said for said in mask[page * PAGE:(page + 1) * PAGE]) or
            any(line.value is not None and line.value in needs and touches(page, first, end)
                for line, first, end in spans))


def check_spans(tokenizer, problem):
    """The lines' tokens are the lines, and together they are what the assistant says."""
    ids, mask, spans = page_drop.encode(tokenizer, problem)
    covered = [i for _, first, end in spans for i in range(first, end)]
    assert covered == [i for i, said in enumerate(mask) if said], f"{problem.family}: lines do not cover the answer"
    for line, first, end in spans:
        text = tokenizer.decode(ids[first:end]).removesuffix("<|im_end|>")
        assert text == line.text, f"{problem.family}: {text!r} instead of {line.text!r}"
        for value in line.needs:
            assert f"x{value} " in line.text, f"{line.text!r} does not name x{value}, which it needs"


def check_mask(rng, tokenizer, problem, n_tok):
    ids, mask, spans = page_drop.encode(tokenizer, problem)
    window, start = rng.randint(20, 200), rng.randrange(mask.index(1), len(mask))
    others = [rng.randrange(n_tok // PAGE) for _ in range(rng.randint(0, 3))]
    drops = page_drop.plain(2, n_tok)
    page_drop.put(drops, 1, mask, spans, window, start, others)
    seen = page_drop.visible(drops)
    assert seen.shape == (2, 1, n_tok, n_tok), f"mask of shape {tuple(seen.shape)}"
    assert torch.equal(seen[0, 0], torch.ones(n_tok, n_tok).tril().bool()), "a plain row is not causal"
    n = min(n_tok, len(ids) - 1)
    want = torch.tensor([[must_see(t, k, mask, spans, window, start, others) for k in range(n_tok)] for t in range(n)])
    wrong = (seen[1, 0, :n] != want).nonzero()
    assert not len(wrong), f"{problem.family}: token {wrong[0][0]}, key {wrong[0][1]}: seen {not want[tuple(wrong[0])]}"
    return int((torch.ones(n, n_tok).tril().bool() & ~want).sum())


def show(tokenizer, window=96):
    """A base problem with M = 20: for the last token of some lines, each page that there is by then."""
    problem = generator.test_problem("base", 64, 1, every=20)
    ids, mask, spans = page_drop.encode(tokenizer, problem)
    n_tok = -(-len(ids) // PAGE) * PAGE
    drops = page_drop.plain(1, n_tok)
    page_drop.put(drops, 0, mask, spans, window, mask.index(1))
    seen = page_drop.visible(drops)[0, 0]
    print(problem.turns[0][1])
    print(f"window {window}; pages of {PAGE} tokens: # seen, . hidden; then the line being written")
    for line, first, end in spans[:-1:6] + spans[-1:]:
        token = end - 2
        row = "".join("#" if seen[token, page * PAGE] else "." for page in range(token // PAGE + 1))
        at = {o.value: page_drop.pages(a, b) for o, a, b in spans if o.value is not None}
        needs = [f"x{v} on page {at[v][0]}..{at[v][1]}" if v in at else f"x{v} in the prompt" for v in line.needs]
        print(f"{row:<{n_tok // PAGE}} {line.text.strip()}  [{', '.join(needs)}]")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--vocabulary-of", help="a GGUF file whose vocabulary to use instead of a new one")
    args = parser.parse_args()
    tokenizer = (to_gguf.read_tokenizer(gguf_file.Reader(args.vocabulary_of)) if args.vocabulary_of else
                 tokenizer_module.build(n_documents=100))
    rng, n_problems, n_hidden = random.Random(3), 0, 0
    while n_problems < 40:
        problem = generator.document(rng, 448)
        if problem.lines:
            check_spans(tokenizer, problem)
            n_problems, n_hidden = n_problems + 1, n_hidden + check_mask(rng, tokenizer, problem, 512)
    assert n_hidden > 0, "no mask hid anything"
    show(tokenizer)
    print(f"{n_problems} masks are right; they hide {n_hidden:,} pairs of token and key")


if __name__ == "__main__":
    main()
