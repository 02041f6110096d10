"""The tiny reasoner's tokenizer: byte-level BPE in the form that GGUF calls `gpt2` with the pre-tokenizer `llama-bpe`.

build() makes the vocabulary from the problems' own text. Ids 0..255 are the bytes, then one id per merge: first the
merges of words (at most 372), then those that make every number 00..99 and 100..999 one token. The specials follow, and
unused ids up to 1664 in all. Only ASCII text is split exactly as `llama-bpe` does; the problems have no other.
"""
import random
import re
from collections import Counter
from functools import lru_cache

VOCAB_SIZE = 1664
MAX_WORD_MERGES = 372
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
TYPE_NORMAL, TYPE_CONTROL, TYPE_UNUSED = 1, 3, 5  # GGUF token types

# llama-bpe's expression without \p{..}: letters are [^\W\d_], and what is neither letter nor digit is [^\w] or _.
SPLIT = re.compile(
    r"'(?i:s|t|re|ve|m|ll|d)|(?:[^\r\n\w]|_)?[^\W\d_]+|\d{1,3}| ?(?:[^\s\w]|_)+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPLIT_SPECIALS = re.compile("(" + "|".join(map(re.escape, SPECIALS)) + ")")


def byte_names():
    """The printable character that stands for each byte: itself if it is visible, else one from U+0100 on, in order."""
    visible = set(range(33, 127)) | set(range(161, 173)) | set(range(174, 256))
    names, n_hidden = [], 0
    for byte in range(256):
        names.append(chr(byte) if byte in visible else chr(256 + n_hidden))
        n_hidden += byte not in visible
    return names


BYTE_NAMES = byte_names()


def to_names(text):
    return "".join(BYTE_NAMES[b] for b in text.encode())


def merge_pair(symbols, pair):
    """`symbols` with every occurrence of `pair` made one symbol, from the left."""
    merged, i = [], 0
    while i < len(symbols):
        if tuple(symbols[i:i + 2]) == pair:
            merged.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            merged.append(symbols[i])
            i += 1
    return merged


def word_merges(text):
    """Merges for the words in `text`, the most frequent pair first; of equal ones the first in the alphabet."""
    counts = Counter(w for w in SPLIT.findall(text) if not w.isdigit())
    words = [[list(to_names(w)), n] for w, n in counts.items()]
    merges = []
    while len(merges) < MAX_WORD_MERGES:
        pairs = Counter()
        for symbols, n in words:
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += n
        if not pairs:
            break
        best = min(pairs, key=lambda p: (-pairs[p], p))
        merges.append(best)
        for entry in words:
            entry[0] = merge_pair(entry[0], best)
    return merges


def number_merges():
    """Two digits first, in order; then three, of which the pair that comes first in that order is joined first."""
    merges = [(a, b) for a in "0123456789" for b in "0123456789"]
    for n in map(str, range(100, 1000)):
        merges.append((n[:2], n[2]) if n[:2] <= n[1:] else (n[0], n[1:]))
    return merges


class Tokenizer:
    def __init__(self, tokens, types, merges):
        self.tokens, self.types, self.merges = tokens, types, [tuple(m) for m in merges]
        self.ids = {t: i for i, t in enumerate(tokens)}
        self.ranks = {m: i for i, m in enumerate(self.merges)}
        self.bytes = {name: b for b, name in enumerate(BYTE_NAMES)}
        self.pad = self.ids["<|endoftext|>"]
        self.start, self.end = self.ids["<|im_start|>"], self.ids["<|im_end|>"]
        self.piece_ids = lru_cache(maxsize=None)(self._piece_ids)

    def _piece_ids(self, piece):
        symbols = list(to_names(piece))
        while len(symbols) > 1:
            best = min(zip(symbols, symbols[1:]), key=lambda p: self.ranks.get(p, len(self.ranks)))
            if best not in self.ranks:
                break
            symbols = merge_pair(symbols, best)
        return tuple(self.ids[s] for s in symbols)

    def encode(self, text):
        """Token ids; the specials' names in `text` become the specials."""
        ids = []
        for part in SPLIT_SPECIALS.split(text):
            if part in SPECIALS:
                ids.append(self.ids[part])
            else:
                for piece in SPLIT.findall(part):
                    ids.extend(self.piece_ids(piece))
        return ids

    def decode(self, ids):
        text = b""
        for i in ids:
            normal = self.types[i] == TYPE_NORMAL
            text += bytes(self.bytes[c] for c in self.tokens[i]) if normal else self.tokens[i].encode()
        return text.decode(errors="replace")

    def chat(self, turns):
        """(ids, mask) of a conversation in ChatML; mask is 1 for the tokens that the assistant says, its end included.

        turns: (role, text) each. An assistant's turn with the text None at the end is left open for the model to fill.
        """
        ids, mask = [], []
        for role, text in turns:
            head = [self.start] + self.encode(role + "\n")
            body = [] if text is None else self.encode(text) + [self.end]
            tail = [] if text is None else self.encode("\n")
            ids += head + body + tail
            mask += [0] * len(head) + [int(role == "assistant")] * len(body) + [0] * len(tail)
        return ids, mask


def build(seed=1, n_documents=2000):
    """The vocabulary for the problems of generator.py."""
    import generator
    rng = random.Random(seed)
    text = "\n".join(f"{role}\n{content}" for _ in range(n_documents)
                     for role, content in generator.document(rng, 512).turns)
    for special in SPECIALS:
        text = text.replace(special, "")
    merges = word_merges(text) + number_merges()
    tokens = BYTE_NAMES + [a + b for a, b in merges] + SPECIALS
    types = [TYPE_NORMAL] * (len(tokens) - len(SPECIALS)) + [TYPE_CONTROL] * len(SPECIALS)
    for i in range(len(tokens), VOCAB_SIZE):
        tokens.append(f"<|unused{i}|>")
        types.append(TYPE_UNUSED)
    return Tokenizer(tokens, types, merges)


if __name__ == "__main__":
    made = build()
    print(f"{len(made.tokens)} tokens, {len(made.merges)} merges; a chain line is",
          [made.tokens[i] for i in made.encode("x38 = x35 + x21 = 42 + 17 = 59.\n")])
