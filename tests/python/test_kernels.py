# SPDX-License-Identifier: Apache-2.0
"""What tools/kernels.py reads in ptxas's words and in machine code; what it does without nvcc."""

import kernels
import pytest

LOG = """
ptxas info    : Compiling entry function '_Z3onev' for 'sm_90a'
ptxas info    : Function properties for _Z3onev
    64 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 512 bytes smem
ptxas info    : Compiling entry function '_Z3twov' for 'sm_90a'
ptxas info    : Function properties for _Z3twov
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers
ptxas info    : Function properties for a function that the second calls
    16 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
"""


def test_kernels_are_read_with_registers_shared_memory_and_spills():
    assert kernels.parse(LOG) == [
        {"kernel": "_Z3onev", "registers": 40, "shared": 512, "spilled": 8},
        {"kernel": "_Z3twov", "registers": 24, "shared": 0, "spilled": 4},
    ]


def test_names_are_shortened_to_what_differs():
    name = "_ZN6isobit4simt6detail5enterINS_11elementwise12_GLOBAL__N_15NaiveIfEEEEvT_"
    assert kernels.readable([name]) == ["elementwise::Naive<float> "]


def test_another_gpu_is_chosen_by_the_commit():
    assert len(kernels.chosen(kernels.OTHERS)) == 1
    assert set(kernels.chosen(kernels.OTHERS)) <= set(kernels.OTHERS)


def test_what_takes_longest_is_compiled_first():
    files = kernels.sources()
    first = kernels.longest_first(files)[: len(kernels.LONGEST)]
    assert ["/".join(file.parts[-2:]) for file in first] == list(kernels.LONGEST)
    assert sorted(kernels.longest_first(files)) == files


def test_without_nvcc_a_user_is_told_and_ci_fails(monkeypatch, capsys):
    monkeypatch.setattr(kernels, "find_nvcc", lambda: None)
    monkeypatch.setattr("sys.argv", ["kernels.py"])
    monkeypatch.delenv("CI", raising=False)
    assert kernels.main() == kernels.SKIPPED
    assert "nvcc is not installed" in capsys.readouterr().out
    monkeypatch.setenv("CI", "true")
    assert kernels.main() == 1


def test_machine_code_is_written_again_when_it_is_another_and_not_when_it_is_newer(
    monkeypatch, tmp_path
):
    texts = iter(["first", "second", "third"])
    monkeypatch.setattr(kernels.machine_code, "text_of", lambda tool, file: next(texts))
    file = tmp_path / "kernel.sm_90a.o"

    def text_after(content):
        file.write_bytes(content)
        kernels.write_machine_text("a tool", file)
        return kernels.text_of(file).read_text()

    assert text_after(b"one") == "first"
    assert text_after(b"one") == "first"
    assert text_after(b"two") == "second"


def test_kernel_that_moves_memory_otherwise_than_it_claims_is_found(monkeypatch):
    elementwise = kernels.ROOT / "src" / "isobit" / "ops" / "elementwise" / "cuda.cu"
    monkeypatch.setattr(kernels, "sources", lambda: [elementwise])
    monkeypatch.setattr(kernels, "tested_only", list)
    # As object_of() names what main() compiles for one architecture.
    if not kernels.text_of(kernels.object_of(elementwise, ["90a"])).exists():
        pytest.skip("nothing was compiled here, or nobody can look")
    assert kernels.unfounded("90a") == []
    monkeypatch.setattr(kernels, "CLAIMS", ((r"elementwise::Vec16<float", (r"UBLKCP\b",)),))
    assert kernels.unfounded("90a") == [r"elementwise::Vec16<float> : no UBLKCP\b"]
