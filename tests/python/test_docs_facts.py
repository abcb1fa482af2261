# SPDX-License-Identifier: Apache-2.0
"""What pages say of operators and measurements is what the lab lists and what the files hold."""

import functools
import importlib.util
import json
import os
import re
import subprocess
import sys

import pages
import pytest
import tables
import triton_forked

sys.path.insert(0, str(pages.ROOT / "docs"))
from extensions import marks
from pictures import apart, losses, order

OPERATORS = (
    *("activation", "attention", "conv1d", "conv2d", "elementwise", "layernorm"),
    *("cross_entropy", "embedding", "layernorm_linear", "linear_cross_entropy", "matmul", "pool2d"),
    *("batch_norm", "group_norm", "rmsnorm"),
    *("rmsnorm_linear", "rope", "rope_tables", "scan", "softmax", "transpose"),
    *("sgd", "adam", "lion", "vector_norm"),
    "interpolate",
    "reduce",
    "dropout",
    "pointwise_loss",
    "random",
)
# Of the C++ and C interfaces: the lab's rows have one dimension.
NOT_IN_THE_LAB = {"hidden_dims"}


@pytest.fixture(scope="module", autouse=True)
def one_import_of_triton():
    """For all that the lab lists, which asks Triton's variants of a process each time."""
    with pytest.MonkeyPatch.context() as patch:
        if all(importlib.util.find_spec(name) for name in ("torch", "triton")):
            patch.setenv("ISOBIT_PYTHON", triton_forked.python())
        yield


def readme(operator):
    return f"src/isobit/ops/{operator}/README.md"


@functools.cache
def listed(operator):
    return [json.loads(line) for line in pages.lab("list", operator, "--json").stdout.splitlines()]


