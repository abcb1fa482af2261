# SPDX-License-Identifier: Apache-2.0
"""Draws the report's plots, each in a light and a dark version."""

import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from isobit.lab.cases import mebibytes, multiplies, shape

OURS = "isobit"
ACCENT = {"light": "#2f5fe0", "dark": "#7da2ff"}
PEERS = {
    "light": ("#f0994a", "#3aa387", "#b46fc4", "#d1607a", "#8b8f99"),
    "dark": ("#f4b06e", "#5cc4a8", "#cf95dc", "#e88aa0", "#9da1ab"),
}
INK = {
    "light": {"text": "#1c1e24", "faint": "#6b7080", "rule": "#e3e5ea", "paper": "#ffffff"},
    "dark": {"text": "#e8e9ee", "faint": "#9a9fae", "rule": "#30333c", "paper": "#17181c"},
}
ITEM_BYTES = {"f32": 4, "f16": 2, "bf16": 2, "f64": 8, "i32": 4}


def style(theme):
    ink = INK[theme]
    return {
        "figure.facecolor": ink["paper"],
        "axes.facecolor": ink["paper"],
        "axes.edgecolor": ink["rule"],
        "axes.labelcolor": ink["faint"],
        "axes.titlecolor": ink["text"],
        "axes.titlelocation": "left",
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.titlepad": 12,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.spines.left": False,
        "text.color": ink["text"],
        "xtick.color": ink["faint"],
        "ytick.color": ink["text"],
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "grid.color": ink["rule"],
        "grid.linewidth": 0.8,
        "font.size": 9.5,
        "font.family": "sans-serif",
        "legend.frameon": False,
        "savefig.dpi": 170,
        "savefig.bbox": "tight",
        "savefig.pad_inches": 0.15,
    }


def colours(theme, series):
    peers = [name for name in series if name != OURS]
    palette = PEERS[theme]
    return {OURS: ACCENT[theme]} | {name: palette[i % len(palette)] for i, name in enumerate(peers)}


def draw(path, paint):
    """Calls paint(theme) for both themes and saves PATH.png and PATH-dark.png."""
    for theme, suffix in (("light", ""), ("dark", "-dark")):
        with plt.rc_context(style(theme)):
            figure = paint(theme)
            figure.savefig(path.with_name(f"{path.name}{suffix}.png"))
            plt.close(figure)
    return path.with_name(f"{path.name}.png")


def legend(axes, series):
    if series > 1:
        axes.legend(
            loc="lower right",
            bbox_to_anchor=(1, 1),
            ncols=min(series, 4),
            handlelength=1,
            handleheight=0.9,
            columnspacing=1.4,
            borderaxespad=0.2,
        )


def bars(path, title, unit, labels, series, *, ratio=False, line=True):
    """Horizontal bars, one group a label, with a line at 1; those of a ratio start there, in log.

    series: {name: [a value or None for each label]}
    """
    start, number = (1, "{:.2f}×") if ratio else (0, "{:.2f}")

    def paint(theme):
        ink, colour = INK[theme], colours(theme, series)
        thickness = 0.78 / len(series)
        height = max(1.6, 0.9 + len(labels) * max(0.34, 0.2 * len(series)))
        figure, axes = plt.subplots(figsize=(8.6, height))
        for rank, (name, values) in enumerate(series.items()):
            shift = (rank - (len(series) - 1) / 2) * thickness
            at = [(i + shift, value) for i, value in enumerate(values) if value is not None]
            where, lengths = [y for y, _ in at], [value - start for _, value in at]
            axes.barh(where, lengths, thickness * 0.88, start, color=colour[name], label=name)
            for y, value in at:
                leftward = value < start
                axes.annotate(
                    number.format(value),
                    (value, y),
                    xytext=(-4 if leftward else 4, 0),
                    textcoords="offset points",
                    ha="right" if leftward else "left",
                    va="center",
                    fontsize=7.5,
                    color=ink["text"] if name == OURS else ink["faint"],
                )
        if line:
            axes.axvline(1, color=ink["faint"], linewidth=1, linestyle=(0, (4, 3)), zorder=1.5)
        if ratio:
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
            axes.xaxis.set_minor_locator(NullLocator())
        axes.margins(x=0.08)
        axes.set_yticks(range(len(labels)), labels)
        axes.set_ylim(len(labels) - 0.45, -0.55)
        axes.grid(axis="x")
        axes.set_xlabel(unit)
        axes.set_title(title)
        legend(axes, len(series))
        return figure

    return draw(path, paint)


