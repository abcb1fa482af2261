# SPDX-License-Identifier: Apache-2.0
"""The Triton versions give the library's bits in the interpreter, and compile to its arithmetic.

What is to be interpreted is collected first, and done in one process of its own: Triton chooses
between interpreter and compiler as it is imported. That process runs this file as a program.
"""

import ctypes
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
triton = pytest.importorskip("triton", reason="Triton is not installed")

from triton.backends.compiler import GPUTarget  # noqa: E402

from isobit import c_abi  # noqa: E402
from isobit.ops.elementwise import triton as elementwise  # noqa: E402
from isobit.ops.layernorm import triton as layernorm  # noqa: E402
from isobit.triton_variants import DTYPES, Case  # noqa: E402

SM_90 = GPUTarget("cuda", 90, 32)
CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
FORWARD = [name for name, variant in layernorm.VARIANTS.items() if variant.kinds == ("fwd",)]
BACKWARD = [name for name, variant in layernorm.VARIANTS.items() if variant.kinds == ("bwd",)]
ENTRIES = {"fwd": "layernorm_forward", "bwd": "layernorm_backward"}
ENTRIES |= {"add": "elementwise_add", "increment": "elementwise_increment"}
SHAPES = ((0, 7), (3, 0), (3, 1), (7, 64), (4, 513), (33, 100), (2, 1000))
TYPES = (("f16", "f16"), ("bf16", "bf16"), ("bf16", "f32"), ("f32", None))


def draw(*shape, dtype="f32", seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DTYPES[dtype])


def unset(*shape, dtype="f32"):
    return torch.full(shape, 99, dtype=DTYPES[dtype])


def forward_arrays(x, weight_dtype=None):
    rows, cols = x.shape
    arrays = {"x": x, "y": torch.full_like(x, 99), "mean": unset(rows), "rstd": unset(rows)}
    if weight_dtype is not None:
        arrays["weight"] = draw(cols, dtype=weight_dtype, seed=2)
        arrays["bias"] = draw(cols, dtype=weight_dtype, seed=3)
    return arrays


def backward_arrays(x, weight_dtype=None):
    cols = x.shape[1]
    gradients = {"dtype": Case.of(x).dtype if weight_dtype is None else weight_dtype}
    grad_y = draw(*x.shape, seed=1).to(x.dtype)
    grad_y[6::4] = -0.0  # a constant row's, where there are rows of every kind
    arrays = {"x": x, "grad_y": grad_y, "grad_x": torch.full_like(x, 99)}
    arrays |= {name: unset(cols, **gradients) for name in ("grad_weight", "grad_bias")}
    if weight_dtype is not None:
        arrays["weight"] = draw(cols, dtype=weight_dtype, seed=2)
    return arrays


ARRAYS = {"fwd": forward_arrays, "bwd": backward_arrays}


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


