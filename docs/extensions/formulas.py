# SPDX-License-Identifier: Apache-2.0
"""Formulas as MathML, which browsers draw by themselves: no script, no font, no network."""

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

ACCENT = re.compile(r"(\\hat\{\w\})_")


def mathml(node, **more):
    # docutils takes the index of an accented letter for a limit, and would set it below.
    return tex2mathml(ACCENT.sub(r"{{}\1}_", node.astext()), **more)


def inline(translator, node):
    translator.body.append(mathml(node))
    raise nodes.SkipNode


def block(translator, node):
    translator.body.append(f'<div class="math">{mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app):
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
