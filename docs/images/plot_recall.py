"""Draws recall.svg: memory along a long answer with recall, and how many answers are right. Standard library
only.

    python3 docs/images/plot_recall.py docs/results/recall/long-arkvale.jsonl docs/results/recall/answers.csv \
        docs/images/recall.svg
"""
import csv
import json
import math
import sys

WIDTH, HEIGHT = 1080, 330
TOP, BOTTOM = 62, 46
LEFT, RIGHT = 64, 480  # of the first panel
BARS_LEFT, BARS_RIGHT = 780, 1050
DENSE, POOL, HOST, LOSSY = "#b4552d", "#1f6f8b", "#7a8b1f", "#8a8a8a"
LEAST_MIB, MOST_MIB = 1, 512
SEED = "11"  # settings were chosen on another one


def text(x, y, what, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{what}</text>'


def memory_panel(header, rows):
    plan = header["plan"]
    most = rows[-1]["decoded"]

    def at(tokens, mib):
        share = math.log2(max(mib, LEAST_MIB) / LEAST_MIB) / math.log2(MOST_MIB / LEAST_MIB)
        return LEFT + (RIGHT - LEFT) * tokens / most, HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    out = [text(LEFT - 50, 24, "One answer of %s tokens" % f"{most:,}", 'font-size="15" fill="#222"'),
           text(LEFT - 50, 42, "memory, MiB (logarithmic)", 'fill="#555"')]
    for mib in (1, 4, 16, 64, 256):
        x, y = at(0, mib)
        out.append(f'<line x1="{x}" y1="{y:.1f}" x2="{RIGHT}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        out.append(text(x - 8, y + 4, mib, 'text-anchor="end" fill="#555"'))
    for tokens in range(0, most + 1, 20000):
        x, y = at(tokens, LEAST_MIB)
        out.append(text(x, y + 18, f"{tokens:,}", 'text-anchor="middle" fill="#555"'))
    out.append(text((LEFT + RIGHT) / 2, HEIGHT - 8, "decoded tokens", 'text-anchor="middle" fill="#555"'))

    mib = 2**20
    dense_bytes = plan["kv"] / header["budget"]  # per token
    fixed = plan["digests"] + plan["tables"]
    lines = [("dense: KV cache", -12, DENSE, "6 4", [(t, t * dense_bytes / mib) for t in range(256, most + 1, 256)]),
             ("host: store, digests, tables", 0, HOST, "",
              [(r["decoded"], (r["spill_stored_bytes"] + fixed) / mib) for r in rows]),
             ("KV pool of 512 tokens", 0, POOL, "", [(0, 0)] + [(r["decoded"], r["kv_bytes"] / mib) for r in rows])]
    for name, shift, colour, dashes, points in lines:
        path = " ".join("%.1f,%.1f" % at(t, y) for t, y in points if y > 0)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" '
                   f'stroke-dasharray="{dashes}"/>')
        x, y = at(*points[-1])
        y += shift
        out.append(text(x + 8, y - 3, name, f'fill="{colour}" font-weight="bold"'))
        out.append(text(x + 8, y + 13, "%.3g MiB" % points[-1][1], f'fill="{colour}"'))
    return out


def answers_panel(rows):
    families = [("early", "early values"), ("followup", "follow-ups"), ("passkey", "pass keys")]
    policies = [("raas", "raas, 512 tokens: evicted pages are gone", LOSSY),
                ("arkvale", "arkvale, 512 tokens: pages come back", POOL),
                ("dense", "dense", DENSE)]
    out = [text(BARS_LEFT + 20, 24, "Answers without a wrong line", 'font-size="15" fill="#222"')]
    row_height = (HEIGHT - TOP - BOTTOM - 20) / len(families)
    y = TOP - 2
    for family, title in families:
        n = max(int(r["n"]) for r in rows if r["family"] == family)
        out.append(text(BARS_LEFT + 10, y + row_height / 2 - 2, title, 'text-anchor="end" fill="#222"'))
        for i, (policy, _, colour) in enumerate(policies):
            row = next(r for r in rows if r["family"] == family and r["policy"] == policy)
            width = (BARS_RIGHT - 40 - BARS_LEFT - 20) * int(row["strict"]) / n
            top = y + i * 17
            out.append(f'<rect x="{BARS_LEFT + 20}" y="{top:.1f}" width="{max(width, 1.5):.1f}" height="13" '
                       f'fill="{colour}"/>')
            out.append(text(BARS_LEFT + 26 + width, top + 11, f"{row['strict']} of {n}", 'fill="#555"'))
        y += row_height
    for i, (_, name, colour) in enumerate(policies):
        top = HEIGHT - BOTTOM + 4 + (i - 1) * 16
        out.append(f'<rect x="{BARS_LEFT + 20}" y="{top - 9:.1f}" width="9" height="9" fill="{colour}"/>')
        out.append(text(BARS_LEFT + 34, top, name, 'fill="#555" font-size="12"'))
    return out


def main(long_run, answers, target):
    with open(long_run) as file:
        lines = [json.loads(line) for line in file]
    with open(answers, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["seed"] == SEED and row["n"] != "12"]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           'font-size="13">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>']
    out += memory_panel(lines[0], lines[1:]) + answers_panel(rows) + ["</svg>\n"]
    with open(target, "w") as file:
        file.write("\n".join(out))


main(*sys.argv[1:])
