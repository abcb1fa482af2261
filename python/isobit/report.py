# SPDX-License-Identifier: Apache-2.0
"""Turns the lab's JSON Lines into one HTML page: `python -m isobit.report DIR`."""

import base64
import json
import math
import sys
from html import escape
from pathlib import Path

from isobit import __version__

C_LIMIT = 8  # the accuracy gate of the numerics contract
PEER_KEYS = ("op", "pass", "kind", "with", "dtype", "threads")  # what one plot holds fixed
INPUT_KEYS = ("op", "pass", "kind", "cols", "dtype", "weight_dtype", "eps", "input", "seed")


def read(folder, kind):
    """The objects in every KIND*.jsonl and KIND*.json of the folder."""
    objects = []
    for path in sorted(folder.glob(f"{kind}*.json*")):
        text = path.read_text()
        lines = text.splitlines() if path.suffix == ".jsonl" else [text]
        objects += [json.loads(line) for line in lines if line.strip()]
    return objects


def grouped(lines, key):
    groups = {}
    for line in lines:
        groups.setdefault(key(line), []).append(line)
    return groups


def columns(lines):
    """The names of all outputs, in order of appearance."""
    return list(dict.fromkeys(name for line in lines for name in line.get("outputs") or ()))


def described(line, keys):
    plain = ("op", "pass", "kind", "dtype", "input", "variant", "isa")
    known = {key: line[key] for key in keys if line.get(key) is not None}
    known |= known.pop("plan", {})  # its knobs, side by side with the rest
    return ", ".join(
        str(value) if key in plain else f"{key}={value}" for key, value in known.items()
    )


def tag(name, content, **attributes):
    written = (f' {key.strip("_")}="{escape(str(value))}"' for key, value in attributes.items())
    return f"<{name}{''.join(written)}>{content}</{name}>"


def text(value):
    return escape(str(value))


def table(heads, rows, **attributes):
    """heads: texts; rows: lists of ready cells (`<td>...`)."""
    head = tag("tr", "".join(tag("th", text(name)) for name in heads))
    body = "".join(tag("tr", "".join(row)) for row in rows)
    return tag(
        "div", tag("table", tag("thead", head) + tag("tbody", body), **attributes), class_="scroll"
    )


def section(title, note, *content):
    return tag("section", tag("h2", text(title)) + tag("p", note, class_="note") + "".join(content))


def number(value, digits=3):
    if value is None:
        return "–"
    if isinstance(value, float) and math.isfinite(value) and abs(value) >= 1e5:
        return f"{value:.1e}"
    return f"{value:,.{digits}g}" if abs(value) < 100 else f"{value:,.0f}"


def machine(lines):
    def flat(value, prefix=""):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from flat(inner, f"{prefix}{key} ")
        elif isinstance(value, list):
            yield prefix, ", ".join(map(str, value))
        else:
            yield prefix, value

    rows = [
        [tag("th", text(key.strip().replace("_", " ")), scope="row"), tag("td", text(value))]
        for line in lines
        for key, value in flat(line)
        if value is not None
    ]
    return section("Machine", "What the figures below were taken on.", table((), rows))


def worst(lines, output):
    """The line with the largest C of the output; NaN counts as the largest."""

    def rank(line):
        c = line["outputs"][output].get("C")
        return math.inf if c is None or math.isnan(c) else c

    having = (line for line in lines if output in (line.get("outputs") or ()))
    return max(having, key=rank, default=None)


def accuracy(lines):
    def cell(family, output):
        line = worst(family, output)
        if line is None:
            return tag("td", "")
        c = line["outputs"][output].get("C")
        state = "good" if c is not None and c <= C_LIMIT else "bad"
        keys = ("pass", "variant", "isa", "rows", "cols", "dtype", "weight_dtype", "eps")
        where = " ".join(f"{key}={line[key]}" for key in keys if line.get(key) is not None)
        return tag("td", number(c), class_=state, title=where)

    failed = [line for line in lines if line.get("passed") is False]
    note = (
        f"{len(lines):,} cases, {len(failed):,} failed. C counts the units of rounding that the "
        f"result lies from the reference, relative to its terms; the gate is C ≤ {C_LIMIT}. "
        "Each figure is the worst over shapes, types and variants; point at it to see which."
    )
    parts = []
    for op, cases in grouped(lines, lambda line: line["op"]).items():
        outputs = columns(cases)
        rows = [
            [tag("th", text(family), scope="row"), *(cell(same, name) for name in outputs)]
            for family, same in grouped(cases, lambda line: line.get("input", "")).items()
        ]
        parts.append(tag("h3", text(op)) + table(("input", *outputs), rows, class_="figures"))
    return section("Accuracy", note, *parts)


