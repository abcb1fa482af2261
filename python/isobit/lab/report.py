# SPDX-License-Identifier: Apache-2.0
"""Turns the lab's JSON Lines into one HTML page: `python -m isobit.lab.report DIR`.

What failed or differs comes first, what agrees is one line, what is unavailable comes last.
"""

import base64
import json
import math
import sys
from collections import Counter
from html import escape
from pathlib import Path
from typing import NamedTuple

from isobit import __version__
from isobit.lab.cases import dims, mebibytes, shape

C_LIMIT = 8  # of operators that say nothing else (docs/numerics.md)
# What one plot holds fixed.
PEER_KEYS = ("op", "pass", "kind", "function", "style", "with", "dtype", "threads")
# What parity reports about a configuration; all other keys describe the case.
CONFIGURATION_KEYS = {"configuration", "variant", "device", "isa", "executor", "threads"}
CONFIGURATION_KEYS |= {"plan", "outputs", "unavailable", "offset", "row_stride"}
CASE_KEYS = ("op", "pass", "kind", "dtype", "input")  # that every title has


class Part(NamedTuple):
    """A section, what its cases came to, and whether that is bad."""

    verdict: str
    bad: bool
    content: str


class Damaged(ValueError):
    """What was to be read is no result of the lab."""


def read(folder, kind):
    """The objects in every KIND*.jsonl and KIND*.json of the folder."""
    objects = []
    for path in sorted(folder.glob(f"{kind}*.json*")):
        text = path.read_text()
        lines = text.splitlines() if path.suffix == ".jsonl" else [text]
        for number, line in enumerate(lines, 1):
            if line.strip():
                objects.append(_object(f"{path}:{number}", line))
    return objects


def _object(place, line):
    """Of a line, which a program that was stopped may have cut off."""
    try:
        found = json.loads(line)
    except ValueError as error:
        raise Damaged(f"{place}: is no JSON object: {error}") from None
    if not isinstance(found, dict):
        raise Damaged(f"{place}: is no JSON object")
    return found


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
    return section("Machine", "Where the figures above were measured.", table((), rows))


def failed(line):
    return line.get("passed") is False


def failures_first(groups):
    return sorted(groups.items(), key=lambda group: not any(map(failed, group[1])))


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
        state = "good" if c is not None and c <= line.get("limit", C_LIMIT) else "bad"
        keys = ("pass", "variant", "isa", *dims(line), "dtype", "weight_dtype", "eps")
        where = " ".join(f"{key}={line[key]}" for key in keys if line.get(key) is not None)
        return tag("td", number(c), class_=state, title=where)

    note = (
        "C is the distance of the result from the reference, in units of rounding relative to its "
        f"terms; the limit is {C_LIMIT}, or the operator's own. "
        "Each figure is the worst over shapes, types and variants; hover over it to see which."
    )
    parts = []
    for op, cases in failures_first(grouped(lines, lambda line: line["op"])):
        outputs = columns(cases)
        rows = [
            [tag("th", text(family), scope="row"), *(cell(same, name) for name in outputs)]
            for family, same in failures_first(grouped(cases, lambda line: line.get("input", "")))
        ]
        parts.append(tag("h3", text(op)) + table(("input", *outputs), rows, class_="figures"))
    count = sum(map(failed, lines))
    verdict = f"{counted(len(lines), 'case')}, {count:,} failed."
    return Part(verdict, count > 0, section("Accuracy", f"{verdict} {note}", *parts))


