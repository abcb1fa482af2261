# SPDX-License-Identifier: Apache-2.0
"""Draws order.svg, the order of summation, with the numbers that core/order.h has."""

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
HEADER = HERE.parents[1] / "src" / "isobit" / "core" / "order.h"

INK, FAINT, RULE, PAPER = "#1c1e24", "#6b7080", "#c9ccd4", "#ffffff"
KEPT, ADDED = "#cfdcff", "#ffe0bd"  # the half that stays, and the half that is added to it
ARROW = "#2f5fe0"
CELL, HIGH = 8, 14  # of an element, in the picture of a block


def constants():
    text = HEADER.read_text()
    block, lanes, run = (
        int(re.search(rf"constexpr int {name} = (\d+);", text)[1])
        for name in ("kBlock", "kLanes", "kRun")
    )
    return block, lanes, run


def text(x, y, words, anchor="start", size=12, colour=INK, weight="normal"):
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}" fill="{colour}" '
        f'font-weight="{weight}">{words}</text>'
    )


def title(x, y, words):
    return text(x, y, words, size=14, weight="bold")


def box(x, y, width, height, fill, edge=RULE):
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}" stroke="{edge}"/>'
    )


def arrow(path, dashed=False):
    dash = ' stroke-dasharray="4 3"' if dashed else ""
    return f'<path d="{path}" fill="none" stroke="{ARROW}" marker-end="url(#tip)"{dash}/>'


def line(x0, y0, x1, y1, dashed=False):
    return arrow(f"M{x0} {y0} L{x1} {y1}", dashed)


def block_of_elements(x, y, rows, lanes):
    """The block, and the folds of its rows as arrows beside it."""
    yield title(
        x - 50, y - 34, f"1. A block: {rows * lanes} elements as {rows} rows of {lanes} lanes"
    )
    yield text(
        x - 50,
        y - 16,
        "rows are added by halves; what the last block lacks counts as +0.0",
        colour=FAINT,
    )
    yield text(x + CELL * lanes, y - 4, f"lane {lanes - 1}", "end", 10, FAINT)
    for row in range(rows):
        top = y + row * HIGH
        fill = KEPT if row < rows // 2 else ADDED
        yield box(x, top, CELL * lanes, HIGH, fill)
        yield text(x - 6, top + 11, f"row {row}", "end", 10, FAINT)
        first = row * lanes
        yield text(
            x + CELL * lanes + 6, top + 11, f"x[{first}] ... x[{first + lanes - 1}]", size=10
        )
    between = "".join(f"M{x + lane * CELL} {y}v{rows * HIGH}" for lane in range(1, lanes))
    yield f'<path d="{between}" stroke="{RULE}"/>'
    at, half = x + CELL * lanes + 112, rows // 2
    while half >= 1:
        for row in range(half):
            here = at + row * 7
            low, high = y + (row + half) * HIGH + HIGH // 2, y + row * HIGH + HIGH // 2
            yield arrow(f"M{here} {low} h7 V{high} h-5")
        words = f"r += r+{half}" if half > 1 else "0 += 1"
        yield text(at, y + rows * HIGH + 16, words, size=10)
        at, half = at + half * 7 + 50, half // 2


def folds_of_lanes(x, y, lanes):
    """One bar a fold: its right half is added to its left one."""
    yield title(x - 50, y - 12, f"2. Its {lanes} lanes, by halves, down to the block's sum")
    left, top = lanes, y
    while left > 1:
        half = left // 2
        yield box(x, top, half * CELL, 12, KEPT)
        yield box(x + half * CELL, top, half * CELL, 12, ADDED)
        start, end = x + half * CELL * 3 // 2, x + half * CELL // 2
        yield arrow(f"M{start} {top + 12} v5 H{end} v-3")
        words = f"l += l+{half}" if half > 1 else "0 += 1: the block's sum"
        yield text(x + left * CELL + 8, top + 10, words, size=10)
        left, top = half, top + 22


def pairs(x, y, leaves, step):
    """Adjacent pairs, level by level; what has no partner is carried up."""
    nodes = [(x + i * step, y) for i in range(len(leaves))]
    for (at, top), name in zip(nodes, leaves, strict=True):
        yield text(at, top - 4, name, "middle", 11)
    level = y
    while len(nodes) > 1:
        level += 38
        above, nodes = nodes, []
        for i in range(0, len(above), 2):
            if i + 1 == len(above):
                nodes.append((above[i][0], level))
                yield line(above[i][0], above[i][1] + 2, above[i][0], level - 9, dashed=True)
                yield text(above[i][0] + 6, level - 18, "carried", size=9, colour=FAINT)
                yield f'<circle cx="{above[i][0]}" cy="{level}" r="3" fill="{ARROW}"/>'
                continue
            middle = (above[i][0] + above[i + 1][0]) / 2
            for at, top in above[i : i + 2]:
                yield line(at, top + 2, middle + (at > middle) * 7 - (at < middle) * 7, level - 7)
            yield f'<circle cx="{middle}" cy="{level}" r="9" fill="{PAPER}" stroke="{ARROW}"/>'
            yield text(middle, level + 4, "+", "middle", 13)
            nodes.append((middle, level + 9))
    yield text(nodes[0][0] + 16, level + 4, "+0.0 once: a sum of -0.0 is +0.0", size=10)


def runs(x, y, run):
    yield title(x, y - 34, "4. A sum over rows: a column of the weights' gradients")
    yield text(x, y - 16, f"runs of {run} rows, one after the other, from +0.0", colour=FAINT)
    for i in range(3):
        left, count = x + i * (run * 7 + 22), run if i < 2 else run // 2
        yield from (box(left + row * 7, y, 7, 12, KEPT) for row in range(count))
        yield line(left, y + 20, left + count * 7 - 4, y + 20)
        rows = f"rows {i * run} to {i * run + count - 1}"
        yield text(left + count * 3.5, y + 34, rows, "middle", 10, FAINT)


def draw():
    block, lanes, run = constants()
    rows = block // lanes
    parts = [
        *block_of_elements(70, 62, rows, lanes),
        *folds_of_lanes(70, 244, lanes),
        title(20, 408, "3. The blocks of a row: adjacent pairs"),
        text(20, 426, "an odd one is carried up unchanged", colour=FAINT),
        *pairs(50, 452, ["b0", "b1", "b2", "b3", "b4"], 62),
        *runs(430, 442, run),
        *pairs(430 + run * 3.5, 496, ["", "", ""], run * 7 + 22),
    ]
    width, height = 880, 600
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="ui-sans-serif, system-ui, sans-serif">'
    )
    about = "<!-- SPDX-License-Identifier: Apache-2.0; drawn by order.py -->"
    tip = (
        '<marker id="tip" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" '
        f'orient="auto"><path d="M0 0 L6 3 L0 6 Z" fill="{ARROW}"/></marker>'
    )
    paper = f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>'
    return "\n".join([about, head, f"<defs>{tip}</defs>", paper, *parts, "</svg>", ""])


if __name__ == "__main__":
    (HERE / "order.svg").write_text(draw())
