# SPDX-License-Identifier: Apache-2.0
"""Links to sources and folders, which are no pages, lead to pages that show them.

So a link is written as a path, for readers of the repository, and works in the site without a
network. README.md has the site's first page in its place, a folder its README.md if that is a page.
What does not exist stays a warning.
"""

import posixpath
import subprocess
from pathlib import Path

from docutils import nodes
from pygments.lexers import get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx import addnodes
from sphinx.environment.collectors import EnvironmentCollector
from sphinx.util.osutil import relative_uri


class ShownPaths(EnvironmentCollector):
    """The paths that each page links to and that are no pages: {page: {path}}."""

    def clear_doc(self, app, env, docname):
        shown(env).pop(docname, None)

    def merge_other(self, app, env, docnames, other):
        shown(env).update({name: shown(other).get(name, set()) for name in docnames})

    def process_doc(self, app, doctree):
        """What links() has left where the page was read."""


def shown(env):
    if not hasattr(env, "isobit_shown_paths"):
        env.isobit_shown_paths = {}
    return env.isobit_shown_paths


def page_of(path):
    return f"files/{path}"


def links(app, doctree):
    """Comes before Sphinx would copy linked files into its downloads."""
    env, root = app.env, Path(app.srcdir)
    here = posixpath.dirname(env.docname)
    for node in [*doctree.findall(addnodes.download_reference), *doctree.findall(is_no_page(env))]:
        if node["refdomain"] == "doc":
            path = node["reftarget"] + ".md"
        else:
            path = posixpath.normpath(posixpath.join(here, node["reftarget"].partition("#")[0]))
        if path == "README.md":
            uri = app.builder.get_relative_uri(env.docname, app.config.root_doc)
        elif f"{path}/README" in env.found_docs:
            uri = app.builder.get_relative_uri(env.docname, f"{path}/README")
        elif (root / path).exists():
            shown(env).setdefault(env.docname, set()).add(path)
            uri = relative_uri(app.builder.get_target_uri(env.docname), page_of(path) + ".html")
        else:
            continue
        reference = nodes.reference("", "", internal=True, refuri=uri)
        reference.extend(node.children)
        node.replace_self(reference)


def is_no_page(env):
    """Of what MyST has found to be no file, or Markdown: folders, other pages, and mistakes."""

    def matches(node):
        if not isinstance(node, addnodes.pending_xref) or node.get("reftype") != "myst":
            return False
        if node["refdomain"] == "doc":
            return node["reftarget"] not in env.found_docs
        return node["refdomain"] is None and not node["reftarget"].startswith("#")

    return matches


def lexer(path):
    try:
        return get_lexer_for_filename(path.name).aliases[0]
    except ClassNotFound:
        return "text"


def tracked(root, folder):
    """Files of a folder that git knows or would take up."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z", "--", folder]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout
    return sorted(name for name in listed.split("\0") if name)


def pages(app):
    """(name, values, template) of a page for every path that is shown."""
    root = Path(app.srcdir)
    paths = sorted({path for linked in shown(app.env).values() for path in linked})
    for path in paths:
        if (root / path).is_dir():
            body = listing(app, path, tracked(root, path), paths)
        else:
            body = app.builder.highlighter.highlight_block(
                (root / path).read_text(), lexer(root / path), linenos="inline"
            )
        heading = f"<h1><code>{path}</code></h1>"
        yield page_of(path), {"title": path, "body": heading + body}, "page.html"


def listing(app, folder, files, paths):
    here = page_of(folder) + ".html"
    lines = []
    for file in files:
        document = file.removesuffix(".md")
        if document in app.env.found_docs:
            target = app.builder.get_target_uri(document)
        else:
            target = page_of(file) + ".html" if file in paths else None
        name = file.removeprefix(folder + "/")
        lines.append(f'<a href="{relative_uri(here, target)}">{name}</a>' if target else name)
    return "<ul>" + "".join(f"<li>{line}</li>" for line in lines) + "</ul>"


def setup(app):
    app.add_env_collector(ShownPaths)
    app.connect("doctree-read", links, priority=100)
    app.connect("html-collect-pages", pages)
    return {"env_version": 1, "parallel_read_safe": True, "parallel_write_safe": True}
