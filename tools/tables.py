# SPDX-License-Identifier: Apache-2.0
"""Makes the documentation's tables, as Markdown: of measurements, and of what the lab lists."""

import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "python"))
from isobit.lab.cases import extents, multiplies  # noqa: E402

LAB = ROOT / "build" / "release" / "isobit"


def objects(file):
    return [json.loads(text) for text in Path(file).read_text().splitlines()]


def lines(files):
    for file in files:
        yield from (line for line in objects(file) if "op" in line)  # a header has none


def table(heads, rows, numbers=True):
    rule = "|" + "|".join("--:" if numbers and i else "---" for i in range(len(heads))) + "|"
    head, *body = (f"| {' | '.join(row)} |" for row in [heads, *rows])
    return [head, rule, *body]


def types(line):
    x, weight, y = line["dtype"], line["weight_dtype"], line.get("y_dtype", line["dtype"])
    return x + (f", {weight} weights" if weight != x else "") + (f", {y} y" if y != x else "")


def options(line):
    """What a case asks for beside the plain norm."""
    if "with" in line:
        yield line["with"].replace("+", " and ")
    if "yes" in (line.get("zero_centered"), line.get("zero_centred")):  # until 0.2
        yield "zero-centered weight"
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


def speed_title(line):
    what = line.get("kind", line["pass"])
    for option in ("function", "style", "order"):
        if option in line:
            what += f" {line[option]}"
    for flag in ("log", "training"):
        if line.get(flag) == "yes":
            what += f" {flag}"
    if line.get("causal", "no") != "no":
        what += " causal"
    if line.get("layout", "dense") != "dense":
        what += f" {line['layout']}"
    if "with" in line:
        what += f" with {line['with'].replace('+', ' and ')}"
    return f"{what}, {types(line)}"


def speed_row(line):
    """The extents, and what moves windows."""
    row = " × ".join(map(str, extents(line)))
    for name, option in (("stride", "stride"), ("stride_h", "stride"), ("groups", "groups")):
        if line.get(name, 1) != 1:
            row += f", {option} {line[name]}"
    return row


def counted(threads):
    return f"{threads} thread" + "s" * (threads > 1)


def speed(files):
    """Every case's fraction of a copy, or of what limits it where that may be the fma unit, and
    the peers' times over ours."""
    rows = defaultdict(dict)
    counts, peers, computing = set(), defaultdict(list), set()
    for line in lines(files):
        title = speed_title(line)
        threads = line.get("threads", 0)  # a GPU's lines have none
        rows[title, speed_row(line)][threads] = line
        counts.add(threads)
        if multiplies(line):
            computing.add(title)
        known = peers[title]
        known += [peer["name"] for peer in line["peers"] if peer["name"] not in known]

    def cell(value):
        return "" if value is None else f"{value:.2f}" if value < 10 else f"{value:.3g}"

    def cells(line, title):
        ratios = {peer["name"]: peer["ratio"] for peer in line["peers"]}
        figures = ("gflops", "roof_fraction") if title in computing else ("gbps", "copy_fraction")
        measured = [*map(line.get, figures), *map(ratios.get, peers[title])]
        return [cell(value) for value in measured]

    tables = {}
    for title in dict.fromkeys(title for title, _ in rows):
        heads = ["shape"]
        for count in sorted(counts):
            threads = f"{counted(count)}: " if count else ""
            units = ("GFLOP/s", "of the peak") if title in computing else ("GB/s", "of a copy")
            heads += [threads + units[0], units[1], *(f"{peer} / ours" for peer in peers[title])]
        body = [
            [key[1]]
            + [text for count in sorted(counts) for text in cells(by_threads[count], title)]
            for key, by_threads in rows.items()
            if key[0] == title
        ]
        tables[title] = table(heads, body)
    return tables


def in_rows(files, key):
    """The lines of a benchmark in Python: {row: {threads: line}}, and all numbers of threads."""
    rows = defaultdict(dict)
    for file in files:
        for line in objects(file)[1:]:
            rows[key(line)][line.get("threads")] = line
    return rows, sorted({threads for row in rows.values() for threads in row if threads})


