# SPDX-License-Identifier: Apache-2.0
"""What tools/wheel_audit.py finds in a binary that asks for too much."""

import subprocess

import wheel_audit


def library(folder, name, source, *flags):
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", folder / name, *flags]
    subprocess.run(command, input=source, text=True, check=True)
    return folder / name


def test_a_binary_that_needs_too_much_is_found(tmp_path):
    library(tmp_path, "libother.so", "int other(void) { return 1; }", "-Wl,-soname,libother.so")
    source = (
        "int other(void); void PyErr_Clear(void); int f(void) { PyErr_Clear(); return other(); }"
    )
    greedy = library(tmp_path, "greedy.so", source, f"-L{tmp_path}", "-lother")
    found = wheel_audit.demands(greedy, {"greedy.so"})
    assert found == ["needs libother.so", "needs PyErr_Clear"]
    assert "does not look beside itself for what it needs" in wheel_audit.demands(
        greedy, {"greedy.so", "libother.so"}
    )


def test_a_newer_library_of_the_system_is_found(tmp_path, monkeypatch):
    binary = library(tmp_path, "a.so", '#include <stdio.h>\nint f(void) { return puts(""); }')
    assert wheel_audit.demands(binary, set()) == []
    monkeypatch.setitem(wheel_audit.FLOOR, "GLIBC", (2, 0))
    assert any(each.startswith("needs GLIBC_2.") for each in wheel_audit.demands(binary, set()))


def test_an_sdist_without_sources_or_with_what_was_built_is_found(tmp_path):
    (tmp_path / "isobit-1" / "build").mkdir(parents=True)
    (tmp_path / "isobit-1" / "build" / "isobit").touch()
    subprocess.run(["tar", "czf", tmp_path / "a.tar.gz", "-C", tmp_path, "isobit-1"], check=True)
    found = wheel_audit.sdist_problems(tmp_path / "a.tar.gz")
    assert {"lacks CMakeLists.txt", "holds build/isobit"} <= set(found)
