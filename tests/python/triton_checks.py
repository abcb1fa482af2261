# SPDX-License-Identifier: Apache-2.0
"""What test_triton.py finds in compiled kernels: arithmetic as it is written, in registers."""

import re
import subprocess
from pathlib import Path

import kernels_hip
import triton
from triton.backends.compiler import GPUTarget
from untraced import untraced

SM_90 = GPUTarget("cuda", 90, 32)
GFX942 = GPUTarget("hip", "gfx942", 64)
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"


def compiled(launch, target):
    with untraced():
        return launch.compiled(target)


def check_for_nvidia(launch, tmp_path):
    made = compiled(launch, SM_90)
    # An operation that names its rounding is never contracted by ptxas.
    assert not re.search(r"\b(add|sub|mul)\.f(32|64)|approx|ftz|div\.full|ex2", made.asm["ptx"])
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(made.asm["cubin"])
    usage = subprocess.run([CUOBJDUMP, "-res-usage", cubin], capture_output=True, text=True)
    assert re.search(r"STACK:0 .*LOCAL:0 ", usage.stdout), usage.stdout
    return made.asm["ptx"]


def check_for_amd(launch):
    made = compiled(launch, GFX942).asm
    # What would let LLVM round otherwise, or leave out what is special.
    assert not re.search(
        r"fmuladd|= f\w+ (fast|reassoc|nnan|ninf|nsz|arcp|contract|afn)", made["llir"]
    )
    code = made["amdgcn"]
    assert kernels_hip.approximate(code) == {}
    assert ".amdhsa_float_denorm_mode_32 3" in code and ".vgpr_spill_count: 0" in code
    return code
