# SPDX-License-Identifier: Apache-2.0
"""The Triton versions give the library's bits in the interpreter, and compile to its arithmetic.

A process of its own interprets: this file as a program (triton_interpreted.py).
"""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))  # where it is a script, too
import kernels_hip
import triton_calls as others
import triton_convolutions as convolutions

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
triton = pytest.importorskip("triton", reason="Triton is not installed")

import triton_norm_calls as norms  # noqa: E402
from triton_checks import CUOBJDUMP, SM_90, check_for_amd, check_for_nvidia  # noqa: E402
from triton_interpreted import Call, interpret, named, require_the_librarys_bits  # noqa: E402
from triton_norm_calls import draw, unset  # noqa: E402

from isobit.ops.activation import triton as activation  # noqa: E402
from isobit.ops.elementwise import triton as elementwise  # noqa: E402
from isobit.ops.rope import triton as rope  # noqa: E402
from isobit.ops.scan import triton as scan  # noqa: E402
from isobit.ops.transpose import triton as transpose  # noqa: E402
from isobit.ops.triton_variants import DTYPES  # noqa: E402

REALS = ("f32", "f16", "bf16", "f64")
ADDED = (*REALS, "i32")
TRANSPOSED = [
    ("i32", "i32"),
    ("bool", "bool"),
    ("u8", "u8"),
    *((x, y) for x in REALS for y in REALS),
]


def operands(kind, dtype):
    """Elements of all kinds, and more of them than one program takes of most variants."""
    ends = torch.tensor([0.0, -0.0, 1e-45, 6e-8, 1.0, 3e38, float("inf"), float("nan")])
    if dtype == "i32":
        ends = torch.tensor([2**31 - 1, -(2**31), -1, 0, 1, 2, 3, 4])
    drawn = draw(2, 1007, dtype=dtype) * 100
    x = torch.cat([ends.repeat(8).to(drawn.dtype), drawn[0]]).reshape(1, -1)
    residual = torch.cat([ends.repeat_interleave(8).to(drawn.dtype), drawn[1]]).reshape(1, -1)
    arrays = {"x": x, "y": torch.full_like(x, 99)}
    return arrays | ({"residual": residual} if kind == "add" else {})


def transpose_arrays(x_dtype, y_dtype, *shape):
    """Elements of all kinds, and among doubles what must not be rounded twice."""
    generator = torch.Generator().manual_seed(len(shape))
    count = math.prod(shape)
    wide = torch.randn(count, generator=generator, dtype=torch.float64)
    kinds = [
        0.0,
        -0.0,
        1.0,
        3e38,
        65504.0,
        6e-8,
        1e-40,
        -1e-300,
        1e300,
        *map(float, ("nan", "-inf")),
    ]
    for digits in (8, 11, 24):  # in the middle between two numbers, and a bit beside it
        middle = 1 + 2.0**-digits
        kinds += [middle, middle - 2.0**-52, -(middle + 2.0**-52), middle * 2.0**-20]
    kinds = torch.tensor(kinds, dtype=torch.float64)[:count]
    wide[: len(kinds)] = kinds
    x = wide.to(DTYPES[x_dtype]).reshape(shape)
    y = torch.full((*shape[:-2], shape[-1], shape[-2]), 99, dtype=DTYPES[y_dtype])
    return {"x": x, "y": y}


# What the library must be told, and Triton takes for granted or tells by the arrays.
OF_LIBRARY = {"scan": {"kind": "sum"}} | {op: {"eps": 1e-5} for op in norms.NORMS}


def call(kind, variant, arrays, plan=None, **options):
    if kind in ("add", "increment"):
        return Call("elementwise", "fwd", variant, arrays, of_library={"kind": kind})
    op, _, way = kind.partition(" ")
    return Call(op, way or "fwd", variant, arrays, options, plan, OF_LIBRARY.get(op))