def beside(files):
    """Functions of isobit.torch beside PyTorch's, as bench/torch_operators.py times them."""
    rows, counts = in_rows(files, lambda line: (line["case"], line["passes"]))
    peers = dict.fromkeys(peer for row in rows.values() for peer in row[counts[0]]["speed_beside"])
    heads = ["", "pass"]
    for threads in counts:
        heads += [f"{counted(threads)}: µs", *(f"{peer} / ours" for peer in peers)]
    body = []
    for (case, passes), row in rows.items():
        body.append([case, passes])
        for line in map(row.get, counts):
            ratios = map(line["speed_beside"].get, peers)
            body[-1] += [f"{line['seconds']['isobit'] * 1e6:.0f}"]
            body[-1] += ["" if ratio is None else f"{ratio:.2f}" for ratio in ratios]
    return {"functions": table(heads, body)}


def steps(files):
    """Whole training steps, as bench/torch_training.py times them: PyTorch's time over that of each
    way, and what each takes of memory."""
    rows, counts = in_rows(files, lambda line: (line["model"], line["by"]))
    heads = ["model", "computed by"]
    for threads in counts:
        heads += [f"{counted(threads)}: ms", "torch / this", "torch compiled / this"]
    body = []
    for (model, by), row in rows.items():
        body.append([model, by])
        for threads in counts:
            ours = row[threads]["median"]
            body[-1] += [f"{ours * 1e3:.0f}"]
            for peer in ("torch", "torch compiled"):
                theirs = rows.get((model, peer), {}).get(threads)
                body[-1] += [f"{theirs['median'] / ours:.2f}" if theirs else ""]
        if None in row:
            body[-1] += [f"{row[None]['peak'] / 1e9:.2f}"]
    if any(None in row for row in rows.values()):
        heads += ["peak memory, GB"]
    return {"steps": table(heads, body)}


def origin(files):
    """Where, on what and by which command a file was measured."""
    (file,) = files
    head = objects(file)[0]
    versions = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    commit = head["commit"][:7] + (" and more" if head["uncommitted_changes"] else "")
    measured = [f"{head['device']}, {head['cpus']} processors", versions, commit]
    heads = ["device", "versions", "commit", "command"]
    return {"how": table(heads, [[*measured, f"`{head['command']}`"]], numbers=False)}


def variants(operators):
    """Variants and knobs by device, in their order, as `isobit list OP` tells them."""
    listed = subprocess.run([LAB, "list", *operators, "--json"], check=True, capture_output=True)
    rows = defaultdict(list)
    for operation in map(json.loads, listed.stdout.splitlines()):
        for variant in operation["variants"]:
            knobs = [
                f"`{knob['name']}` = {', '.join(map(str, knob['values']))} ({knob['meaning']})"
                for knob in variant["knobs"]
            ]
            row = [operation["pass"], f"`{variant['name']}`", "<br>".join(knobs)]
            rows[variant["device"]].append(row)
    heads = ["pass", "variant", "knobs, their values and meaning"]
    return {device: table(heads, found, numbers=False) for device, found in rows.items()}


TABLES = {
    "accuracy": accuracy,
    "beside": beside,
    "origin": origin,
    "speed": speed,
    "steps": steps,
    "variants": variants,
}
MARK = re.compile(r"<!-- (\w+) (\S+): (.*) -->")


def refreshed(page):
    """The text of a page with its tables made anew, each of which has `<!-- KIND SOURCE: TITLE -->`
    above it: one of TABLES, a file or an operator, and one of the tables that it then gives."""
    made, fresh, skipping = {}, [], False
    for text in page.read_text().splitlines():
        mark = MARK.fullmatch(text)
        kind, source, title = mark.groups() if mark else (None, None, None)
        if kind in TABLES:
            if (kind, source) not in made:
                given = source if kind == "variants" else ROOT / source
                made[kind, source] = TABLES[kind]([given])
            fresh += [text, *made[kind, source][title]]
        elif not (skipping and text.startswith("|")):
            fresh.append(text)
        skipping = kind in TABLES or (skipping and text.startswith("|"))
    return "\n".join(fresh) + "\n"


def main(arguments):
    if len(arguments) == 2 and arguments[0] == "refresh":
        page = Path(arguments[1])
        page.write_text(refreshed(page))
        return
    if len(arguments) < 2 or arguments[0] not in TABLES:
        sys.exit(f"usage: tools/tables.py {'|'.join(TABLES)} FILE_OR_OP... | refresh PAGE")
    for title, rows in TABLES[arguments[0]](arguments[1:]).items():
        print("", title, "", *rows, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
