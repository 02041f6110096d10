"""Page dropping: masks that hide from a token the 16-token pages which the line being written does not need.

A row of a batch travels as a few small tensors (Drops); `visible` makes the mask of them, on the GPU in training. From
the row's position `start` on, a token sees a page, as far as causality allows, if the page
- holds a token that the assistant did not say: the prompt, the frame of a turn, a follow-up question;
- touches the last `window` tokens;
- touches a line whose value the line being written needs, where a token belongs to the line of the token that comes
  next, the one that it has to predict;
- is one of a few pages that were drawn for the row (kept as well, like those of the prompt).
Before `start`, and in problems that have no lines, a token sees all that came before it.
"""
from typing import NamedTuple

import numpy as np
import torch

PAGE = 16            # tokens, as in Weir's key/value cache
WINDOW = (96, 640)   # tokens
MOST_OTHERS = 8      # drawn pages of a row; half of the rows have some
MOST_NEEDS = 2       # lines that one line needs
NO_PAGES = (1, 0)    # first and last page of an empty range


class Drops(NamedTuple):
    """n rows of T tokens, n_pages = T / PAGE rounded up."""
    kept: torch.Tensor    # bool [n, n_pages]: seen by every token
    needed: torch.Tensor  # i16 [n, T, MOST_NEEDS, 2]: first and last page of the lines that each token needs
    window: torch.Tensor  # i32 [n], tokens
    start: torch.Tensor   # i32 [n]: the first token from which pages are hidden

    def to(self, device):
        return Drops(*(t.to(device, non_blocking=True) for t in self))

    def split(self, n_rows):
        return [Drops(*parts) for parts in zip(*(t.split(n_rows) for t in self))]


def encode(tokenizer, problem):
    """(ids, mask, spans): ids and mask as Tokenizer.chat gives them; spans has (line, first token, end token) of each
    line of a chain, where the end of a turn belongs to its last line."""
    ids, mask = tokenizer.chat(problem.turns)
    spans, at = [], 0
    for lines in problem.lines:
        at = mask.index(1, at)
        for line in lines:
            first, at = at, at + len(tokenizer.encode(line.text))
            spans.append((line, first, at))
        at += 1
        spans[-1] = (line, first, at)
    return ids, mask, spans


def pages(first, end):
    """First and last page of the tokens [first, end)."""
    return first // PAGE, (end - 1) // PAGE


def needed_pages(spans, n_tok):
    """[n_tok, MOST_NEEDS, 2], see Drops. A value without a line stands in the prompt, which is kept anyway."""
    needed = np.full((n_tok, MOST_NEEDS, 2), NO_PAGES, np.int16)
    at = {line.value: pages(first, end) for line, first, end in spans if line.value is not None}
    for line, first, end in spans:
        for slot, value in enumerate(line.needs):
            if value in at:
                needed[first - 1:end - 1, slot] = at[value]
    return torch.from_numpy(needed)


def plain(n_rows, n_tok):
    """Drops of rows in which nothing is hidden."""
    needed = torch.tensor(NO_PAGES, dtype=torch.int16).repeat(n_rows, n_tok, MOST_NEEDS, 1)
    return Drops(torch.zeros((n_rows, -(-n_tok // PAGE)), dtype=torch.bool), needed,
                 torch.ones(n_rows, dtype=torch.int32), torch.full((n_rows,), n_tok, dtype=torch.int32))


def put(drops, row, mask, spans, window, start, others=()):
    """Fills in a row of `drops` for a document with lines. others: more pages to keep."""
    n_tok = drops.needed.shape[1]
    frame = {i // PAGE for i, said in enumerate(mask[:n_tok]) if not said}
    drops.kept[row, sorted(frame | set(others))] = True
    drops.needed[row] = needed_pages(spans, n_tok)
    drops.window[row], drops.start[row] = window, start


def put_drawn(rng, drops, row, mask, spans):
    """put with a window, a start and other pages by chance."""
    n_tok = min(len(mask), drops.needed.shape[1])
    first = mask.index(1)
    if first >= n_tok:  # the prompt alone fills the row
        return
    n_others = rng.randint(1, MOST_OTHERS) if rng.random() < 0.5 else 0
    put(drops, row, mask, spans, rng.randint(*WINDOW), rng.randrange(first, n_tok),
        [rng.randrange(-(-n_tok // PAGE)) for _ in range(n_others)])


def visible(drops):
    """bool [n, 1, T, T]: which keys (the last axis) each token sees; always itself."""
    n_tok, n_pages = drops.needed.shape[1], drops.kept.shape[1]
    page = torch.arange(n_pages, device=drops.kept.device)
    token = torch.arange(n_tok, device=drops.kept.device)
    first, last = drops.needed.unsqueeze(-2).unbind(-1)  # [n, T, MOST_NEEDS, 1]
    shown = ((page >= first) & (page <= last)).any(2)    # [n, T, n_pages]
    shown |= page * PAGE + PAGE - 1 > token[:, None] - drops.window[:, None, None]
    shown |= drops.kept[:, None]
    shown |= token[:, None] < drops.start[:, None, None]
    causal = torch.arange(n_pages * PAGE, device=page.device) <= token[:, None]
    mask = shown[..., None] & causal.unflatten(-1, (n_pages, PAGE))
    return mask.flatten(-2)[:, None, :, :n_tok]


def added(mask, dtype):
    """The mask as numbers to add to the scores: 0 or minus infinity. Made once, or every layer would make its own."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))