def calls():
    """All that is interpreted, by the names of the tests that look at it."""
    for kind in ("add", "increment"):
        for variant in elementwise.VARIANTS:
            for dtype in ADDED:
                yield f"{kind} {variant} {dtype}", call(kind, variant, operands(kind, dtype))
    tiny = {"x": (draw(1, 100) * 2.0**-130).bfloat16(), "y": unset(1, 100, dtype="bf16")}
    yield "bf16 widens subnormal numbers", call("add", "naive", tiny | {"residual": tiny["x"]})
    for name, variant, way, arrays, function in others.activation_calls():
        yield f"activation {name}", call(f"activation {way}", variant, arrays, function=function)
    for variant in transpose.VARIANTS:
        for types in TRANSPOSED:
            for shape in ((5, 9), (2, 3, 70), (67, 3), (2, 2, 1, 33), (0, 4), (3, 0, 2)):
                arrays = transpose_arrays(*types, *shape)
                yield f"transpose {variant} {types} {shape}", call("transpose", variant, arrays)
    for name, op, kind, variant, *given, options in norms.norm_calls():
        yield name, call(f"{op} {kind}", variant, *given, **options)
    for name, direction, *given, options in others.rope_calls():
        turn = call(f"rope {direction}", "token_per_program", *given, **options)
        yield f"rope {name}", turn
    for variant in scan.VARIANTS:
        for name, arrays, options in others.scan_calls():
            yield f"scan {variant} {name}", call("scan", variant, arrays, **options)
    for name, arrays, options, plan in others.matmul_calls():
        yield f"matmul {name}", call("matmul", "register_tiled", arrays, plan, **options)
    for name, arrays, options, plan in others.gradient_calls():
        given = call("matmul bwd", "register_tiled", arrays, plan, **options)
        yield f"matmul bwd {name}", given
    yield "matmul, eleven runs", others.Runs()
    yield "matmul, three short runs", others.FewRuns()
    for name, op, variant, arrays, options, plan in convolutions.forward_calls():
        yield name, call(op, variant, arrays, plan, **options)
    for name, op, variant, arrays, options, plan in convolutions.backward_calls():
        yield name, call(f"{op} bwd", variant, arrays, plan, **options)
    for variant in convolutions.VARIANTS:
        yield f"convolution {variant}, eleven runs", convolutions.Runs(variant)


CALLS = dict(calls())
CALLS["matmul two runs"].full = True
BEYOND, OPTIONS = others.positions_without_a_row()
# What the library refuses, which a kernel cannot.
REFUSED = {"no row": call("rope fwd", "token_per_program", BEYOND, **OPTIONS)}
INTERPRETED_TOO = tuple(REFUSED)


@named(CALLS)
def test_interpreted_kernels_give_the_bits_of_the_library(name, interpreted):
    require_the_librarys_bits(CALLS[name], interpreted[name])


def test_what_rope_turns_by_a_position_without_a_row_becomes_nan(interpreted):
    found = interpreted["no row"]
    for x, y in (("q", "y_q"), ("k", "y_k")):
        turned = found[y][..., :10].view(torch.int16)
        assert (turned[:, 1:] == 0x7FC0).all()
        assert torch.equal(found[y][..., 10:].isnan(), found[x][..., 10:].isnan())
    with_rows = CALLS["rope fwd half bf16 (1, 4, 5, 2, 9, 8)"].arrays["y_q"]
    assert with_rows.eq(99).all()  # it is another process that fills them
    assert not found["y_q"][:, 0].isnan().all()
    with pytest.raises(ValueError, match=r"positions.0, 1. is -1"):
        REFUSED["no row"].canonical()


def test_rope_and_scan_decline_or_refuse_what_they_cannot():
    q, table = torch.empty(1, 2, 3, 8), torch.empty(4, 3)
    (turn,) = rope.VARIANTS.values()
    with pytest.raises(NotImplementedError, match="token_per_program: it needs cos and sin"):
        turn.run(q=q, y_q=q)
    with pytest.raises(ValueError, match="rope: cos has 3 columns; must have 4"):
        turn.run(q=q, y_q=q, cos=table, sin=table)
    for variant in scan.VARIANTS.values():
        with pytest.raises(ValueError, match="an exclusive scan overwrites"):
            variant.run(x=q, y=q, exclusive="yes")


def few_of(cases, few):
    """Cases that `make test` compiles; test-full compiles the rest, of which each takes seconds."""
    return [pytest.param(*case, marks=() if case in few else pytest.mark.full) for case in cases]


def each_once(variants, types, few):
    """All types of the first variant, and few of the others, which round by the same functions."""
    first, *rest = variants
    every = [(variant, kind) for variant in (first, *rest) for kind in types]
    return few_of(every, [case for case in every if case[0] is first or case[1] in few])


COMPILED = each_once(elementwise.VARIANTS.values(), ADDED, ("f32", "bf16"))
MOVED = [("u8", "u8"), ("bf16", "bf16"), ("f64", "f16"), ("f32", "bf16")]
COMPILED_TRANSPOSES = each_once(transpose.VARIANTS.values(), TRANSPOSED, MOVED)
SUMMED = [("f32", "f64"), ("bf16", "bf16"), ("i32", "i64")]
SCANS = [(variant, types) for variant in scan.VARIANTS.values() for types in others.SCANNED]
COMPILED_SCANS = few_of(SCANS, [case for case in SCANS if case[1] in SUMMED])
TURNED = [(style, dtype) for style in others.STYLES for dtype in REALS]
COMPILED_ROPE = few_of(TURNED, [("half", "f32"), ("half", "f64"), ("interleaved", "bf16")])

# A gate needs more registers.
ACTIVATED = [(name, True, "f32") for name in others.FUNCTIONS]
ACTIVATED += [("gelu", True, "f16"), ("gelu", True, "bf16"), ("gelu", False, "f32")]


def said(given):
    return "-".join(given) if isinstance(given, tuple) else getattr(given, "name", given)


