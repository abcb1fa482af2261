# SPDX-License-Identifier: Apache-2.0
"""What ptxas might do to a kernel whose PTX is right, planted into the machine code: the lab must
find each of these defects on its executor."""

import os
import subprocess

import kernels
import machine_code
import pytest
from test_ptx import RELEASE
from test_ptx_defects import ROOT, RUNTIME

CODE = kernels.OUT / "machine_code.o"
SOURCE = ROOT / "src" / "isobit" / "ops" / "rmsnorm" / "cuda_forward.cu"
WORDS = "rmsnorm --pass fwd --rows 5 --cols 3000"

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not (kernels.find_nvcc() and machine_code.find_tool() and CODE.exists()),
        reason="needs nvcc, cuobjdump, and tools/kernels.py",
    ),
]

# defect: what is replaced in the machine code by what, one behind the other
DEFECTS = {
    "sums in another order": (
        *("0x8, 0x1f", "other, 0x1f"),
        *("0x4, 0x1f", "0x8, 0x1f"),
        *("other, 0x1f", "0x4, 0x1f"),
    ),
    "a barrier that is lost": ("BAR.SYNC.DEFER_BLOCKING 0x0", "NOP"),
    "products that flush": ("FMUL ", "FMUL.FTZ "),
    "a half that is the other one": (".H1_H1", ".H0_H0"),
    "a wide store that is half as wide": ("STG.E.128 ", "STG.E.64 "),
    "a carry that is lost": (", P0, !PT", ", !PT, !PT"),
    "a rounding toward zero": ("FFMA R", "FFMA.RZ R"),
}


def library(folder, text):
    """libisobit_sass.so with other machine code for one source."""
    own = kernels.object_of(SOURCE, kernels.EVERY_DAY)
    objects = [kernels.object_of(source, kernels.EVERY_DAY) for source in kernels.sources()]
    planted = folder / "planted.sass"
    planted.write_text(text)
    texts = [planted if each == own else each.with_suffix(".sass") for each in objects]
    code = kernels.machine_object(texts, folder / "code.o")
    made = folder / "libisobit_sass.so"
    archives = [RELEASE / "libisobit_executor.a", RELEASE / "libisobit_all.a"]
    command = [kernels.find_nvcc(), "-shared", "-cudart", "none", "-o", made]
    command += [*objects, RUNTIME, code, *archives]
    command += ["-Xlinker", "--exclude-libs,ALL,--no-undefined,--gc-sections"]
    subprocess.run(list(map(str, command)), check=True)
    return made


def compared(made, words=WORDS):
    settings = {"ISOBIT_SASS_LIBRARY": str(made), "ISOBIT_EXECUTOR": "instructions=20000000"}
    call = [RELEASE / "isobit", "parity", *words.split(), "--device", "cpu,sass"]
    return subprocess.run(call, capture_output=True, text=True, env=os.environ | settings)


def own_text():
    return kernels.object_of(SOURCE, kernels.EVERY_DAY).with_suffix(".sass").read_text()


@pytest.mark.parametrize("defect", DEFECTS)
def test_each_of_these_defects_would_be_found(defect, tmp_path):
    text = own_text()
    for before, after in zip(DEFECTS[defect][::2], DEFECTS[defect][1::2], strict=True):
        assert before in text
        text = text.replace(before, after)
    made = library(tmp_path, text)
    inputs = ("--dtype f32", "--dtype f16", "--dtype f32 --input denormal")
    done = [compared(made, f"{WORDS} {words}") for words in inputs]
    said = "".join(each.stdout + each.stderr for each in done)
    assert any(each.returncode != 0 for each in done), said
    assert "does not know" not in said  # found by what it does


def test_without_a_defect_nothing_is_found(tmp_path):
    done = compared(library(tmp_path, own_text()))
    assert done.returncode == 0, done.stdout + done.stderr
