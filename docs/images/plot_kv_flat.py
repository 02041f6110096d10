"""Draws kv-flat.svg from the rows that `weir demo --csv docs/results/demo.csv` writes. Standard library only.

    python3 docs/images/plot_kv_flat.py docs/results/demo.csv docs/images/kv-flat.svg
"""
import csv
import sys

WIDTH, HEIGHT = 860, 300
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 40, 46
COLOURS = ["#b4552d", "#1f6f8b"]


def main(source, target):
    runs = {}
    with open(source, newline="") as file:
        for row in csv.DictReader(file):
            runs.setdefault(row["run"], []).append((int(row["tokens"]), int(row["kv_bytes"]) / 2**20))
    most_tokens = max(x for rows in runs.values() for x, _ in rows)
    most_mib = max(y for rows in runs.values() for _, y in rows) * 1.05

    def at(x, y):
        return (LEFT + (WIDTH - LEFT - RIGHT) * x / most_tokens,
                HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / most_mib)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
           f'<text x="{LEFT}" y="24" font-size="15" fill="#222">KV memory while one problem is solved</text>']
    for mib in range(0, int(most_mib) + 1, 5):
        x, y = at(0, mib)
        out.append(f'<line x1="{x}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        out.append(f'<text x="{x - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{mib} MiB</text>')
    for tokens in range(0, most_tokens + 1, 1000):
        x, y = at(tokens, 0)
        out.append(f'<text x="{x:.1f}" y="{y + 18:.1f}" text-anchor="middle" fill="#555">{tokens}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle" fill="#555">'
               'decoded tokens</text>')
    for colour, (name, rows) in zip(COLOURS, runs.items()):
        points = " ".join("%.1f,%.1f" % at(x, y) for x, y in rows)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        x, y = at(*rows[-1])
        out.append(f'<text x="{x + 10:.1f}" y="{y + 4:.1f}" fill="{colour}" font-weight="bold">'
                   f'{name}: {rows[-1][1]:.1f} MiB</text>')
    out.append("</svg>\n")
    with open(target, "w") as file:
        file.write("\n".join(out))


main(*sys.argv[1:])
