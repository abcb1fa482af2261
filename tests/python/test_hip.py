# SPDX-License-Identifier: Apache-2.0
"""Kernels for AMD's GPUs without one: what was compiled, and the library beside a test run-time."""

import collections
import os
import re
import subprocess
from pathlib import Path

import kernels
import kernels_hip
import pytest

ROOT = kernels.ROOT
LAB = ROOT / "build" / "release" / "isobit"
LIBRARY = kernels_hip.LIBRARY
CLANG, MISSING = kernels_hip.find_clang()
NOTES = """
amdhsa.kernels:
  - .agpr_count:     4
    .args:
      - .name:           no_kernel
        .size:           80
    .group_segment_fixed_size: 512
    .max_flat_workgroup_size: 256
    .name:           _Z3onev
    .private_segment_fixed_size: 16
    .sgpr_count:     72
    .sgpr_spill_count: 3
    .vgpr_count:     128
    .vgpr_spill_count: 2
  - .name:           _Z3twov
    .vgpr_count:     10
    .vgpr_spill_count: 0
amdhsa.target:   amdgcn-amd-amdhsa--gfx942
"""
PROBE = """
#include "isobit/simt/simt.h"
#define KERNEL(name, T, ...) \\
  extern "C" __global__ void name(T* y, T a, T b, T c) { *y = __VA_ARGS__; }
KERNEL(quotient_f32, float, a / b)
KERNEL(quotient_f64, double, a / b)
KERNEL(root_f32, float, std::sqrt(a))
KERNEL(root_f64, double, std::sqrt(a))
KERNEL(sum_f32, float, a * b + c)
KERNEL(sum_f64, double, a * b + c)
"""

compiles = pytest.mark.skipif(CLANG is None, reason=MISSING or "")
OF_ROWS = ("activation", "elementwise", "layernorm", "rmsnorm", "transpose")  # --rows, --cols
built = pytest.mark.skipif(
    CLANG is None or not LIBRARY.exists(),
    reason="libisobit_hip.so is not built: `make kernels-hip` does it",
)


def test_kernels_are_read_with_registers_and_spills():
    one, two = kernels_hip.parse(NOTES)
    assert one == {
        "kernel": "_Z3onev",
        "vgprs": 128,
        "agprs": 4,
        "sgprs": 72,
        "spilled": 2,
        "spilled_scalars": 3,
        "scratch": 16,
        "shared": 512,
        "threads": 256,
    }
    assert two == {"kernel": "_Z3twov", "vgprs": 10, "spilled": 0}
    assert kernels_hip.spills(one) and not kernels_hip.spills(two)
    assert not kernels_hip.spills(one | {"scratch": 0})  # it went to accumulators' registers
    assert not kernels_hip.spills(one | {"kernel": "norms::PipelinedForwardKernel<float>"})


def test_without_clang_a_user_is_told_and_ci_fails(monkeypatch, capsys):
    monkeypatch.setattr(kernels_hip, "find_clang", lambda: (None, "clang is not installed"))
    monkeypatch.setattr("sys.argv", ["kernels_hip.py"])
    monkeypatch.delenv("CI", raising=False)
    assert kernels_hip.main() == kernels_hip.SKIPPED
    assert "clang is not installed" in capsys.readouterr().out
    monkeypatch.setenv("CI", "true")
    assert kernels_hip.main() == 1


def assembly(tmp_path, arch, *flags):
    """{function: its instructions on floats, in order}, and all that was said."""
    probe, said = tmp_path / "probe.hip", tmp_path / "probe.s"
    probe.write_text(PROBE)
    command = kernels_hip.hip_command(CLANG, [arch], "--cuda-device-only", *flags)
    subprocess.run([*command, "-S", probe, "-o", said], check=True)
    text = said.read_text()
    functions = re.findall(r"; -- Begin function (\w+)\n(.*?)s_endpgm", text, flags=re.DOTALL)
    found = {
        name: re.findall(r"\bv_(?:dual_)?(\w+?_f\d\d)(?:_e\d\d)?\b", body)
        for name, body in functions
    }
    return found, text


@compiles
@pytest.mark.parametrize("arch", kernels_hip.ARCHS)
def test_divisions_and_roots_are_rounded_correctly_and_products_stay_products(arch, tmp_path):
    found, text = assembly(tmp_path, arch)
    for real in ("f32", "f64"):
        # AMD's sequence: scaled, refined by fma, and put right where it is special.
        quotient = collections.Counter(found[f"quotient_{real}"])
        assert quotient[f"div_scale_{real}"] == 2 and quotient[f"rcp_{real}"] == 1
        assert quotient[f"div_fmas_{real}"] == quotient[f"div_fixup_{real}"] == 1
        assert sorted(found[f"sum_{real}"]) == [f"add_{real}", f"mul_{real}"]
    # The instructions for roots are approximations; what follows finds the nearest.
    root = collections.Counter(found["root_f32"])
    assert root["sqrt_f32"] == 1 and root["fma_f32"] + root["fmac_f32"] == 2
    root = collections.Counter(found["root_f64"])
    assert root["rsq_f64"] == 1 and root["fma_f64"] + root["fmac_f64"] == 7
    for mode in (
        "round_mode_32 0",
        "round_mode_16_64 0",
        "denorm_mode_32 3",
        "denorm_mode_16_64 3",
    ):
        assert text.count(f".amdhsa_float_{mode}\n") == len(found) == 6


