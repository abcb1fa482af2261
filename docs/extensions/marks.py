# SPDX-License-Identifier: Apache-2.0
"""What the site has and the files do not show: comments in Markdown that become more here.

- `<!-- contents -->` makes the lists of links of a page part of the site's table of contents.
- `<!-- plot FILE: TITLE; N threads -->` draws what the table TITLE of tools/tables.py holds.
- `<!-- reference MODULE -->` documents all that a Python module exports, by its docstrings.
"""

import importlib
import re
from pathlib import Path

import tables

from isobit.lab import plots

SECTION = re.compile(r"^## (.*)\n((?:(?!^## ).*\n)+)", re.M)
PAGE = re.compile(r"^- \[[^]]*\]\(([^):]+)\.md\)", re.M)
PLOT = re.compile(r"^<!-- plot (\S+): (.*); (\d+) threads? -->$", re.M)
REFERENCE = re.compile(r"^<!-- reference (\S+) -->$", re.M)
DRAWN = "build/plots"


def contents(text):
    """A hidden tree for each section with a list of pages."""
    trees = [
        "\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *pages, "```"])
        for title, section in SECTION.findall(text)
        if (pages := PAGE.findall(section))
    ]
    return text + "\n" + "\n\n".join(trees) + "\n"


def measured(file, title, threads):
    lines = [
        line
        for line in tables.lines([tables.ROOT / file])
        if tables.speed_title(line) == title and line["threads"] == int(threads)
    ]
    if not lines:
        raise ValueError(f"{file} has nothing of '{title}' on {threads} threads")
    return lines


def plot(root, file, title, threads):
    """The fraction of a copy, or the speed over size, and the peers beside it; light and dark."""
    lines = measured(file, title, threads)
    heading = f"{lines[0]['op']} {title}, {threads} thread{'s' * (threads != '1')}"
    folder = root / DRAWN
    folder.mkdir(parents=True, exist_ok=True)
    for picture in plots.speed(folder, {heading: lines}):
        name = f"/{DRAWN}/{picture.stem}"
        about = f"{heading}: plot of the table's figures"
        for shown, suffix in (("only-light", ""), ("only-dark", "-dark")):
            yield f"```{{image}} {name}{suffix}.png\n:alt: {about}\n:class: {shown}\n```"


def drawn(root, docname, mark):
    from sphinx.util import logging  # here, as tests read this file where there is no Sphinx

    try:
        return "\n\n".join(plot(root, *mark.groups()))
    except ValueError as error:
        logging.getLogger(__name__).warning("%s", error, location=docname)
        return ""


def exported(module):
    """What a module lists in __all__, or else the functions and classes that it defines."""
    if hasattr(module, "__all__"):
        return module.__all__
    own = [
        n
        for n, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__
    ]
    return [name for name in own if not name.startswith("_")]


def reference(name):
    """A directive for each thing that a module exports; an object is documented as its class."""
    module = importlib.import_module(name)
    yield f"```{{eval-rst}}\n.. module:: {name}"
    for entry in exported(module):
        value = getattr(module, entry)
        if isinstance(value, type):
            yield f".. autoclass:: {name}.{entry}"
        elif callable(value):
            yield f".. autofunction:: {name}.{entry}"
        else:
            yield f".. autoclass:: {type(value).__module__}.{type(value).__qualname__}()"
    yield "```"


def source_read(app, docname, content):
    text = content[0]
    if "<!-- contents -->" in text:
        text = contents(text)
    root = Path(app.srcdir)
    for mark in PLOT.finditer(text):
        app.env.note_dependency(root / mark[1])
    text = PLOT.sub(lambda mark: drawn(root, docname, mark), text)
    text = REFERENCE.sub(lambda mark: "\n\n".join(reference(mark[1])), text)
    content[0] = text


def setup(app):
    app.connect("source-read", source_read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
