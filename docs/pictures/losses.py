# SPDX-License-Identifier: Apache-2.0
"""Draws losses.svg, the losses of three trainings by PyTorch and by Isobit, as
bench/loss_curves.py measured them."""

import json
import math
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "bench" / "results"
MEASURED = RESULTS / "amd-epyc-family-25-model-17-2cpu" / "losses.jsonl"

INK, FAINT, RULE, PAPER = "#1c1e24", "#6b7080", "#c9ccd4", "#ffffff"
# Theirs is broad and lies below ours: where curves agree both are seen.
PEN = {"torch": ("#f0b98a", 4), "isobit": ("#2f5fe0", 1)}
NAMES = {"torch": "PyTorch", "isobit": "Isobit"}
TITLES = {
    "gpt": "GPT of bytes, AdamW",
    "cnn": "convolutional network, SGD",
    "mlp": "MLP, AdamW",
}
WIDTH, HIGH = 250, 200  # of a plot
LEFT, TOP, BETWEEN = 44, 62, 44


def measured():
    """{run: ({way: losses}, the line of their difference)}"""
    _, *lines = map(json.loads, MEASURED.read_text().splitlines())
    found = {name: ({}, {}) for name in TITLES}
    for line in lines:
        curves, apart = found[line["run"]]
        if "by" in line:
            curves[line["by"]] = line["losses"]
        else:
            apart.update(line)
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


def curve(losses, left, most, colour, width):
    """Each step's place to a tenth of a point, as movements from the last one."""
    across, down = WIDTH / max(len(losses) - 1, 1), HIGH / most
    places = [
        (round(10 * (left + i * across)), round(10 * (TOP + HIGH - loss * down)))
        for i, loss in enumerate(losses)
    ]
    x, y = places[0]
    path = [f"M{x / 10:g} {y / 10:g}l"]
    for to_x, to_y in places[1:]:
        path.append(f"{(to_x - x) / 10:g} {(to_y - y) / 10:g}")
        x, y = to_x, to_y
    return (
        f'<path d="{" ".join(path)}" fill="none" stroke="{colour}" stroke-width="{width}" '
        'stroke-linejoin="round"/>'
    )


def plot(left, name, curves, apart):
    most = max(max(losses) for losses in curves.values())
    steps = len(curves["isobit"])
    yield text(left, TOP - 14, TITLES[name], size=13, colour=INK, weight="bold")
    for loss in marks(most):
        y = TOP + HIGH - HIGH * loss / most
        yield rule(left, y, left + WIDTH, y)
        yield text(left - 6, y + 4, f"{loss:g}", "end", 10)
    for step in marks(steps):
        yield text(left + WIDTH * step / steps, TOP + HIGH + 16, f"{step:g}", "middle", 10)
    for by, pen in PEN.items():
        yield curve(curves[by], left, most, *pen)
    words = f"{apart['largest_difference']:.1e} apart at most, at step {apart['at_step']}"
    yield text(left, TOP + HIGH + 36, words)


def legend(x, y):
    for by, (colour, width) in PEN.items():
        yield (f'<path d="M{x} {y - 4} h24" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        yield text(x + 30, y, NAMES[by], size=12, colour=INK)
        x += 100


def draw():
    parts = [*legend(LEFT, 22), text(LEFT + 220, 22, "loss, in nats, of each step", size=12)]
    for i, (name, (curves, apart)) in enumerate(measured().items()):
        parts += plot(LEFT + i * (WIDTH + BETWEEN), name, curves, apart)
    width, height = LEFT + 3 * WIDTH + 2 * BETWEEN + 16, TOP + HIGH + 52
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="ui-sans-serif, system-ui, sans-serif">'
    )
    about = "<!-- SPDX-License-Identifier: Apache-2.0; drawn by losses.py -->"
    paper = f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>'
    return "\n".join([about, head, paper, *parts, "</svg>", ""])


if __name__ == "__main__":
    (HERE / "losses.svg").write_text(draw())
