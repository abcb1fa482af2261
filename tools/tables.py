# SPDX-License-Identifier: Apache-2.0
"""Prints the measured tables of the documentation, as Markdown, from the lab's JSON lines."""

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def lines(files):
    for file in files:
        for text in Path(file).read_text().splitlines():
            line = json.loads(text)
            if "op" in line:  # a header has none
                yield line


def table(heads, rows):
    rule = "|" + "|".join("---" if i == 0 else "--:" for i in range(len(heads))) + "|"
    head, *body = (f"| {' | '.join(row)} |" for row in [heads, *rows])
    return [head, rule, *body]


def types(line):
    x, weight, y = line["dtype"], line["weight_dtype"], line.get("y_dtype", line["dtype"])
    return x + (f", {weight} weights" if weight != x else "") + (f", {y} y" if y != x else "")


def options(line):
    """What a case asks for beside the plain norm."""
    if "with" in line:
        yield line["with"].replace("+", " and ")
    if line.get("zero_centred") == "yes":
        yield "zero-centred weight"
    if line.get("dropout"):
        yield "dropout"


def accuracy(files):
    """The worst C of every output: by types, by options, and by family of inputs for each type."""
    tables = defaultdict(lambda: defaultdict(dict))
    cases, failed = 0, 0
    for line in lines(files):
        cases += 1
        failed += not line["passed"]
        rows = [(f"{line['op']}, by type", types(line))]
        rows += [(f"{line['op']}, by option", option) for option in options(line)]
        rows += [(f"{line['op']}, {types(line)}", f"`{line['input']}`")]
        for title, row in rows:
            worst = tables[title][row]
            for output, measured in line["outputs"].items():
                worst[output] = max(worst.get(output, 0), measured["C"])
    print(f"{cases} cases, {failed} failed.")

    def in_lines(rows):
        outputs = list(dict.fromkeys(output for worst in rows.values() for output in worst))
        cells = (
            [row, *(f"{worst[output]:.2g}" if output in worst else "" for output in outputs)]
            for row, worst in rows.items()
        )
        return table(["", *(f"`{output}`" for output in outputs)], cells)

    return {title: in_lines(rows) for title, rows in tables.items()}


def speed(files):
    """Every case's fraction of a copy, and the peers' times over ours."""
    rows = defaultdict(dict)
    counts, peers = set(), defaultdict(list)
    for line in lines(files):
        what = line.get("kind", line["pass"])
        if "with" in line:
            what += f" with {line['with'].replace('+', ' and ')}"
        title = f"{what}, {types(line)}"
        rows[title, line["rows"], line["cols"]][line["threads"]] = line
        counts.add(line["threads"])
        known = peers[title]
        known += [peer["name"] for peer in line["peers"] if peer["name"] not in known]

    def cell(value):
        return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.3g}"

    def cells(line, title):
        ratios = {peer["name"]: peer["ratio"] for peer in line["peers"]}
        measured = [line["gbps"], line["copy_fraction"], *map(ratios.get, peers[title])]
        return [cell(value) for value in measured]

    tables = {}
    for title in dict.fromkeys(title for title, _, _ in rows):
        heads = ["shape"]
        for count in sorted(counts):
            threads = f"{count} thread" + "s" * (count > 1)
            heads += [f"{threads}: GB/s", "of a copy", *(f"{peer} / ours" for peer in peers[title])]
        body = [
            [f"{key[1]} × {key[2]}"]
            + [text for count in sorted(counts) for text in cells(by_threads[count], title)]
            for key, by_threads in rows.items()
            if key[0] == title
        ]
        tables[title] = table(heads, body)
    return tables


TABLES = {"accuracy": accuracy, "speed": speed}
MARK = re.compile(r"<!-- (\w+) (\S+): (.*) -->")


def refresh(page):
    """Writes the tables of a page anew, each below a comment `<!-- speed FILE: TITLE -->`."""
    made, fresh, skipping = {}, [], False
    for text in page.read_text().splitlines():
        mark = MARK.fullmatch(text)
        if mark:
            kind, file, title = mark.groups()
            if (kind, file) not in made:
                made[kind, file] = TABLES[kind]([ROOT / file])
            fresh += [text, *made[kind, file][title]]
        elif not (skipping and text.startswith("|")):
            fresh.append(text)
        skipping = bool(mark) or (skipping and text.startswith("|"))
    page.write_text("\n".join(fresh) + "\n")


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "refresh":
        return refresh(Path(arguments[1]))
    if len(arguments) < 2 or arguments[0] not in TABLES:
        sys.exit(f"usage: tools/tables.py {'|'.join(TABLES)} FILE... | refresh PAGE")
    for title, rows in TABLES[arguments[0]](arguments[1:]).items():
        print("", title, "", *rows, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
