# SPDX-License-Identifier: Apache-2.0
"""Prints the measured tables of the documentation, as Markdown, from the lab's JSON lines."""

import json
import sys
from collections import defaultdict
from pathlib import Path


def lines(files):
    for file in files:
        for text in Path(file).read_text().splitlines():
            line = json.loads(text)
            if "op" in line:  # a header has none
                yield line


def table(heads, rows):
    print("| " + " | ".join(heads) + " |")
    print("|" + "|".join("---" if i == 0 else "--:" for i in range(len(heads))) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


def types(line):
    x, weight = line["dtype"], line["weight_dtype"]
    return x if x == weight else f"{x}, {weight} weights"


def accuracy(files):
    """The worst C of every family, type and output."""
    worst, cases, failed = defaultdict(float), 0, 0
    families, columns = [], []
    for line in lines(files):
        cases += 1
        failed += not line["passed"]
        if line["input"] not in families:
            families.append(line["input"])
        for output, measured in line["outputs"].items():
            column = (types(line), output)
            if output in ("mean", "rstd"):
                continue
            if column not in columns:
                columns.append(column)
            key = (line["input"], *column)
            worst[key] = max(worst[key], measured["C"])
    for kind in dict.fromkeys(kind for kind, _ in columns):
        outputs = [output for of, output in columns if of == kind]
        print(f"\n{kind}\n")
        table(
            ["input", *(f"`{output}`" for output in outputs)],
            (
                [f"`{family}`", *(f"{worst[family, kind, output]:.2g}" for output in outputs)]
                for family in families
                if (family, kind, outputs[0]) in worst
            ),
        )
    print(f"\n{cases} cases, {failed} failed.")


def speed(files):
    """Every case's fraction of a copy, and the peers' times over ours."""
    rows = defaultdict(dict)
    counts, peers = [], []
    for line in lines(files):
        kind = line.get("kind")
        key = (line["pass"] if kind is None else kind, types(line), line["rows"], line["cols"])
        rows[key][line["threads"]] = line
        counts = sorted({*counts, line["threads"]})
        peers += [peer["name"] for peer in line["peers"] if peer["name"] not in peers]

    def cell(value):
        return "" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"

    def ratio(line, name):
        return next((peer["ratio"] for peer in line["peers"] if peer["name"] == name), None)

    heads = ["shape"]
    for count in counts:
        threads = f"{count} thread" + "s" * (count > 1)
        heads += [f"{threads}: GB/s", "of a copy", *(f"{peer} / ours" for peer in peers)]
    groups = dict.fromkeys((what, kind) for what, kind, _, _ in rows)
    for group in groups:
        print(f"\n{group[0]}, {group[1]}\n")
        body = []
        for key, by_threads in rows.items():
            if key[:2] != group:
                continue
            row = [f"{key[2]} × {key[3]}"]
            for count in counts:
                line = by_threads.get(count)
                if line is None:
                    row += [""] * (2 + len(peers))
                    continue
                row += [cell(line["gbps"]), cell(line["copy_fraction"])]
                row += [cell(ratio(line, peer)) for peer in peers]
            body.append(row)
        table(heads, body)


TABLES = {"accuracy": accuracy, "speed": speed}

if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in TABLES:
        sys.exit(f"usage: tools/tables.py {'|'.join(TABLES)} FILE...")
    TABLES[sys.argv[1]](sys.argv[2:])