def tables_of(page, *heads):
    """The tables that no tool writes and whose heads begin so, as rows of cells."""
    found = []
    for table in re.findall(r"(?<! -->\n)(?<=\n)((?:\|.*\|\n)+)", pages.text(page)):
        rows = [
            [cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()
        ]
        if rows[0][: len(heads)] == list(heads):
            found.append(rows[2:])
    return found


def names(cells):
    return {name.strip("` ") for cell in cells for name in cell.split(",")}


@pytest.mark.parametrize(
    "page", [page for page in pages.pages() if tables.MARK.search(pages.text(page))]
)
def test_tables_are_those_of_their_sources(page):
    """`tools/tables.py refresh PAGE` makes them so."""
    assert tables.refreshed(pages.ROOT / page) == pages.text(page)


@pytest.mark.parametrize("operator", OPERATORS)
def test_arguments_of_a_page_are_those_of_the_operator(operator):
    for operation in listed(operator):
        head = {"fwd": "forward", "bwd": "backward"}[operation["pass"]]
        alone = ("elementwise", "rope_tables", "scan", "transpose")
        alone += ("sgd", "adam", "lion", "vector_norm")
        alone += ("dropout", "random")
        head = "argument" if operator in alone else head
        (rows,) = tables_of(readme(operator), head)
        known = {argument["name"] for argument in operation["arguments"]}
        if operation["pass"] == "fwd":
            known |= {option["name"] for option in operation["options"]}
        assert names(row[0] for row in rows) - NOT_IN_THE_LAB == known


@pytest.mark.parametrize(
    "operator",
    ["elementwise", "layernorm", "layernorm_linear", "matmul", "rope", "rope_tables", "transpose"],
)
def test_variants_of_a_page_are_those_of_the_operator(operator):
    said = {
        ("fwd", name)
        for rows in tables_of(readme(operator), "variant")
        for name in names(row[0] for row in rows)
    }
    for rows in tables_of(readme(operator), "pass", "variant"):
        for passes, name in (row[:2] for row in rows):
            said |= {
                (one, name.strip("`"))
                for one in (("fwd", "bwd") if passes == "both" else (passes,))
            }
    assert said == all_variants(operator)


def all_variants(operator):
    return {
        (operation["pass"], variant["name"])
        for operation in listed(operator)
        for variant in operation["variants"]
        if variant["device"] in ("cpu", "emu")
    }


def test_rmsnorm_has_the_variants_of_layernorm():
    assert all_variants("rmsnorm") == all_variants("layernorm")


def test_the_page_of_the_c_abi_lists_every_entry():
    headers = (
        pages.ROOT / "include/isobit" / name for name in ("isobit.h", "operators.h", "packed.h")
    )
    text = "".join(header.read_text() for header in headers)
    declared = set(re.findall(r"^ISOBIT_API .*?(isobit_\w+)\(", text, re.M))
    assert len(declared) > 9
    (rows,) = tables_of("docs/c-abi.md", "entry")
    assert names(row[0] for row in rows) == declared


def test_every_operator_has_a_page_with_derivation_and_plots_of_what_was_measured():
    found = {path.parent.name for path in (pages.ROOT / "src/isobit/ops").glob("*/reference.cpp")}
    shared = {"convolution": {"conv1d", "conv2d"}, "channel_norm": {"batch_norm", "group_norm"}}
    assert found.difference(shared).union(*shared.values()) == set(OPERATORS)
    for operator in OPERATORS:
        assert pages.blocks(readme(operator), "math")
        if list((pages.ROOT / "bench/results").glob(f"*/bench-{operator}.jsonl")):
            assert marks.PLOT.search(pages.text(readme(operator)))


@pytest.mark.parametrize(
    "page", [page for page in pages.pages() if marks.PLOT.search(pages.text(page))]
)
def test_plots_of_a_page_have_something_to_draw(page):
    for mark in marks.PLOT.findall(pages.text(page)):
        assert len(marks.measured(*mark)) > 3
    with pytest.raises(ValueError, match="has nothing of 'fwd, i8'"):
        marks.measured(mark[0], "fwd, i8", "1")


def test_the_picture_of_the_order_has_the_numbers_of_the_order():
    """docs/pictures/order.py draws it anew."""
    assert order.draw() == (pages.ROOT / "docs/pictures/order.svg").read_text()
    assert order.constants() == (512, 64, 16)


def test_the_picture_of_runs_that_part_is_of_what_was_measured():
    """`python -m pictures.apart` in docs/ draws it anew."""
    assert apart.draw() == (pages.ROOT / "docs/pictures/apart.svg").read_text()
    runs = apart.measured()
    for lines in runs.values():
        for (by, isa, threads), line in lines.items():
            again = (isa, threads) == (apart.WIDEST, 1)
            assert all(share > 0 for share in line["shares"]) == (by == "torch" and not again)
            assert any(line["shares"]) == (by == "torch" and not again)
    most = [
        max(each["largest_difference_of_losses"] for each in runs[run].values()) for run in runs
    ]
    assert "differ by\n{:.1e}, {:.1e} and {:.1e} at most".format(*most) in pages.text(
        "docs/torch.md"
    )
    gpt = runs["gpt"]
    assert gpt["torch", "avx2", 1]["shares"][19] > 0.5, "README.md says so"
    assert gpt["torch", "avx512", 2]["shares"][49] > 0.5, "README.md says so"


def test_the_picture_of_losses_is_of_what_was_measured():
    """`python -m pictures.losses` in docs/ draws it anew."""
    assert losses.draw() == (pages.ROOT / "docs/pictures/losses.svg").read_text()
    for name, (curves, between) in losses.measured().items():
        pairs = zip(curves["torch"], curves["isobit"], strict=True)
        most = max(abs(one - other) for one, other in pairs)
        assert most == pytest.approx(between["largest_difference"], rel=1e-3)
        figure = f"{between['largest_difference']:.1e}"
        assert figure in pages.text("docs/torch.md"), f"of {name}"


def test_without_sphinx_the_site_is_not_built_and_says_what_to_install():
    run = subprocess.run(
        [pages.ROOT / "tools" / "docs"],
        env=os.environ | {"PYTHON": "false"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 77
    assert "tools/requirements-docs.txt" in run.stderr
