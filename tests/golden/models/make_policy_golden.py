#!/usr/bin/env python3
"""Makes the goldens of policies: <name>.<policy>.golden for the F32 model of each architecture and each of POLICIES,
and for the models of DENSE_ONLY and dense.

Run by hand, never by a build or a test:  python3 make_policy_golden.py [name ...]     (no name: all of them)
Needs what make_golden.py needs, and the .gguf files. The Hugging Face model is fed one token after another, with an
attention function of this file, which keeps the pages of every layer and KV head and attends what the policy leaves. It
is written from docs/algorithms.md, one plain loop per rule, in float64; keys and values are rounded to bf16.

Every token is the first of up to TRIES random ones (else the best) for which no decision is close: no page nearly has
another's score, no weight is nearly alpha, no expert nearly chosen, no second token nearly the most probable. So an
implementation is right or wrong. Every golden is far from the logits of other rules (OTHERS); the script prints how
far.
"""
import struct
import sys
import zlib
from copy import copy, deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from check_golden import read_golden
from make_golden import all_decisions, hf_model, smallest_gap, smallest_margin, watch_routers
from model_file import MODELS, VOCAB, read_tensors
from recurrent_file import NEMOTRON

HERE = Path(__file__).resolve().parent
PAGE = 16
N_PROMPT = 24  # a page and a half; the first token of the answer goes into a page of the prompt
N_TOK = 208    # 13 pages
EVERY = 8      # logits of the prompt's last token, and of every so-manyth token after it
TRIES = 160    # tokens for one position
SEEDS = 24     # sequences, until one shows every other rule
# What "close" is, for each kind of decision: relative to the numbers that are compared.
WANTED = {"top-1": 0.03, "router": 0.03, "selection": 0.015, "recall": 0.006, "stamp": 0.1, "leaving": 0.2}
LEAST = 0.5    # of what is wanted; at positions where no token has more
FAR = 0.03     # what every other rule must change: several times what tests allow, as a fraction of the largest logit

RECALL = ("llama_f32", "qwen35_f32", "lfm2_f32", "nemotron_h_f32")  # also under arkvale
ARKVALE = {"budget": 96, "protect_recent": 1, "recall_from": 4, "recall_pages": 1, "sink_pages": 1, "digest": "minmax",
           "agg": "max_raw", "attend": "resident"}
ONLY = ""  # one policy, for a start
DENSE_ONLY = ["llama_bias"]  # for the devices: what it has of its own is no part of attention
POLICIES = {"dense": {}, "sink": {"budget": 64}, "raas": {"budget": 112, "alpha": 0.3},
            "quest": {"budget": 64, "skip_layers": 0, "digest": "minmax", "agg": "max_raw", "sink_pages": 0},
            "arkvale": ARKVALE}
# Options got wrong, to show that a golden would notice; a budget of one page less comes first.
OTHERS = {"dense": [], "sink": [{"budget": 48}, {"positions": "abs"}, {"sinks": 0}],
          "raas": [{"budget": 96}, {"alpha": 0.99}, {"protect_share": 0.0}, {"pin_prompt": False}],
          "quest": [{"budget": 48}, {"digest": "centroid"}, {"agg": "mean_raw"}, {"open_page": "by score"}],
          "arkvale": [{"budget": 80}, {"digest": "centroid"}, {"agg": "mean_raw"}, {"recall_pages": 0},
                      {"attend": "top"}, {"recall_from": 3}]}


@dataclass
class Page:
    first: int            # position of its first token
    stamp: int
    score: float = 0.0    # the weight in the latest step
    pinned: bool = False
    resident: bool = True


# ---- policies --------------------------------------------------------------------------------------------------------

class Dense:
    """Nothing leaves, everything is attended. The answers of the other policies beside the margin of the decision."""
    selection, leaving = "selection", "leaving"  # what kinds of decisions these are

    def __init__(self, budget=0, skip_layers=0):
        assert skip_layers == 0
        self.pages = budget // PAGE or 10**9

    def leaves(self, table):
        """Row of the page that leaves a table."""
        raise AssertionError

    def leave(self, table):
        del table[self.leaves(table)[0]]

    def must_leave(self, table):
        return False

    def attended(self, table, q, keys):
        """Rows of the pages that queries q [heads of the group, d] attend; keys [tokens, d]."""
        return range(len(table)), np.inf

    def observe(self, table, mass, now):
        """mass [heads of the group, rows]: what share of its attention each head gave to each page."""
        return np.inf

    def position_for_sinks(self, table, t):
        """Where the query at t stands when it meets the sink pages, and how many these are."""
        return t, 0


