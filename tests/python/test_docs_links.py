# SPDX-License-Identifier: Apache-2.0
"""Links inside the repository lead somewhere, for readers of the files: no site and no network."""

import re
from functools import cache

import pages
import pytest

LINK = re.compile(r"\]\(([^()\s]+(?:\([^()]*\))?)(?:\s+\"[^\"]*\")?\)")
CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6} +(.*?) *$", re.M)
MARKUP = re.compile(r"\[([^]]*)\]\([^)]*\)|[`*]")


def links(page):
    return [link for link in LINK.findall(CODE.sub("", pages.prose(page))) if "://" not in link]


@cache
def anchors(page):
    """The names that GitHub, and MyST after it, give to headings."""
    names = []
    for heading in HEADING.findall(pages.prose(page)):
        plain = MARKUP.sub(lambda match: match[1] or "", heading).lower()
        name = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        names.append(f"{name}-{names.count(name)}" if name in names else name)
    return set(names)


def broken(page, link):
    path, _, anchor = link.partition("#")
    target = (pages.ROOT / page).parent / path if path else pages.ROOT / page
    if not target.exists():
        return f"{link}: no such file"
    if anchor and anchor not in anchors(str(target.resolve().relative_to(pages.ROOT))):
        return f"{link}: no such heading"
    return None


@pytest.mark.parametrize("page", pages.pages())
def test_links_of_a_page_lead_somewhere(page):
    assert [why for link in links(page) if (why := broken(page, link))] == []


def test_a_link_that_leads_nowhere_is_found():
    assert broken("docs/index.md", "numerics.md#the-yardstick") is None
    assert broken("docs/index.md", "numerics.md#the-yardstik").endswith("no such heading")
    assert broken("docs/index.md", "../docs/numeric.md").endswith("no such file")
    assert "#start" not in links("docs/index.md")
    assert len(links("docs/index.md")) > 20


@pytest.mark.parametrize("index", ["docs/index.md", "docs/decisions/README.md"])
def test_a_page_is_listed_where_its_readers_begin(index):
    folder = (pages.ROOT / index).parent
    beside = {path.name for path in folder.glob("*.md")} - {index.rpartition("/")[2]}
    assert beside - set(links(index)) == set()
