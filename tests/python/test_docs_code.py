# SPDX-License-Identifier: Apache-2.0
"""The Python, C and C++ of the pages runs. The blocks of a page follow each other in one program.

What cannot run here has `<!-- not run: the reason -->` on the line above.
"""

import importlib.util
import re
import shutil
import subprocess

import pages
import pytest

COMPILED = {"cpp": ("example.cpp", "g++ "), "c": ("example.c", "cc ")}
MOST_NOT_RUN = 4
PRINTED = re.compile(r"(?:printf|puts)\(.*;  // (.*)$", re.M)


def with_blocks(*languages):
    return [page for page in pages.pages() if pages.blocks(page, *languages)]


def compile_command(page, block):
    """The next one in the page that compiles such a file."""
    file, compiler = COMPILED[block.language]
    commands = (
        other.text.strip()
        for other in pages.blocks(page, "", "sh")
        if other.line > block.line and other.text.startswith(compiler)
    )
    command = next(commands, None)
    assert command and file in command, f"{page}:{block.line}: no command compiles {file}"
    return command


@pytest.mark.parametrize("page", with_blocks("python"))
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    blocks = [block for block in pages.blocks(page, "python") if block.reason is None]
    if any("torch" in block.text for block in blocks) and not importlib.util.find_spec("torch"):
        pytest.skip("PyTorch is not installed")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": page}
    for block in blocks:
        # Padded, so that a failure names the line of the page.
        code = "\n" * (block.line - 1) + block.text
        exec(compile(code, str(pages.ROOT / page), "exec"), namespace)


@pytest.mark.parametrize(
    ("page", "number"),
    [
        (page, i)
        for page in with_blocks(*COMPILED)
        for i in range(len(pages.blocks(page, *COMPILED)))
    ],
)
def test_the_c_and_cpp_of_a_page_prints_what_it_says(page, number, tmp_path):
    block = pages.blocks(page, *COMPILED)[number]
    if block.reason:
        pytest.skip(block.reason)
    command = compile_command(page, block)
    if not shutil.which(command.split()[0]):
        pytest.skip(f"there is no {command.split()[0]}")
    for name in ("src", "include", "build"):
        (tmp_path / name).symlink_to(pages.ROOT / name)
    (tmp_path / COMPILED[block.language][0]).write_text(block.text)
    subprocess.run(["sh", "-ec", command], cwd=tmp_path, check=True)
    run = subprocess.run(["./a.out"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert run.stdout
    if said := PRINTED.findall(block.text):
        assert run.stdout.splitlines() == said


def test_few_blocks_are_not_run():
    """Each block that a reader may paste counts; a page full of exceptions is not tested."""
    left_out = [
        f"{page}:{block.line}: {block.reason}"
        for page in pages.pages()
        for block in pages.blocks(page)
        if block.reason
    ]
    assert len(left_out) <= MOST_NOT_RUN, left_out


def test_a_mark_that_stands_elsewhere_than_above_a_block_is_found():
    for page in pages.pages():
        marked = sum(block.reason is not None for block in pages.blocks(page))
        assert len(re.findall(r"^<!-- not run", pages.text(page), re.M)) == marked, page