class Sink(Dense):
    def __init__(self, positions="incache", sinks=4, **rest):
        super().__init__(**rest)
        self.in_cache, self.front = positions == "incache", -(-sinks // PAGE)

    def must_leave(self, table):
        return len(table) == self.pages

    def leaves(self, table):
        return self.front, np.inf

    def position_for_sinks(self, table, t):
        if not self.in_cache or len(table) <= self.front:
            return t, 0
        gap = table[self.front].first - PAGE * self.front
        return t - gap, self.front


class Raas(Dense):
    def __init__(self, alpha=0.99, protect_share=0.5625, pin_prompt=True, **rest):
        super().__init__(**rest)
        self.alpha, self.share, self.pin = alpha, protect_share, pin_prompt

    def must_leave(self, table):
        return len(table) == self.pages

    def leaves(self, table):
        free = [row for row, page in enumerate(table) if not (page.pinned and self.pin)]
        n = len(free)
        protected = max(min(int(self.share * n), n - max(1, n // 4)), 1 if n > 1 else 0)
        order = sorted(free[:n - protected], key=lambda row: (table[row].stamp, table[row].score, row))
        first, *others = (table[row] for row in order)
        alike = [page.score for page in others if page.stamp == first.stamp]
        return order[0], (alike[0] - first.score) / alike[0] if alike else np.inf

    def observe(self, table, mass, now):
        margin = np.inf
        for row, page in enumerate(table):
            page.score = mass[:, row].max()
            is_open = row == len(table) - 1
            if page.score > self.alpha or is_open:
                page.stamp = now
            if not is_open and not page.pinned:
                margin = min(margin, abs(page.score - self.alpha) / self.alpha)
        return margin


class Quest(Dense):
    def __init__(self, digest="minmax", agg="max_raw", sink_pages=0, open_page="always", **rest):
        super().__init__(**rest)
        self.digest, self.agg, self.n_sinks, self.open_page = digest, agg, sink_pages, open_page

    def estimate(self, q, keys):
        if self.digest == "centroid":
            return q @ keys.mean(0)
        return np.maximum(q * keys.max(0), q * keys.min(0)).sum(1)

    def attended(self, table, q, keys):
        if len(table) <= self.pages:
            return range(len(table)), np.inf
        estimates = np.array([self.estimate(q, keys[page.first:page.first + PAGE]) for page in table])
        scores = estimates.mean(1) if self.agg == "mean_raw" else estimates.max(1)
        kept = list(range(self.n_sinks)) + ([len(table) - 1] if self.open_page == "always" else [])
        ranked = sorted((row for row in range(len(table)) if row not in kept), key=lambda row: -scores[row])
        n = self.pages - len(kept)
        margin = (scores[ranked[n - 1]] - scores[ranked[n]]) / np.abs(scores).max()
        return sorted(ranked[:n] + kept), margin


class Arkvale(Quest):
    """Pages become cold and come back; what the step wants is chosen as Quest chooses, among all of them."""
    selection = leaving = "recall"

    def __init__(self, protect_recent=1, recall_from=4, recall_pages=1, attend="resident", **rest):
        super().__init__(**rest)
        self.protect, self.wanted, self.most, self.top = protect_recent, recall_from, recall_pages, attend == "top"

    def must_leave(self, table):
        return sum(page.resident for page in table) >= self.pages

    def leave(self, table):
        table[self.leaves(table)[0]].resident = False

    def leaves(self, table, wanted=()):
        """The page wanted longest ago, then of the least score; not the last row, nor the newest before it."""
        may = [row for row in range(self.n_sinks, len(table) - 1 - self.protect)
               if table[row].resident and row not in wanted]
        if not may:
            return None, np.inf
        order = sorted(may, key=lambda row: (table[row].stamp, table[row].score, row))
        first, *others = (table[row] for row in order)
        alike = [page.score for page in others if page.stamp == first.stamp]
        largest = max(abs(page.score) for page in table)
        return order[0], (alike[0] - first.score) / largest if alike else np.inf

    def attended(self, table, q, keys):
        scores = np.array([self.estimate(q, keys[page.first:page.first + PAGE]) for page in table])
        scores = scores.mean(1) if self.agg == "mean_raw" else scores.max(1)
        for page, score in zip(table, scores):
            page.score = score
        ranked = sorted(range(self.n_sinks, len(table) - 1), key=lambda row: -scores[row])
        n, largest = self.wanted - self.n_sinks, np.abs(scores).max()
        margin = (scores[ranked[n - 1]] - scores[ranked[n]]) / largest if len(ranked) > n else np.inf
        wanted = [*range(self.n_sinks), *ranked[:n], len(table) - 1]
        for row in wanted:
            table[row].stamp = len(keys)
        cold = [row for row in ranked[:n] if not table[row].resident]
        if len(cold) > self.most:
            margin = min(margin, (scores[cold[self.most - 1]] - scores[cold[self.most]]) / largest)
        for row in cold[:self.most]:
            if self.must_leave(table):
                out, close = self.leaves(table, wanted)
                if out is None:
                    break
                margin = min(margin, close)
                table[out].resident = False
            table[row].resident = True
        rows = [row for row, page in enumerate(table) if page.resident and (row in wanted or not self.top)]
        return rows, margin


KINDS = {"dense": Dense, "sink": Sink, "raas": Raas, "quest": Quest, "arkvale": Arkvale}


# ---- the model under a policy ----------------------------------------------------------------------------------------

class States(transformers.DynamicCache):
    """The states of recurrent layers. Keys and values are not kept here: `Run` has them."""

    def update(self, keys, values, *args, **kwargs):
        return keys, values


def attention_of(layer):
    """The attention module of one of the library's layers, or None."""
    module = getattr(layer, "self_attn", None) or getattr(layer, "mixer", None)
    return module if type(module).__name__.endswith("Attention") else None


def rotates(m):
    return not (m.rec and (m.arch in NEMOTRON or not m.rec.rope))


class Run:
    """One conversation: what every layer holds, and how close the closest decision of the latest step was."""
    current = None  # the one whose step is under way, for the attention function

    def __init__(self, m, model, policy, options):
        self.m, self.model, self.policy = m, model, KINDS[policy](**options)
        self.keys = np.zeros((m.n_layers, m.n_kv_heads, N_TOK, m.head_dim))
        self.values = np.zeros_like(self.keys)
        is_attention = [attention_of(layer) is not None for layer in model.model.layers]
        self.tables = [[[] for _ in range(m.n_kv_heads if has else 0)] for has in is_attention]
        self.states = States(config=model.config) if m.rec else None
        self.margins, self.q_sink, self.catch = {}, None, False

    def close(self, kind, margin):
        self.margins[kind] = min(margin, self.margins.get(kind, np.inf))

    def streams(self):
        """Tables of the layers that the policy rules: those with attention and without a window."""
        for layer, tables in zip(self.model.model.layers, self.tables):
            if not window_of(attention_of(layer)):
                yield from tables

    def step(self, token, t):
        """Logits after the token at position t."""
        self.t, self.margins = t, {}
        if t % PAGE == 0:
            for table in self.streams():
                if self.policy.must_leave(table):
                    self.policy.leave(table)
            for tables in self.tables:
                for table in tables:
                    table.append(Page(t, t + 1))
        for table in self.streams():
            table[-1].pinned |= t < N_PROMPT
        Run.current = self
        with torch.no_grad():
            out = self.model(input_ids=torch.tensor([[int(token)]]), position_ids=torch.tensor([[t]]),
                             past_key_values=self.states, use_cache=self.states is not None)
        if t + 1 == N_PROMPT:
            for table in self.streams():
                for page in table:
                    page.stamp = N_PROMPT
        if (t + 1) % PAGE == 0:  # the decision is made now, as the next token is not known to it
            for table in self.streams():
                if self.policy.must_leave(table):
                    self.close(self.policy.leaving, self.policy.leaves(table)[1])
        logits = out.logits[0].numpy()
        if is_stored(t):
            self.close("top-1", smallest_gap(logits))
        if self.m.experts:
            self.close("router", smallest_margin(all_decisions(self.model)))
        return logits[0]

    def try_step(self, token, t):
        """As step, and everything as it was; returns the least margin in units of what is wanted."""
        before = self.tables, self.states
        self.tables = [[[copy(page) for page in table] for table in tables] for tables in self.tables]
        self.states = deepcopy(self.states)
        self.step(token, t)
        self.tables, self.states = before
        return min(margin / WANTED[kind] for kind, margin in self.margins.items()) if self.margins else np.inf

    def attend(self, layer, q, k, v, scale, window, cap, z):
        """q [heads, d], k and v [KV heads, d] of the token at t; z [heads] or None. Returns [heads, d]."""
        t, out, group = self.t, np.empty_like(q), len(q) // len(k)
        self.keys[layer, :, t], self.values[layer, :, t] = k, v
        for kv_head, table in enumerate(self.tables[layer]):
            heads = slice(kv_head * group, (kv_head + 1) * group)
            keys, values = self.keys[layer, kv_head, :t + 1], self.values[layer, kv_head, :t + 1]
            if window:
                rows, n_sinks = range(len(table)), 0
            else:
                rows, margin = self.policy.attended(table, q[heads], keys)
                self.close(self.policy.selection, margin)
                n_sinks = self.policy.position_for_sinks(table, t)[1]
            listed = [np.arange(table[row].first, min(table[row].first + PAGE, t + 1)) for row in rows]
            queries = [(self.q_sink if row < n_sinks else q)[heads] for row in rows]
            s = np.concatenate([x @ keys[at].T * scale for x, at in zip(queries, listed)], axis=1)
            at = np.concatenate(listed)
            s = cap * np.tanh(s / cap) if cap else s
            if window:
                s = np.where(at > t - window, s, -np.inf)
            e = np.exp(s)
            weight = e / (e.sum(1, keepdims=True) + (np.exp(z[heads])[:, None] if z is not None else 0))
            out[heads] = weight @ values[at]
            if not window and t >= N_PROMPT:
                mass = np.zeros((group, len(table)))
                for row, part in zip(rows, np.split(weight, np.cumsum([len(x) for x in listed])[:-1], axis=1)):
                    mass[:, row] = part.sum(1)
                self.close("stamp", self.policy.observe(table, mass, t + 1))
        return out


def window_of(module):
    return getattr(module, "sliding_window", None) or 0


def query_for_sinks(module, args, kwargs):
    """Before an attention module: has the library make the query a second time, at its position in the cache."""
    run = Run.current
    position, n_sinks = run.policy.position_for_sinks(run.tables[module.layer_idx][0], run.t)
    if n_sinks == 0 or window_of(module) or not rotates(run.m):
        return
    hidden = args[0] if args else kwargs["hidden_states"]
    more = (module.layer_type,) if run.m.arch == "gemma3" else ()
    inner = run.model.model
    rotation = inner.rotary_emb if hasattr(inner, "rotary_emb") else inner.pos_emb
    other = rotation(hidden, torch.tensor([[position]]), *more)
    run.catch = True
    module.forward(*args, **{**kwargs, "position_embeddings": other})
    run.catch = False


def attention(module, query, key, value, attention_mask, scaling, softcap=None, sliding_window=None, s_aux=None, **_):
    """The library's interface: query [1, heads, 1, d]; returns [1, 1, heads, d]."""
    run = Run.current
    q = query[0, :, 0].double().numpy()
    if run.catch:
        run.q_sink = q
        return torch.zeros_like(query.transpose(1, 2)), None
    if not rotates(run.m):
        run.q_sink = q
    k, v = (x[0, :, 0].bfloat16().double().numpy() for x in (key, value))
    z = None if s_aux is None else s_aux.double().detach().numpy()
    out = run.attend(module.layer_idx, q, k, v, scaling, sliding_window or 0, softcap or 0.0, z)
    return torch.from_numpy(out).to(query.dtype)[None, None], None


# ---- goldens ---------------------------------------------------------------------------------------------------------

def is_stored(t):
    return t + 1 >= N_PROMPT and ((t + 1 - N_PROMPT) % EVERY == 0 or t + 1 == N_TOK)


def choose_tokens(m, model, policy, seed):
    """Returns the tokens, the stored logits, and the least margin of each kind."""
    rng = np.random.default_rng([zlib.crc32(f"{m.name} {policy}".encode()), seed])
    run, tokens, rows, least = Run(m, model, policy, POLICIES[policy]), [], [], {}
    for t in range(N_TOK):
        best = (-1.0, 0)
        for token in rng.permutation(VOCAB)[:TRIES]:
            best = max(best, (run.try_step(token, t), token), key=lambda x: x[0])
            if best[0] >= 1:
                break
        assert best[0] >= LEAST, f"{m.name} {policy}: no token at {t} without a close decision: {best[0]:.2g}"
        logits = run.step(best[1], t)
        tokens.append(best[1])
        rows += [logits] if is_stored(t) else []
        for kind, margin in run.margins.items():
            least[kind] = min(margin, least.get(kind, np.inf))
    return np.array(tokens, dtype=np.int32), np.array(rows), least


def logits_under(m, model, policy, options, tokens):
    run = Run(m, model, policy, options)
    every = [run.step(token, t) for t, token in enumerate(tokens)]
    return np.array([row for t, row in enumerate(every) if is_stored(t)])


def distance(got, want):
    """As the test measures it: of all positions, the largest difference relative to the position's largest logit."""
    return (np.abs(got - want).max(1) / np.abs(want).max(1)).max()


def write_golden(path, policy, tokens, logits):
    """The format is in README.md."""
    options = " ".join([policy, *(f"{key}={value}" for key, value in POLICIES[policy].items())]).encode()
    stored = np.array([t for t in range(N_TOK) if is_stored(t)], dtype="<u4")
    assert logits.shape == (len(stored), VOCAB) and np.isfinite(logits).all()
    head = b"WGLP" + struct.pack("<IIIIII", 1, N_TOK, N_PROMPT, len(stored), VOCAB, len(options)) + options
    path.write_bytes(head + tokens.astype("<i4").tobytes() + stored.tobytes() + logits.astype("<f4").tobytes())


def check_attention(m, model):
    """Under dense the attention of this file must be the library's own, with which make_golden.py works."""
    tokens, want = read_golden(HERE / f"{m.name}.bf16kv.golden")
    run = Run(m, model, "dense", {})
    apart = distance(np.array([run.step(token, t) for t, token in enumerate(tokens)]), want)
    assert apart < 1e-3, f"{m.name}: {apart:.2g}"  # a rounding to bf16 may fall otherwise


def changes_by_others(m, model, policy, tokens, logits):
    """How far the logits of other rules are from the golden's: (distance, what) each."""
    others = [(policy, {**POLICIES[policy], **change}, " ".join(f"{key}={value}" for key, value in change.items()))
              for change in OTHERS[policy] if rotates(m) or "positions" not in change]
    if policy != "dense":
        others.append(("dense", {}, "dense"))
    return [(distance(logits_under(m, model, kind, options, tokens), logits), what) for kind, options, what in others]


def table_row(name, policy, seed, least, changes):
    margins = ", ".join(f"{kind} {least[kind]:.2g}" for kind in WANTED if least.get(kind, np.inf) < np.inf)
    cells = ["-", "-", "-"]
    if changes:
        (less, _), *others, (dense, _) = changes
        nearest, what = min(others)
        cells = [f"{less:.2g}", f"{nearest:.2g} ({what})", f"{dense:.2g}"]
    return f"| `{name}` | `{policy}` | {seed} | {margins} | {' | '.join(cells)} |"


def make(m):
    model = hf_model(m, read_tensors(HERE / f"{m.name}.gguf"))
    if m.experts:
        watch_routers(m, model)
    model.set_attn_implementation("policy")
    for module in filter(None, map(attention_of, model.model.layers)):
        module.register_forward_pre_hook(query_for_sinks, with_kwargs=True)
    check_attention(m, model)
    for policy in POLICIES if m.name.endswith("_f32") else ["dense"]:
        if policy == "arkvale" and m.name not in RECALL or ONLY and policy != ONLY:
            continue
        for seed in range(SEEDS):
            tokens, logits, least = choose_tokens(m, model, policy, seed)
            changes = changes_by_others(m, model, policy, tokens, logits)
            if all(d >= FAR for d, _ in changes):
                break
        else:
            raise AssertionError(f"{m.name} {policy}: {min(changes)} is not visible; raise SEEDS")
        write_golden(HERE / f"{m.name}.{policy}.golden", policy, tokens, logits)
        print(table_row(m.name, policy, seed, least, changes), flush=True)


def main():
    torch.set_num_threads(1)
    transformers.AttentionInterface.register("policy", attention)
    print("| name | policy | seed | least margins | a page less | nearest other rule | dense |")
    for m in MODELS:
        if (m.name.endswith("_f32") or m.name in DENSE_ONLY) and (len(sys.argv) == 1 or m.name in sys.argv[1:]):
            make(m)


if __name__ == "__main__":
    main()