def parity(lines):
    def cell(way, output):
        bits = ((way.get("outputs") or {}).get(output) or {}).get("bits")
        if bits is None:
            return tag("td", "")
        hue = int(bits[-4:], 16) % 360
        swatch = tag("i", "", class_="swatch", style=f"background: hsl({hue} 65% 55%)")
        return tag("td", swatch + tag("code", text(bits)))

    def row(way, outputs):
        head = tag("th", text(way["way"]), scope="row")
        if way.get("declined"):
            return [head, tag("td", text(way["declined"]), colspan=len(outputs), class_="declined")]
        return [head, *(cell(way, name) for name in outputs)]

    parts = []
    for title, ways in grouped(lines, lambda line: described(line, INPUT_KEYS)).items():
        outputs = columns(ways)
        parts.append(
            tag("h3", text(title)) + table(("way", *outputs), [row(way, outputs) for way in ways])
        )
    note = "One input, every way to compute it, one hash of each output; one colour is one hash."
    return section("Parity", note, *parts)


def fastest(lines):
    """One line a shape: that of the fastest variant."""
    shapes = grouped(lines, lambda line: (line["rows"], line["cols"]))
    return [min(same, key=lambda line: line["median_us"]) for _, same in sorted(shapes.items())]


def pictures(folder, groups):
    try:
        from isobit import plots
    except ImportError as missing:
        return tag("p", f"No plots: {text(missing)}.", class_="note")

    def embedded(path):
        return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()

    parts = []
    for light in plots.speed(folder, groups):
        dark = light.with_name(f"{light.stem}-dark.png")
        source = f'<source srcset="{embedded(dark)}" media="(prefers-color-scheme: dark)">'
        image = f'<img src="{embedded(light)}" alt="{escape(light.stem)}">'
        parts.append(tag("picture", source + image))
    return "".join(parts)


def speed(folder, lines):
    cases = [line for line in lines if "median_us" in line]
    peers = list(dict.fromkeys(peer["name"] for line in cases for peer in line.get("peers") or ()))

    def row(line):
        ratios = {peer["name"]: peer for peer in line.get("peers") or ()}
        spread = f"{number(line.get('p20_us'))} – {number(line.get('p80_us'))}"
        figures = [
            f"{line['rows']:,} × {line['cols']:,}",
            number(line["median_us"]),
            spread,
            number(line.get("gbps")),
            number(line.get("copy_fraction"), 2),
        ]
        return [
            tag("td", text(described(line, (*PEER_KEYS, "variant", "isa", "plan")))),
            *(tag("td", figure) for figure in figures),
            *(against(ratios.get(name)) for name in peers),
        ]

    def against(peer):
        if not peer or peer.get("ratio") is None:
            return tag("td", "")
        title = f"{peer['name']} {peer.get('version', '')}: {number(peer.get('median_us'))} µs"
        state = "good" if peer["ratio"] >= 1 else "bad"
        return tag("td", f"{peer['ratio']:.2f}×", class_=state, title=title)

    heads = ("case", "rows × cols", "median µs", "p20 – p80", "GB/s", "of a copy", *peers)
    plotted = {
        title: fastest(same)
        for title, same in grouped(cases, lambda line: described(line, PEER_KEYS)).items()
    }
    note = (
        "Medians. “Of a copy” sets the operator's least traffic against the best plain copy of as "
        "many bytes; under a peer's name stands its time over ours, so above 1 Isobit is faster."
    )
    return section(
        "Speed", note, pictures(folder, plotted), table(heads, map(row, cases), class_="figures")
    )


def provenance(lines):
    heads = [line for line in lines if "commit" in line and "median_us" not in line]
    return machine(heads) if heads else ""


def write(folder):
    """Writes report.html, and the plots as PNG files, into the folder of JSON Lines."""
    info, bench = read(folder, "info"), read(folder, "bench")
    parts = [machine(info) if info else provenance(bench)]
    if verify := read(folder, "verify"):
        parts.append(accuracy(verify))
    if ways := read(folder, "parity"):
        parts.append(parity(ways))
    if any("median_us" in line for line in bench):
        parts.append(speed(folder, bench))
    body = "\n".join(filter(None, parts)) or tag("p", "No results lie in this folder.")
    style = (Path(__file__).parent / "report.css").read_text()
    page = folder / "report.html"
    page.write_text(
        "<!doctype html>\n"
        '<html lang="en"><meta charset="utf-8"><title>Isobit report</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>\n{style}</style>\n"
        f"<header><h1>Isobit</h1><p>version {__version__}</p></header>\n"
        f"<main>\n{body}\n</main></html>\n"
    )
    return page


def main(arguments):
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        print("usage: python -m isobit.report DIR", file=sys.stderr)
        return 2
    print(write(Path(arguments[0])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