@compiles
def test_other_arithmetic_is_told_from_it(tmp_path):
    fast, text = assembly(tmp_path, "gfx942", "-fno-hip-fp32-correctly-rounded-divide-sqrt")
    assert "div_fixup_f32" not in fast["quotient_f32"] and "fma_f32" not in fast["root_f32"]
    assert kernels_hip.approximate(text)["reciprocals of f32"] == 1
    _, text = assembly(tmp_path, "gfx942")
    in_sequences = len(kernels_hip.fused(text))
    fused, text = assembly(tmp_path, "gfx942", "-ffp-contract=fast")
    assert "add_f32" not in fused["sum_f32"] and "add_f64" not in fused["sum_f64"]
    assert len(kernels_hip.fused(text)) == in_sequences + 2
    _, flushed = assembly(tmp_path, "gfx942", "-fgpu-flush-denormals-to-zero")
    assert ".amdhsa_float_denorm_mode_32 0\n" in flushed


def intermediate(tmp_path, source, *flags):
    """A source file's kernels as clang hands them to the optimiser."""
    target = tmp_path / "kernels.ll"
    command = kernels_hip.hip_command(CLANG, ["gfx942"], "--cuda-device-only", *flags)
    unoptimised = ["-Xclang", "-disable-llvm-passes", "-S", "-emit-llvm"]
    subprocess.run([*command, *unoptimised, source, "-o", target], check=True)
    return target.read_text()


MAY_CHANGE_BITS = re.compile(
    r"llvm\.fmuladd|= f(?:add|sub|mul|div|rem|neg) (?:fast|reassoc|nnan|ninf|nsz|arcp|contract|afn)"
    r"|!fpmath|_ocml_(?!ilogb_)"
)


@compiles
@pytest.mark.parametrize("name", ["layernorm/cuda_forward", "elementwise/cuda", "transpose/cuda"])
def test_the_optimiser_is_allowed_nothing_that_changes_bits(name, tmp_path):
    source = ROOT / "src" / "isobit" / "ops" / f"{name}.cu"
    text = intermediate(tmp_path, source)
    assert re.search(r"= f(add|ptrunc) ", text)
    assert MAY_CHANGE_BITS.search(text) is None


@compiles
@pytest.mark.parametrize(
    "flag",
    ["-ffp-contract=on", "-ffp-contract=fast", "-fno-hip-fp32-correctly-rounded-divide-sqrt"],
)
def test_an_optimiser_that_is_allowed_more_is_found(flag, tmp_path):
    probe = tmp_path / "probe.hip"
    probe.write_text(PROBE)
    assert MAY_CHANGE_BITS.search(intermediate(tmp_path, probe, flag)) is not None


@built
def test_library_shows_one_function_and_needs_nothing_of_amds():
    def nm(*flags):
        done = subprocess.run(["nm", "-D", *flags, LIBRARY], capture_output=True, text=True)
        return {line.split()[-1] for line in done.stdout.splitlines()}

    assert nm("--defined-only") == {"isobit_hip_library"}
    assert not [name for name in nm("--undefined-only") if "hip" in name]
    needs = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True).stdout
    assert "NEEDED" in needs and "amdhip" not in needs


@built
def test_no_kernel_that_can_run_spills():
    found = kernels_hip.kernels_of(CLANG, LIBRARY)
    names = kernels.readable([kernel["kernel"] for kernel in found])
    assert any("layernorm" in name for name in names)
    for kernel, name in zip(found, names, strict=True):
        if kernel["arch"] in kernels_hip.NO_SPILL:
            assert not kernels_hip.spills(kernel | {"kernel": name}), name


@built
def test_a_tile_of_attention_is_part_of_its_kernel_which_keeps_nothing_in_memory():
    """As a function that is called it had the parameters in scratch, and the caller's registers:
    more than 1024 bytes a thread. Where registers are too few, some are spilled."""
    found = kernels_hip.kernels_of(CLANG, LIBRARY)
    names = kernels.readable([kernel["kernel"] for kernel in found])
    tiles = [
        (kernel["arch"] in kernels_hip.NO_SPILL, kernel["scratch"])
        for kernel, name in zip(found, names, strict=True)
        if name.startswith("attention::Flash<")
    ]
    assert tiles
    for has_registers, scratch in tiles:
        assert scratch <= (0 if has_registers else 512)


@built
def test_machine_code_divides_exactly_and_fuses_nothing_where_the_source_does_not():
    for arch, code in kernels_hip.code_objects(LIBRARY):
        text = kernels_hip.told_by(CLANG, "llvm-objdump", ["-d", "--no-show-raw-insn"], code)
        assert kernels_hip.approximate(text) == {}, arch
        if "elementwise" in text or "transpose" in text:  # the others' sources have fma
            assert kernels_hip.fused(text) == [], arch


