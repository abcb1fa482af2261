# SPDX-License-Identifier: Apache-2.0
"""Draws losses.svg, the losses of three trainings by PyTorch and by Isobit, as
bench/loss_curves.py measured them: `python -m pictures.losses` in docs/."""

from pictures import plots

MEASURED = "amd-epyc-family-25-model-17-2cpu/losses.jsonl"
# Theirs is broad and lies below ours: where curves agree both are seen.
PENS = {"torch": plots.pen(plots.THEIRS, 4), "isobit": plots.pen(plots.OURS, 1)}


def measured():
    """{run: ({way: losses}, the line of their difference)}"""
    found = {name: ({}, {}) for name in plots.TITLES}
    for line in plots.lines(MEASURED):
        curves, apart = found[line["run"]]
        if "by" in line:
            curves[line["by"]] = line["losses"]
        else:
            apart.update(line)
    return found


def plot(left, name, curves, apart):
    most = max(max(losses) for losses in curves.values())
    yield from plots.frame(left, plots.TITLES[name], most, len(curves["isobit"]))
    for by, pen in PENS.items():
        yield plots.curve(curves[by], left, most, pen)
    words = f"{apart['largest_difference']:.1e} apart at most, at step {apart['at_step']}"
    yield plots.note(left, words)


def draw():
    names = [("PyTorch", PENS["torch"], 100), ("Isobit", PENS["isobit"], 100)]
    parts = [*plots.legend(plots.LEFT, names)]
    parts.append(plots.text(plots.LEFT + 220, 22, "loss, in nats, of each step", size=12))
    for place, (name, (curves, apart)) in enumerate(measured().items()):
        parts += plot(plots.left_of(place), name, curves, apart)
    return plots.page("losses.py", parts)


if __name__ == "__main__":
    (plots.HERE / "losses.svg").write_text(draw())
