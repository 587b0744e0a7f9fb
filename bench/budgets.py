#!/usr/bin/env python3
"""Accuracy against the budget of thinking, as CSV and SVG, from a result of bench/tiny.py.

usage: budgets.py bench/results/tiny.json      writes tiny-budgets.csv and tiny-budgets.svg to the same folder
"""
import csv
import json
import pathlib
import sys

ROWS = [("off", "turn 1", "sums, thinking off"), ("16", None, "sums, 16 tokens of thinking"), ("64", None, "sums, 64 tokens of thinking"),
        ("256", None, "sums, 256 tokens of thinking"), ("no limit", "turn 1", "sums")]
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 360, 56, 40, 130, 48
COLORS = ["#14615a", "#b5651d", "#4b5f9e", "#8a3d62", "#6b6b2a"]


def curves(result):
    """By task, (budget, accuracy, low, high) in the order of ROWS."""
    out = {"all": []}
    for budget, turn, name in ROWS:
        score = result[turn][name] if turn else result[name]
        for task, s in {"all": score, **score["tasks"]}.items():
            out.setdefault(task, []).append((budget, s["accuracy"], *s["interval"]))
    return out


def svg(tasks, title):
    x = [LEFT + i * (WIDTH - LEFT - RIGHT) / (len(ROWS) - 1) for i in range(len(ROWS))]
    height = HEIGHT - TOP - BOTTOM

    def y(percent):
        return TOP + height * (1 - percent / 100)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/><text x="{LEFT}" y="22" font-size="14">{title}</text>']
    for percent in range(0, 101, 20):
        out.append(f'<path d="M{LEFT} {y(percent):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 8}" y="{y(percent) + 4:.1f}" text-anchor="end">{percent}%</text>')
    for (budget, _, _), at in zip(ROWS, x):
        out.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{budget}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" text-anchor="middle">tokens of thinking at most</text>')
    ends = []
    for (task, points), color in zip(tasks.items(), COLORS):
        line = " ".join(f"{at:.1f},{y(p[1]):.1f}" for at, p in zip(x, points))
        out.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="{3 if task == "all" else 1.5}"/>')
        out.extend(f'<path d="M{at:.1f} {y(p[2]):.1f}V{y(p[3]):.1f}" stroke="{color}" opacity=".5"/>' for at, p in zip(x, points))
        ends.append([y(points[-1][1]) + 4, task, color])
    ends.sort()
    for i, (at, task, color) in enumerate(ends):  # labels that would lie on one another move down
        ends[i][0] = at = max(at, ends[i - 1][0] + 14) if i else at
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{at:.1f}" fill="{color}">{task}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    source = pathlib.Path(sys.argv[1])
    result = json.loads(source.read_text())
    tasks = curves(result)
    base = source.with_name(source.stem + "-budgets")
    with base.with_suffix(".csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["task", "budget", "accuracy_percent", "low_95", "high_95"])
        table.writerows([task, *point] for task, points in tasks.items() for point in points)
    base.with_suffix(".svg").write_text(svg(tasks, "tiny: sums answered right, by the budget of thinking (95% intervals)"))
    print(f"{base}.csv and .svg")


if __name__ == "__main__":
    if sys.argv[1:] in (["-h"], ["--help"]):
        sys.exit(print(__doc__))
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main()