def size_text(size):
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:g} {unit}"
        size /= 1024
    return f"{size:g} GiB"


def bandwidth(path, title, series):
    """Lines of GB/s over the size of one array; series: {name: [(bytes, GB/s)]}."""

    def paint(theme):
        colour = colours(theme, series)
        figure, axes = plt.subplots(figsize=(8.6, 3.6))
        for name, points in series.items():
            ours = name == OURS
            axes.plot(
                *zip(*sorted(points), strict=True),
                color=colour[name],
                label=name,
                linewidth=2.4 if ours else 1.6,
                marker="o",
                markersize=5 if ours else 4,
                markeredgecolor=INK[theme]["paper"],
                zorder=3 if ours else 2,
            )
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(LogLocator(base=2, numticks=12))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_text(value)))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(bottom=0)
        axes.grid(axis="y")
        axes.set_xlabel("bytes of one array")
        axes.set_ylabel("GB/s")
        axes.set_title(title)
        legend(axes, len(series))
        return figure

    return draw(path, paint)


def by_peer(lines, value):
    """{peer: [value(line, peer) or None for each line]}, peers in order of appearance."""
    names = dict.fromkeys(peer["name"] for line in lines for peer in line.get("peers") or ())
    found = [
        {p["name"]: value(line, p) for p in line.get("peers") or () if p.get("ratio")}
        for line in lines
    ]
    return {name: [peers.get(name) for peers in found] for name in names}


def of_limit(stem, title, lines, labels):
    """Bars of what part of its limit each line reaches, if all tell."""
    computes = any(map(multiplies, lines))
    fraction = "roof_fraction" if computes else "copy_fraction"
    if not all(row.get(fraction) for row in lines):
        return []
    theirs = by_peer(lines, lambda row, peer: row[fraction] / peer["ratio"])
    series = {OURS: [row[fraction] for row in lines]} | theirs
    unit = "fraction of a plain copy's speed (1 = as fast as copying the same bytes)"
    if computes:
        unit = "fraction of the processor's peak, of multiplying or else of copying"
    return [bars(stem.with_name(stem.name + "-copy"), title, unit, labels, series)]


def memory(stem, title, lines, labels):
    """Bars of what each call allocates, where a peer's is known too."""
    theirs = by_peer(lines, lambda _, peer: mebibytes(peer))
    theirs = {name: values for name, values in theirs.items() if any(values)}
    if not theirs:
        return []
    series = {OURS: [mebibytes(row) for row in lines]} | theirs
    unit = "MiB that a call allocates beside its arrays, at its largest"
    return [bars(stem.with_name(stem.name + "-memory"), title, unit, labels, series, line=False)]


def speed(folder: Path, groups):
    """All plots for {title: bench lines}; groups of one operator, one line a shape."""
    pictures = []
    for title, lines in groups.items():
        stem = folder / re.sub(r"\W+", "-", f"bench {title}")
        if lines[0]["op"] == "elementwise":
            size = [row["rows"] * row["cols"] * ITEM_BYTES.get(row["dtype"], 4) for row in lines]
            theirs = by_peer(lines, lambda row, peer: row["gbps"] / peer["ratio"])
            series = {OURS: [row["gbps"] for row in lines]} | theirs
            points = {
                name: [(x, y) for x, y in zip(size, values, strict=True) if y is not None]
                for name, values in series.items()
            }
            points = {name: line for name, line in points.items() if line}
            pictures.append(bandwidth(stem, title, points))
            continue
        labels = [shape(row) for row in lines]
        pictures += of_limit(stem, title, lines, labels)
        if ratios := by_peer(lines, lambda _, peer: peer["ratio"]):
            unit = "speed-up: the peer's time / Isobit's time (above 1, Isobit is faster)"
            where = stem.with_name(stem.name + "-peers")
            pictures.append(bars(where, title, unit, labels, ratios, ratio=True))
        pictures += memory(stem, title, lines, labels)
    return pictures