@pytest.fixture(scope="session")
def runtime(tmp_path_factory):
    path = tmp_path_factory.mktemp("hip") / "libamdhip64.so"
    source = Path(__file__).with_name("hip_runtime.c")
    command = [CLANG.replace("++", ""), "-D__HIP_PLATFORM_AMD__", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, "-shared", "-fPIC", source, "-o", path], check=True)
    return path


def isobit(*words, **settings):
    env = os.environ | {"ISOBIT_HIP_LIBRARY": str(LIBRARY), "ISOBIT_PYTHON": "true"}
    env |= {name: str(value) for name, value in settings.items()}
    return subprocess.run([LAB, *words], capture_output=True, text=True, env=env)


def doctor(**settings):
    said = isobit("doctor", **settings).stdout
    return next(line for line in said.splitlines() if " hip: " in line)


def test_a_missing_library_is_named(tmp_path):
    none = tmp_path / "none.so"
    line = doctor(ISOBIT_HIP_LIBRARY=none)
    assert line.startswith("missing") and str(none) in line and "make kernels-hip" in line
    done = isobit("verify", "elementwise", "--device", "hip", ISOBIT_HIP_LIBRARY=none)
    assert done.returncode != 0 and "device hip is unavailable" in done.stderr


@built
def test_without_a_run_time_the_library_loads_and_says_so(tmp_path):
    none = tmp_path / "libamdhip64.so"
    line = doctor(ISOBIT_HIP_RUNTIME=none)
    assert line.startswith("missing")
    assert f"{LIBRARY} was loaded, but HIP's run-time is missing: {none}" in line


@built
def test_a_run_time_that_lacks_a_function_is_refused(tmp_path):
    path = tmp_path / "libamdhip64.so"
    (tmp_path / "it.c").write_text("int hipGetDeviceCount(int* count) { return *count = 0; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, tmp_path / "it.c"], check=True)
    line = doctor(ISOBIT_HIP_RUNTIME=path)
    assert "HIP's run-time is too old: it has no hipDeviceGetAttribute" in line


@built
def test_without_a_gpu_the_library_says_so(runtime):
    assert "no AMD GPU found" in doctor(ISOBIT_HIP_RUNTIME=runtime, HIP_DEVICES=0)


@built
def test_a_gpu_that_the_kernels_were_not_compiled_for_is_refused(runtime):
    line = doctor(ISOBIT_HIP_RUNTIME=runtime, HIP_DEVICES=1, HIP_LOADS=209)
    assert line.startswith("missing") and "were not compiled for this GPU" in line


@built
def test_a_gpu_is_found_and_variants_decline_what_it_lacks(runtime):
    found = {"ISOBIT_HIP_RUNTIME": runtime, "HIP_DEVICES": 1}
    line = doctor(**found)
    assert line.startswith("ok       hip: a GPU of the test, 196608 MiB at 2662 GB/s, 2100 MHz, ")
    assert "gfx 9.4, 304 compute units" in line
    said = isobit(
        "list", "activation,layernorm,rmsnorm,elementwise,transpose", "--device", "hip", **found
    )
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    for name, reason in (
        ("cluster_per_row", "clusters need sm_90"),
        ("pipelined", "bulk copies need sm_90"),
        ("bulk", "bulk copies need sm_90"),
    ):
        at = [i for i, line in enumerate(lines) if re.match(rf"  hip +{name}$", line)]
        assert at, name
        for i in at:
            told = next(line for line in lines[i + 1 :] if not line.strip().startswith("--plan"))
            assert reason in told, name


@built
@pytest.mark.parametrize("op", [*OF_ROWS, "rope", "scan"])
def test_launches_stay_within_what_the_kernels_were_compiled_for(op, runtime, tmp_path):
    """Every variant's; nothing is computed, so what the lab says of bits is of no interest."""
    log = tmp_path / "launches"
    found = {"ISOBIT_HIP_RUNTIME": runtime, "HIP_DEVICES": 1, "HIP_LAUNCHES": log}
    shapes = ["--rows", "1,70", "--cols", "60,700,9000", "--dtype", "f32,bf16,f64"]
    small = shapes if op in OF_ROWS else ["--grid", "quick"]
    done = isobit("verify", op, "--device", "hip", "--variant", "all", *small, **found)
    assert "error of the test" not in done.stdout + done.stderr
    compiled = {k["kernel"]: k for k in kernels_hip.kernels_of(CLANG, LIBRARY)}
    launches = [line.split() for line in log.read_text().splitlines()]
    assert len({name for name, *_ in launches}) > 5
    for name, *numbers in launches:
        blocks, threads, shared = map(int, numbers)
        assert threads <= compiled[name]["threads"], name
        assert shared + compiled[name]["shared"] <= 64 << 10, name
        assert blocks * threads < 1 << 32, name
        assert not kernels_hip.NEVER_RUN.search(kernels.readable([name])[0]), name