def activation_launch(way, name, gated, dtype):
    x = torch.empty(40, 1008, dtype=DTYPES[dtype], device="meta")
    outputs = ["y"] if way == "fwd" else ["grad_y", "grad_x"] + ["grad_gate"] * gated
    arrays = dict.fromkeys(["x", *outputs, *(["gate"] * gated)], x)
    (launch,) = activation.VARIANTS["vec16"].launches(function=name, **arrays)
    return launch


@pytest.mark.parametrize(("name", "gated", "dtype"), ACTIVATED)
@pytest.mark.parametrize("way", ["fwd", "bwd"])
def test_compiled_activations_round_as_they_are_told_and_spill_nothing(
    way, name, gated, dtype, tmp_path
):
    launch = activation_launch(way, name, gated, dtype)
    assert "setp.nan" in check_for_nvidia(launch, tmp_path)
    check_for_amd(launch)


@pytest.mark.parametrize(("variant", "dtype"), COMPILED, ids=said)
def test_compiled_kernels_round_as_they_are_told_and_spill_nothing(variant, dtype, tmp_path):
    x = torch.empty(40, 1008, dtype=DTYPES[dtype], device="meta")
    (launch,) = variant.launches(x=x, residual=x, y=x)
    # A NaN of the GPU's own has other bits, which no interpreter shows.
    assert dtype == "i32" or "setp.nan" in check_for_nvidia(launch, tmp_path)
    assert kernels_hip.fused(check_for_amd(launch)) == []


@pytest.mark.parametrize(("variant", "types"), COMPILED_TRANSPOSES, ids=said)
def test_transposes_for_amd_round_once_and_spill_nothing(variant, types):
    x, y = (torch.empty(4, 1024, 1024, dtype=DTYPES[t], device="meta") for t in types)
    (launch,) = variant.launches(x=x, y=y)
    code = check_for_amd(launch)
    assert kernels_hip.fused(code) == [] and not re.search(r"\bv_\w*(add|sub)_f\d\d", code)


@pytest.mark.parametrize(("variant", "types"), COMPILED_TRANSPOSES, ids=said)
def test_compiled_transposes_move_vectors_round_once_and_spill_nothing(variant, types, tmp_path):
    x, y = (torch.empty(4, 1024, 1024, dtype=DTYPES[t], device="meta") for t in types)
    (launch,) = variant.launches(x=x, y=y)
    made = launch.compiled(SM_90)
    ptx = made.asm["ptx"]
    assert not re.search(r"\b(add|sub|mul|fma)\.\w*\.?f(32|64)|approx|ftz", ptx)
    # A NaN of the GPU's own has other bits; what keeps its type is never looked at.
    assert ("setp.nan" in ptx) == (types[0] != types[1])
    if variant.name == "tiled":
        assert re.search(r"ld\.global\.v\d", ptx) and re.search(r"st\.global\.v\d", ptx)
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(made.asm["cubin"])
    usage = subprocess.run([CUOBJDUMP, "-res-usage", cubin], capture_output=True, text=True)
    assert re.search(r"STACK:0 .*LOCAL:0 ", usage.stdout), usage.stdout


@pytest.mark.parametrize(("style", "dtype"), COMPILED_ROPE)
def test_compiled_rope_rounds_as_it_is_told_and_spills_nothing(style, dtype, tmp_path):
    real = "f64" if dtype == "f64" else "f32"
    q, k, table = (
        torch.empty(shape, dtype=DTYPES[kind], device="meta")
        for shape, kind in (((2, 9, 32, 128), dtype), ((2, 9, 8, 128), dtype), ((9, 64), real))
    )
    arrays = {"grad_y_q": q, "grad_y_k": k, "grad_q": q, "grad_k": k, "cos": table, "sin": table}
    (launch,) = rope.VARIANTS["token_per_program"].launches(**arrays, style=style)
    ptx = check_for_nvidia(launch, tmp_path)
    lane = launch.arguments["HEADS"] * 128 // (32 * launch.warps)  # elements, of q and of k
    assert ptx.count(f"fma.rn.f{real[1:]}") == 2 * lane
    assert ptx.count(f"mul.rn.f{real[1:]}") >= 2 * lane  # and those of the sines' signs
    assert "setp.nan" in ptx and re.search(r"ld\.global\.v\d", ptx)
    check_for_amd(launch)


@pytest.mark.parametrize(("variant", "types"), COMPILED_SCANS, ids=said)
def test_compiled_scans_round_as_they_are_told_and_spill_nothing(variant, types, tmp_path):
    x, y = (torch.empty(2, 5000, 1, dtype=DTYPES[t], device="meta") for t in types)
    init = torch.empty(2, 1, dtype=y.dtype, device="meta")
    options = {"exclusive": "yes", "reverse": "yes"}
    for launch in variant.launches(x=x, y=y, init=init, **options):
        ptx = check_for_nvidia(launch, tmp_path)
        assert "fma.rn" not in ptx
        check_for_amd(launch)
    assert ("setp.nan" in ptx) == y.dtype.is_floating_point  # the last of them writes y


if __name__ == "__main__":
    interpret(CALLS | REFUSED)
