"""Makes the problems that the tiny reasoner learns from, with their whole answers. Pure Python, nothing is read.

A problem is a conversation: the user's turn, the assistant's turn (chain of thought and answer), and sometimes
questions about values from far back. All arithmetic is modulo 100. Run this file to print problems as JSON lines.
"""
import argparse
import json
import random
from dataclasses import dataclass, field
from typing import NamedTuple

MODULUS = 100
MAX_INDEX = 999  # every number up to this is one token
OPS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
EVERY = [5, 8, 10, 12, 15, 16, 20, 24, 25, 30, 40, 50, 60, 64, 80, 100]
MIX = {"greeting": 0.03, "rule": 0.25, "base": 0.32, "facts": 0.13, "hubs": 0.13, "passkey": 0.14}
FILLER = ["The grass is green.", "The sky is blue.", "The sun is yellow.", "Here we go.", "There and back again.",
          "The river is wide.", "The road is long.", "Birds fly south.", "The night is quiet.",
          "Snow falls on the hill."]
GREETINGS = [
    ("Hello", "Hello! Give me a chain problem and I will work it out step by step."),
    ("Who are you?", "I am a small model of Weir. I solve long chain problems and keep each value in mind."),
    ("What can you do?", "I can work out a chain of values modulo 100, and find a pass key in a long text."),
    ("Help", "Give me start values and a rule, or facts, and I will find the value. "
             "For example: Start: x0 = 7, x1 = 5. Rule: x[n] = x[n-1] + x[n-2]. Work modulo 100. Find x9."),
    ("Thanks", "You are welcome!"),
]

# Tokens that each part takes, for sizing a document to a row. Exactness is not needed: a row that is too long is cut.
LINE_TOKENS, START_TOKENS, FACT_TOKENS, FRAME_TOKENS, TURN_TOKENS = 18, 6, 9, 70, 22


class Line(NamedTuple):
    """A line of an assistant's turn in a chain problem."""
    text: str
    value: int | None = None  # the index of the value that the line works out
    needs: tuple = ()         # indices of the values without which the line cannot be written


@dataclass
class Problem:
    family: str
    turns: list                                # (role, text), the user first
    values: list = field(default_factory=list)  # of a chain: x0, x1, ...
    lines: list = field(default_factory=list)   # of a chain: those of each assistant's turn; joined, they are its text


def number(index, value):
    return f"x{index} = {value}"


def chain(family, prompt, steps, first_line, target, early):
    """Solves a chain. steps: for each x, its value, or (left index, operator, right index)."""
    values, lines = [], [Line("<think>\n")]
    for i, step in enumerate(steps):
        needs = ()
        if isinstance(step, int):
            values.append(step)
            line = number(i, step)
        else:
            left, op, right = step
            values.append(OPS[op](values[left], values[right]) % MODULUS)
            line = f"x{i} = x{left} {op} x{right} = {values[left]} {op} {values[right]} = {values[i]}"
            needs = (left, right)
        if i >= first_line:
            lines.append(Line(line + ".\n", i, needs))
    asked = [target] if early is None else [target, early]
    question = f"{prompt} Work modulo {MODULUS}. Find " + " and ".join(f"x{i}" for i in asked) + "."
    final = ", ".join(number(i, values[i]) for i in asked) + "."
    lines += [Line("</think>\n"), Line(final, None, tuple(asked))]
    answer = "".join(line.text for line in lines)
    return Problem(family, [("user", question), ("assistant", answer)], values, [lines])


