# SPDX-License-Identifier: Apache-2.0
"""Draws apart.svg, how many weights of three trainings have other bits on another instruction set,
or with another number of threads, as bench/runs_apart.py measured it: `python -m pictures.apart` in
docs/."""

from pictures import plots

MEASURED = "intel-r-xeon-r-processor-family-6-model-167-2cpu/runs-apart.jsonl"
NARROWER, WIDEST = "avx2", "avx512"
# (way, instruction set, threads): its pen.
PENS = {
    ("torch", NARROWER, 1): plots.pen(plots.THEIRS, 3),
    ("torch", WIDEST, 2): plots.pen(plots.THEIRS, 2, "4 3"),
    ("isobit", NARROWER, 1): plots.pen(plots.OURS, 3),
    ("isobit", WIDEST, 2): plots.pen(plots.OURS, 3),
}


def measured():
    """{run: {(way, instruction set, threads): its line}}"""
    found = {name: {} for name in plots.TITLES}
    for line in plots.lines(MEASURED):
        found[line["run"]][line["by"], line["isa"], line["threads"]] = line
    return found


def plot(left, name, lines):
    steps = {line["steps"] for line in lines.values()}
    yield from plots.frame(left, plots.TITLES[name], 100, *steps)
    for key, pen in PENS.items():
        yield plots.curve([0, *(100 * share for share in lines[key]["shares"])], left, 100, pen)


def draw():
    names = [
        ("PyTorch on AVX2", PENS["torch", NARROWER, 1], 175),
        ("PyTorch with 2 threads", PENS["torch", WIDEST, 2], 210),
        ("Isobit, either way", PENS["isobit", WIDEST, 2], 0),
    ]
    parts = [*plots.legend(plots.LEFT, names)]
    words = "weights, in %, whose bits differ from those of AVX-512 with 1 thread, after each step"
    parts.append(plots.note(plots.LEFT, words))
    for place, (name, lines) in enumerate(measured().items()):
        parts += plot(plots.left_of(place), name, lines)
    return plots.page("apart.py", parts)


if __name__ == "__main__":
    (plots.HERE / "apart.svg").write_text(draw())
