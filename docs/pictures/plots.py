# SPDX-License-Identifier: Apache-2.0
"""Plots side by side of numbers that were measured step by step, as SVG."""

import json
import math
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "bench" / "results"

INK, FAINT, RULE, PAPER = "#1c1e24", "#6b7080", "#c9ccd4", "#ffffff"
OURS, THEIRS = "#2f5fe0", "#f0b98a"
# Of the runs of examples/reproducible.py.
TITLES = {
    "gpt": "GPT of bytes, AdamW",
    "cnn": "convolutional network, SGD",
    "mlp": "MLP, AdamW",
}
WIDTH, HIGH = 250, 200  # of a plot
LEFT, TOP, BETWEEN = 44, 62, 44


def lines(file):
    """Of JSON, but for the header."""
    _, *found = map(json.loads, (RESULTS / file).read_text().splitlines())
    return found


def text(x, y, words, anchor="start", size=11, colour=FAINT, weight="normal"):
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}" fill="{colour}" '
        f'font-weight="{weight}">{words}</text>'
    )


def rule(x0, y0, x1, y1):
    return f'<path d="M{x0:g} {y0:g} L{x1:g} {y1:g}" stroke="{RULE}"/>'


def spacing(most):
    """Of marks on an axis from 0 to `most`: 1, 2 or 5 times a power of ten; at most six marks."""
    power = 10.0 ** math.floor(math.log10(most / 6))
    return next(step * power for step in (1, 2, 5, 10) if most / (step * power) <= 6)


def marks(most):
    step = spacing(most)
    return [i * step for i in range(int(most / step) + 1)]


def pen(colour, width, dashes=""):
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return f'fill="none" stroke="{colour}" stroke-width="{width}"{dashed}'


def curve(values, left, most, drawn_by):
    """Each step's place to a tenth of a point, as movements from the last one."""
    across, down = WIDTH / max(len(values) - 1, 1), HIGH / most
    places = [
        (round(10 * (left + i * across)), round(10 * (TOP + HIGH - value * down)))
        for i, value in enumerate(values)
    ]
    x, y = places[0]
    path = [f"M{x / 10:g} {y / 10:g}l"]
    for to_x, to_y in places[1:]:
        path.append(f"{(to_x - x) / 10:g} {(to_y - y) / 10:g}")
        x, y = to_x, to_y
    return f'<path d="{" ".join(path)}" {drawn_by} stroke-linejoin="round"/>'


def frame(left, title, most, steps):
    yield text(left, TOP - 14, title, size=13, colour=INK, weight="bold")
    for value in marks(most):
        y = TOP + HIGH - HIGH * value / most
        yield rule(left, y, left + WIDTH, y)
        yield text(left - 6, y + 4, f"{value:g}", "end", 10)
    for step in marks(steps):
        yield text(left + WIDTH * step / steps, TOP + HIGH + 16, f"{step:g}", "middle", 10)


def note(left, words):
    """Below a plot."""
    return text(left, TOP + HIGH + 36, words)


def legend(x, entries):
    """(name, pen, the width that it takes) each."""
    for name, drawn_by, width in entries:
        yield f'<path d="M{x} 18 h24" {drawn_by}/>'
        yield text(x + 30, 22, name, size=12, colour=INK)
        x += width


def left_of(place):
    """Where the plot at this place begins."""
    return LEFT + place * (WIDTH + BETWEEN)


def page(script, parts):
    width, height = LEFT + 3 * WIDTH + 2 * BETWEEN + 16, TOP + HIGH + 52
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="ui-sans-serif, system-ui, sans-serif">'
    )
    about = f"<!-- SPDX-License-Identifier: Apache-2.0; drawn by {script} -->"
    paper = f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>'
    return "\n".join([about, head, paper, *parts, "</svg>", ""])
