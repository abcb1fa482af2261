# SPDX-License-Identifier: Apache-2.0
"""The site of the documentation, which tools/docs builds out of the repository's own Markdown.

The source folder is the repository, not docs/: so a link is the same here and where the files are
read as they lie. What that needs beside Sphinx and MyST is in docs/extensions/.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "python"), str(ROOT / "tools")]

project = "Isobit"
version = (ROOT / "VERSION").read_text().strip()
copyright = "the authors of Isobit"
root_doc = "docs/index"
include_patterns = [
    "CONTRIBUTING.md",
    "docs/**.md",
    "examples/README.md",
    "src/isobit/norm_linear/README.md",
    "src/isobit/norms/README.md",
    "src/isobit/ops/*/README.md",
    "tests/mutants/LOG.md",
]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "extensions.formulas",
    "extensions.links",
    "extensions.marks",
]

myst_enable_extensions = ["dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4  # what GitHub gives headings
autodoc_member_order = "bysource"
autodoc_typehints = "none"

html_theme = "furo"
html_title = f"Isobit {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"