def rows_of_every_kind(cols):
    """Rows that are summed in the usual way, and those of the long way of docs/numerics.md."""
    z = draw(12, cols).double()
    scales = z[0] + 1e6, z[1] * 1e18, z[2] * 1e20, z[3] * 1e-20, z[4] * 1e-40, z[5] * 7e37
    pi, huge, tiny, zeros = (torch.full((cols,), v).double() for v in (3.14159, 3e30, 1e-44, 0.0))
    zeros[1::2] = -0.0
    # One number in float near their mean is off by as much as they are.
    next_to_pi, next_to_huge = pi.clone(), huge.clone()
    next_to_pi[::3] += 2.0**-22
    next_to_huge[::3] *= 1 + 2.0**-23
    nearly_tiny, outlier, cancelling = tiny.clone(), z[6].clone(), zeros.clone()
    nearly_tiny[-1] = 0
    outlier[cols // 2] = 1e20
    cancelling[:3] = torch.tensor([2.0**-40, -(2.0**-40), 2.0**-147])
    constant = pi, huge, tiny, zeros, -zeros
    almost = next_to_pi, next_to_huge, nearly_tiny, z[7] * 1e-38 + 1e-36, outlier, cancelling
    broken = [row.clone() for row in (z[8], z[9], pi, pi)]
    for row, number in zip(broken, ("nan", "-inf", "nan", "inf"), strict=True):
        row[cols // 3] = float(number)
    return torch.stack([*scales, *constant, *almost, *broken, z[10]]).float()


class Call:
    """One call of a variant, which the library repeats."""

    def __init__(self, kind, variant, arrays, plan=None, **options):
        self.kind, self.variant, self.plan, self.options = kind, variant, plan or {}, options
        self.arrays = arrays

    def run(self):
        op = "layernorm" if self.kind in ("fwd", "bwd") else "elementwise"
        module = importlib.import_module(f"isobit.ops.{op}.triton")
        module.VARIANTS[self.variant].run(self.plan, **self.arrays, **self.options)

    def canonical(self):
        """The same arrays as the library leaves them."""
        arrays = {name: array.clone() for name, array in self.arrays.items()}
        tensors = {name: c_tensor(array) for name, array in arrays.items()}
        options = {"eps": 1e-5} | self.options if self.kind in ("fwd", "bwd") else {}
        c_abi.call(ENTRIES[self.kind], **tensors, **options)
        return arrays


def c_tensor(array):
    shape = (ctypes.c_int64 * 8)(*array.shape)
    strides = (ctypes.c_int64 * 8)(*array.stride())
    code = c_abi.DTYPES[str(array.dtype).removeprefix("torch.")]
    return c_abi.Tensor(array.data_ptr(), array.nbytes, code, array.dim(), shape, strides)


def calls():
    """All that is interpreted, by the names of the tests that look at it."""
    for kind in ("add", "increment"):
        for variant in elementwise.VARIANTS:
            for dtype in DTYPES:
                yield f"{kind} {variant} {dtype}", Call(kind, variant, operands(kind, dtype))
    for kind, variants in (("fwd", FORWARD), ("bwd", BACKWARD)):
        arrays = ARRAYS[kind]
        for variant in variants:
            for rows, cols in SHAPES:
                call = Call(kind, variant, arrays(draw(rows, cols), "f32"))
                yield f"{variant} {rows}x{cols}", call
            for dtype, weight_dtype in TYPES:
                call = Call(kind, variant, arrays(draw(3, 130, dtype=dtype), weight_dtype))
                yield f"{variant} {dtype} {weight_dtype}", call
            for eps in (1e-5, 0.0):
                call = Call(kind, variant, arrays(rows_of_every_kind(70), "f32"), eps=eps)
                yield f"{variant} eps {eps}", call
    for eps in (1e-40, -1.0):
        arrays = forward_arrays(rows_of_every_kind(70))
        yield f"unusual eps {eps}", Call("fwd", "row_per_program", arrays, eps=eps)
    wide = rows_of_every_kind(8200)[[0, 2, 6, 11, 15, 19]]
    yield "streamed, wide", Call("fwd", "streamed", forward_arrays(wide, "f32"))
    yield "two_pass, wide", Call("bwd", "two_pass", only("grad_x", backward_arrays(wide)))
    for variant in BACKWARD:
        arrays = backward_arrays(draw(18, 70), "f32")
        arrays |= {"mean": draw(18) / 10, "rstd": draw(18).abs()}
        yield f"{variant}, statistics given", Call("bwd", variant, arrays)
        arrays = only("grad_weight", backward_arrays(draw(1, 70)))
        arrays["grad_y"].fill_(1e-45)  # products vanish, but for their signs
        yield f"{variant}, grad_weight", Call("bwd", variant, arrays)
        arrays = only("grad_x", backward_arrays(draw(7, 64)))
        yield f"{variant}, grad_x", Call("bwd", variant, arrays)
    for runs in layernorm.VARIANTS["two_pass"].knobs["runs"]:
        arrays = only("grad_bias", backward_arrays(draw(2100, 2)))
        yield f"two_pass, many rows, {runs=}", Call("bwd", "two_pass", arrays, {"runs": runs})


def only(gradient, arrays):
    others = {"grad_x", "grad_weight", "grad_bias"} - {gradient}
    return {name: array for name, array in arrays.items() if name not in others}


CALLS = dict(calls())


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    """The arrays of every call as the interpreted kernels leave them."""
    results = tmp_path_factory.mktemp("triton") / "results.pt"
    interpreting = os.environ | {"TRITON_INTERPRET": "1", "PYTHONWARNINGS": "ignore"}
    # To trace it takes three times as long; test_triton_lab.py executes most of the same lines.
    interpreting.pop("COVERAGE_PROCESS_CONFIG", None)
    subprocess.run([sys.executable, __file__, results], env=interpreting, check=True)
    return torch.load(results)


def bits(array):
    return array.contiguous().reshape(-1).view(torch.uint8).tolist()


@pytest.mark.parametrize("name", CALLS)
def test_interpreted_kernels_give_the_bits_of_the_library(name, interpreted):
    for array, expected in CALLS[name].canonical().items():
        assert bits(interpreted[name][array]) == bits(expected), array


def test_what_registers_do_not_hold_is_declined():
    def reason(variant, cols, dtype="f32"):
        return layernorm.VARIANTS[variant].declines(Case(dtype, dtype, cols))

    assert reason("one_pass", 4096) == reason("row_per_program", 16384) == ""
    assert reason("streamed", 2**22) == reason("two_pass", 2**22) == ""
    assert "16385 columns" in reason("row_per_program", 16385)
    assert "4097 columns" in reason("one_pass", 4097)
    assert reason("streamed", 2**22 + 1) and reason("two_pass", 2**22 + 1)
    assert "f64" in reason("streamed", 8, "f64")
    assert layernorm.VARIANTS["streamed"].declines(Case("f32", "bf16", 8))
    x = torch.empty(2, 4097)
    with pytest.raises(NotImplementedError, match=r"one_pass: 4097 columns; registers hold"):
        layernorm.VARIANTS["one_pass"].run(x=x, grad_y=x, grad_x=x)
    with pytest.raises(ValueError, match="streamed: y is not contiguous"):
        layernorm.VARIANTS["streamed"].run(x=x, y=x[:, ::2])


def launches(variant, dtype, cols):
    """Those of arrays that need no memory."""
    x = torch.empty(40, cols, dtype=DTYPES[dtype], device="meta")
    weight, per_row = torch.empty(cols, device="meta"), torch.empty(40, device="meta")
    arrays = {
        "fwd": {"x": x, "weight": weight, "bias": weight, "y": x, "mean": per_row, "rstd": per_row},
        "bwd": {"x": x, "grad_y": x, "weight": weight, "grad_x": x, "grad_weight": weight},
        "add": {"x": x, "residual": x, "y": x},
    }
    return variant.launches(**arrays[variant.kinds[0]])


COMPILED = [
    *((variant, dtype, 1008) for variant in elementwise.VARIANTS.values() for dtype in DTYPES),
    *(
        (layernorm.VARIANTS[name], dtype, cols)
        for name, cols, dtypes in (
            ("row_per_program", 1000, ("f16",)),
            ("row_per_program", 16384, ("f32", "bf16")),
            ("streamed", 65536, ("f32",)),
            ("one_pass", 1000, ("f16",)),
            ("one_pass", 4096, ("f32", "bf16")),
            ("two_pass", 8192, ("f32", "bf16")),
            ("two_pass", 65536, ("f32",)),
        )
        for dtype in dtypes
    ),
]


@pytest.mark.parametrize(
    ("variant", "dtype", "cols"), COMPILED, ids=lambda v: getattr(v, "name", v)
)
def test_compiled_kernels_round_as_they_are_told_and_spill_nothing(variant, dtype, cols, tmp_path):
    for launch in launches(variant, dtype, cols):
        made = launch.compiled(SM_90)
        # An operation that names its rounding is never contracted by ptxas.
        assert not re.search(r"\b(add|sub|mul)\.f(32|64)|approx|ftz|div\.full|ex2", made.asm["ptx"])
        # A NaN of the GPU's own has other bits, which no interpreter shows.
        assert dtype == "i32" or "setp.nan" in made.asm["ptx"]
        cubin = tmp_path / "kernel.cubin"
        cubin.write_bytes(made.asm["cubin"])
        usage = subprocess.run([CUOBJDUMP, "-res-usage", cubin], capture_output=True, text=True)
        assert re.search(r"STACK:0 .*LOCAL:0 ", usage.stdout), usage.stdout


def test_products_melt_into_sums_where_the_formula_says_so_and_nowhere_else():
    (forward,) = launches(layernorm.VARIANTS["row_per_program"], "f32", 4096)
    lane = 4096 // (32 * forward.warps)  # elements
    # y; the first fold of squares in two rounds and in the three of the long way, of which the
    # first of each is a sum alone; the variances of all rounds but those.
    assert forward.compiled(SM_90).asm["ptx"].count("fma.rn.f32") == lane + 3 * lane // 2 + 3


if __name__ == "__main__":
    for call in CALLS.values():
        call.run()
    torch.save({name: call.arrays for name, call in CALLS.items()}, sys.argv[1])