class ParityCase:
    """The configurations of one case, separated by their results."""

    def __init__(self, configurations):
        computed = [one for one in configurations if one.get("outputs")]
        self.line, self.outputs = configurations[0], columns(computed)
        self.common = {name: self._most_frequent(name, computed) for name in self.outputs}
        self.differing = [one for one in computed if self._differs(one)]
        self.agreeing = [one for one in computed if not self._differs(one)]
        self.unavailable = [one for one in configurations if one.get("unavailable")]

    def _most_frequent(self, output, configurations):
        found = Counter(bits_of(one, output) for one in configurations)
        found.pop("", None)
        return max(found, key=found.get, default="")

    def _differs(self, line):
        return any(bits_of(line, name) not in ("", self.common[name]) for name in self.outputs)

    def title(self, keys):
        return described(self.line, keys)

    def table(self):
        rows = [
            [
                tag("th", text(line["configuration"]), scope="row"),
                *(self._cell(name, bits_of(line, name)) for name in self.outputs),
            ]
            for line in self.differing
        ]
        if self.agreeing:
            common = [self._cell(name, self.common[name]) for name in self.outputs]
            rows.append([tag("th", listed(self.agreeing), scope="row"), *common])
        return table(("configuration", *self.outputs), rows)

    def _cell(self, output, bits):
        state = {"class_": "bad"} if bits not in ("", self.common[output]) else {}
        return tag("td", hashed(bits), **state)

    def row(self, keys):
        """Of a case in which all agree."""
        common = (f"{text(name)} {hashed(bits)}" for name, bits in self.common.items())
        return [
            tag("th", text(self.title(keys)), scope="row"),
            tag("td", listed(self.agreeing)),
            tag("td", " ".join(common), class_="hashes"),
        ]


def bits_of(line, output):
    return ((line.get("outputs") or {}).get(output) or {}).get("bits") or ""


def hashed(bits):
    """The hash beside a colour of its own."""
    if not bits:
        return ""
    hue = int(bits[-4:], 16) % 360
    swatch = tag("i", "", class_="swatch", style=f"background: hsl({hue} 65% 55%)")
    return swatch + tag("code", text(bits))


def listed(configurations):
    """How many configurations agree; which ones, where it is opened."""
    names = ", ".join(one["configuration"] for one in configurations)
    agree = "agrees" if len(configurations) == 1 else "agree"
    count = f"{counted(len(configurations), 'configuration')} {agree}"
    return tag("details", tag("summary", count) + text(names))


def counted(count, noun):
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def distinguishing(lines):
    """The keys that tell cases of one operator apart, beside those that every title has."""
    keys = dict.fromkeys(key for line in lines for key in line if key not in CONFIGURATION_KEYS)
    for same in grouped(lines, lambda line: (line["op"], line.get("pass"))).values():
        for key in keys:
            keys[key] = keys[key] or len({json.dumps(line.get(key)) for line in same}) > 1
    named = (
        *CASE_KEYS[:3],
        *dict.fromkeys(d for line in lines for d in dims(line)),
        *CASE_KEYS[3:],
    )
    return (*named, *(key for key, vary in keys.items() if vary and key not in named))


def unavailable(cases):
    """A row per reason: the configurations, and in how many cases."""
    reasons = {}
    for case in cases:
        for line in case.unavailable:
            reasons.setdefault(line["unavailable"], []).append(line["configuration"])
    rows = [
        [
            tag("th", text(", ".join(dict.fromkeys(names))), scope="row"),
            tag("td", text(reason), class_="unavailable"),
            tag("td", f"{max(Counter(names).values()):,}"),
        ]
        for reason, names in reasons.items()
    ]
    heads = ("configuration", "reason", "cases")
    return tag("h3", "Unavailable") + table(heads, rows) if rows else ""


def parity(lines):
    def which(line):
        return json.dumps({key: line[key] for key in line if key not in CONFIGURATION_KEYS})

    cases = [ParityCase(same) for same in grouped(lines, which).values()]
    keys = distinguishing(lines)
    differing = [case for case in cases if case.differing]
    agreeing = [case for case in cases if case.agreeing and not case.differing]
    parts = [tag("h3", text(case.title(keys))) + case.table() for case in differing]
    if agreeing:
        rows = [case.row(keys) for case in agreeing]
        parts.append(tag("h3", "All configurations give the same bits"))
        parts.append(table(("case", "configurations", "hash of each output"), rows))
    count = len(differing) + len(agreeing)
    verdict = f"{counted(count, 'case')}, {len(differing):,} with differing bits."
    note = (
        "One input in every configuration, one hash of each output; equal hashes have equal "
        "colours. A red hash differs from that of most configurations."
    )
    content = section("Parity", f"{verdict} {note}", *parts, unavailable(cases))
    return Part(verdict, bool(differing), content)