def draw_early(rng, first, last, share):
    return rng.randint(first, max(first, last // 2)) if rng.random() < share else None


def started(rng, lag):
    start = [rng.randrange(MODULUS) for _ in range(lag)]
    return start, "Start: " + ", ".join(number(i, v) for i, v in enumerate(start)) + "."


def rule(rng, n_lines, lag=None, op=None, early_share=0.2):
    """A sliding window; `lag` is the larger lag, 2..40, and the number of start values."""
    lag = lag or rng.randint(2, 40)
    small, op = rng.randint(1, lag - 1), op or rng.choice("+-*")
    start, text = started(rng, lag)
    steps = start + [(n - lag, op, n - small) for n in range(lag, lag + n_lines)]
    prompt = f"{text} Rule: x[n] = x[n-{lag}] {op} x[n-{small}]."
    return chain("rule", prompt, steps, lag, len(steps) - 1, draw_early(rng, lag, len(steps) - 1, early_share))


def base(rng, n_lines, lag=None, every=None, op=None, early_share=0.2):
    """Milestones: each value is used for `every` steps, and then no more."""
    lag, every, op = lag or rng.randint(1, 4), every or rng.choice(EVERY), op or rng.choice("+-*")
    start, text = started(rng, lag)
    steps = start + [(n - lag, op, every * ((n - 1) // every)) for n in range(lag, lag + n_lines)]
    prompt = f"{text} Rule: x[n] = x[n-{lag}] {op} x[k], with k the last multiple of {every} before n."
    return chain("base", prompt, steps, lag, len(steps) - 1, draw_early(rng, lag, len(steps) - 1, early_share))


def facts(rng, n_lines, hubs=False):
    """Shuffled facts. An operand is mostly a recent value; with hubs, one is recent and the other is one of a few."""
    def mixed(n):
        return rng.randint(max(0, n - 12), n - 1) if rng.random() < 0.7 else rng.randrange(n)

    hub_values, hub_end = [i % 2 for i in range(rng.randint(2, 4))], rng.randint(6, 40)
    steps = []
    for n in range(n_lines):
        if n == hub_end:
            hub_values[rng.randrange(len(hub_values))] = n - 1
            hub_end += rng.randint(6, 40)
        if n < 2 or rng.random() < 0.05:
            steps.append(rng.randrange(MODULUS))
        elif hubs:
            steps.append((rng.randint(max(0, n - 3), n - 1), rng.choice("+-*"), rng.choice(hub_values)))
        else:
            steps.append((mixed(n), rng.choice("+-*"), mixed(n)))
    text = [f"x{i} = {s}" if isinstance(s, int) else f"x{i} = x{s[0]} {s[1]} x{s[2]}" for i, s in enumerate(steps)]
    rng.shuffle(text)
    prompt = "Facts: " + "; ".join(text) + "."
    return chain("hubs" if hubs else "facts", prompt, steps, 0, n_lines - 1, None)


def passkey(rng, n_tokens):
    """A number hidden in filler; n_tokens is the length of the whole prompt."""
    key = rng.randint(10000, 99999)
    filler = rng.sample(FILLER, 5)
    n_sentences = max(2, (n_tokens - 51) * 10 // 49)  # 4.9 tokens a sentence
    before = rng.randint(1, n_sentences - 1)

    def sentences(n):
        return " ".join((filler * (n // 5 + 1))[:n])

    prompt = ("A pass key is hidden in this long text. Find it and keep it in mind.\n" + sentences(before) +
              f"\nThe pass key is {key}. Remember it. {key} is the pass key.\n" + sentences(n_sentences - before) +
              "\nWhat is the pass key?")
    return Problem("passkey", [("user", prompt), ("assistant", f"The pass key is {key}.")])


def greeting(rng):
    return Problem("greeting", [turn for question, answer in rng.sample(GREETINGS, rng.randint(1, 3))
                                for turn in (("user", question), ("assistant", answer))])


def add_follow_ups(rng, problem, n):
    """Asks for values again, in the same conversation."""
    for _ in range(n):
        i = rng.randrange(len(problem.values))
        answer = number(i, problem.values[i]) + "."
        problem.turns += [("user", f"What was x{i}?"), ("assistant", answer)]
        problem.lines.append([Line(answer, None, (i,))])


def document(rng, row_tokens):
    """One training document that takes most of a row of `row_tokens` tokens."""
    family = rng.choices(list(MIX), MIX.values())[0]
    if family == "greeting":
        return greeting(rng)
    # Most documents fill their row; some are shorter, so that every length is seen.
    room = int(row_tokens * (rng.uniform(0.85, 1.0) if rng.random() < 0.7 else rng.uniform(0.15, 1.0)))
    if family == "passkey":
        return passkey(rng, room - 12)
    n_follow_ups = rng.randint(1, 3) if rng.random() < 0.3 else 0
    room -= FRAME_TOKENS + n_follow_ups * TURN_TOKENS
    if family in ("facts", "hubs"):
        n_lines = max(3, min(MAX_INDEX, room // (LINE_TOKENS + FACT_TOKENS)))
        problem = facts(rng, n_lines, hubs=family == "hubs")
    else:
        most = 40 if family == "rule" else 4
        lag = rng.randint(2, min(most, max(2, room // 20))) if family == "rule" else rng.randint(1, most)
        n_lines = max(2, min(MAX_INDEX - lag, (room - lag * START_TOKENS) // LINE_TOKENS))
        problem = (rule if family == "rule" else base)(rng, n_lines, lag=lag)
    add_follow_ups(rng, problem, n_follow_ups)
    return problem


def test_problem(family, size, seed, early=False, **options):
    """A problem for measuring. size: chain lines, or tokens of a pass key's prompt."""
    rng = random.Random(f"{family} {size} {seed}")
    if family == "passkey":
        return passkey(rng, size)
    if family in ("facts", "hubs"):
        return facts(rng, size, hubs=family == "hubs")
    return {"rule": rule, "base": base}[family](rng, size, early_share=float(early), **options)


def main():
    parser = argparse.ArgumentParser(description="Print problems as JSON lines: id, prompt, answer.")
    parser.add_argument("--family", choices=["rule", "base", "facts", "hubs", "passkey"], default="rule")
    parser.add_argument("--size", type=int, default=20, help="chain lines, or tokens of a pass key's prompt")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for seed in range(args.seed, args.seed + args.count):
        problem = test_problem(args.family, args.size, seed)
        (_, prompt), (_, answer) = problem.turns[:2]
        print(json.dumps({"id": f"{args.family}-{args.size}-{seed}", "prompt": prompt, "answer": answer}))


if __name__ == "__main__":
    main()