def fastest(lines):
    """One line a shape: that of the fastest variant."""
    shapes = grouped(lines, lambda line: tuple(line[dim] for dim in dims(line)))
    return [min(same, key=lambda line: line["median_us"]) for _, same in sorted(shapes.items())]


def plotted_of(cases):
    groups = grouped(cases, lambda line: described(line, PEER_KEYS))
    return {title: fastest(same) for title, same in groups.items()}


def pictures(folder, groups):
    """The plots, or why they are unavailable."""
    try:
        from isobit.lab import plots
    except ImportError as missing:
        return "", tag("p", f"Plots are unavailable: {text(missing)}.", class_="note")

    def embedded(path):
        return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()

    parts = []
    for light in plots.speed(folder, groups):
        dark = light.with_name(f"{light.stem}-dark.png")
        source = f'<source srcset="{embedded(dark)}" media="(prefers-color-scheme: dark)">'
        image = f'<img src="{embedded(light)}" alt="{escape(light.stem)}">'
        parts.append(tag("picture", source + image))
    return "".join(parts), ""


def speed(folder, lines):
    cases = [line for line in lines if "median_us" in line]
    peers = list(dict.fromkeys(peer["name"] for line in cases for peer in line.get("peers") or ()))

    def row(line):
        ratios = {peer["name"]: peer for peer in line.get("peers") or ()}
        spread = f"{number(line.get('p20_us'))} – {number(line.get('p80_us'))}"
        figures = [
            shape(line),
            number(line["median_us"]),
            spread,
            number(line.get("gbps")),
            number(line.get("copy_fraction"), 2),
            number(mebibytes(line)),
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
        if "workspace_bytes" in peer:
            title += f", {number(mebibytes(peer))} MiB"
        state = "good" if peer["ratio"] >= 1 else "bad"
        return tag("td", f"{peer['ratio']:.2f}×", class_=state, title=title)

    drawn, missing = pictures(folder, plotted_of(cases))
    heads = ("case", "shape", "median µs", "p20 – p80", "GB/s", "fraction of copy", "MiB", *peers)
    note = (
        "Medians. “Fraction of copy” is the time of the best plain copy of as many bytes as the "
        "operator must move, divided by Isobit's time. A peer's column is the speed-up: its time / "
        "Isobit's time. “MiB” is the most memory that a call allocates at once beside its arrays."
    )
    figures = table(heads, map(row, cases), class_="figures")
    verdict = f"{counted(len(cases), 'case')} timed."
    return Part(verdict, False, section("Speed", note, drawn, figures, missing))


def provenance(lines):
    heads = [line for line in lines if "commit" in line and "median_us" not in line]
    return machine(heads) if heads else ""


def summary(found):
    """A line for each section: what its cases came to."""
    lines = (
        tag("li", f"{name}: {part.verdict}", **({"class_": "bad"} if part.bad else {}))
        for name, part in found.items()
    )
    return tag("ul", "".join(lines), class_="summary") if found else ""


def write(folder):
    """Writes report.html, and the plots as PNG files, into the folder of JSON Lines."""
    info, bench = read(folder, "info"), read(folder, "bench")
    found = {}
    if verify := read(folder, "verify"):
        found["Accuracy"] = accuracy(verify)
    if lines := read(folder, "parity"):
        found["Parity"] = parity(lines)
    if any("median_us" in line for line in bench):
        found["Speed"] = speed(folder, bench)
    found = dict(sorted(found.items(), key=lambda part: not part[1].bad))
    parts = [summary(found), *(part.content for part in found.values())]
    parts.append(machine(info) if info else provenance(bench))
    body = "\n".join(filter(None, parts)) or tag("p", "No results in this folder.")
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
        print("usage: python -m isobit.lab.report DIR", file=sys.stderr)
        return 2
    try:
        print(write(Path(arguments[0])))
    except Damaged as error:
        print(f"isobit.lab.report: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
