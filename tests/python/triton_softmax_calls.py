# SPDX-License-Identifier: Apache-2.0
"""Calls of softmax that test_triton_softmax.py makes of Triton and of the library."""

import itertools

import torch
from triton_interpreted import c_tensor

from isobit import c_abi
from isobit.ops.triton_variants import DTYPES

TYPES = (("f32", "f32"), ("f16", "f16"), ("bf16", "bf16"), ("f16", "f32"), ("bf16", "f32"))
# Nothing; parts of a block; blocks that are no power of two.
SHAPES = ((0, 7), (3, 0), (2, 2, 64), (2, 257), (2, 1500))
WIDE = 2 * 4096 + 700  # columns of three tiles
SCALES = (-1.0, 0.7, -0.125, 1e-300, 3e38, 0.1 + 1e-9)
ENDS = (0.0, -0.0, 1e-45, -6e-8, 3e38, -3e38, *map(float, ("inf", "-inf", "nan")))


def rows_of_every_kind(cols):
    """Rows far from zero, of wide and narrow ranges, all alike, and broken."""
    generator = torch.Generator().manual_seed(cols)
    z = torch.randn(20, cols, generator=generator, dtype=torch.float64)
    z[1] += 1e6
    z[2] = z[2] * 30 - 60000  # which f16 has, too
    for row, factor in zip(range(3, 8), (30.0, 1e4, 1e20, 1e38, 1e-42), strict=True):
        z[row] *= factor
    z[8], z[9], z[10] = 3.14159, -0.0, -torch.inf
    for row, end in zip(range(11, 19), ENDS[1:], strict=True):
        z[row, cols // 3] = end
    z[19, ::2] = -torch.inf  # beside numbers
    return z


def drawn(*shape):
    generator = torch.Generator().manual_seed(shape[-1])
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def mask_of(x):
    """Some elements of each row, but all of the first, none of the second and one of the last."""
    mask = drawn(*x.shape) > -0.5
    mask[0], mask[1], mask[-1] = True, False, False
    mask[-1, -1] = True
    return mask


def forward_arrays(types, x, mask=None):
    x = x.to(DTYPES[types[0]])
    arrays = {"x": x, "y": torch.full_like(x, 99, dtype=DTYPES[types[1]])}
    return arrays if mask is None else arrays | {"mask": mask}


def backward_arrays(types, x, mask=None, **options):
    """y as forward leaves it, and gradients with all ends among them."""
    arrays = forward_arrays(types, x, mask)
    given = {name: c_tensor(array) for name, array in arrays.items()}
    c_abi.call("softmax", "fwd", **given, **options)
    x, y = arrays.pop("x"), arrays["y"]
    grad_y = drawn(*x.shape) / 100 + 3  # from which the sum takes digits, so that its last show
    if x.shape == (20, 70):
        for row, end in enumerate(ENDS):
            grad_y[row, 35] = end
        grad_y[12] = -0.0
    return arrays | {"grad_y": grad_y.to(y.dtype), "grad_x": torch.full_like(x, 99)}


def _forward(*given, **options):
    return forward_arrays(*given)


MADE = {"fwd": _forward, "bwd": backward_arrays}
FEW = [1, 2, 5, 10, 16, 18, 19]  # rows that are summed in ways of their own


def _calls_of(way, log):
    f32, every = TYPES[0], rows_of_every_kind(70)
    few = every[FEW]

    def call(name, *given, variant="row_per_program", **options):
        options["log"] = log
        return f"{way} log {log} {name}", way, variant, MADE[way](*given, **options), options

    yield call("of every kind", f32, every, scale=0.7)
    yield call("without a scale", f32, few)
    for types in TYPES:
        yield call(f"{types}", types, few[1:6], mask_of(few[1:6]), scale=0.7)
    for scale in SCALES if way == "fwd" else SCALES[:2]:
        yield call(f"scale {scale}", f32, few[1:4], scale=scale)
    for shape in SHAPES if log == "no" else SHAPES[:2]:
        yield call(f"{shape}", f32, drawn(*shape))
    for cols in (1, 513):
        yield call(f"{cols} columns", f32, rows_of_every_kind(cols)[FEW[2:5]])
    yield call("bytes", f32, few[:3], mask_of(few[:3]).to(torch.uint8) * 200)
    yield call("in one tile", TYPES[2], few[:2], variant="streamed")
    wide = rows_of_every_kind(WIDE)[[3, 2, 18, 1]]
    yield call("wide", f32, wide, mask_of(wide), variant="streamed", scale=-0.7)


def softmax_calls():
    """name, pass, variant, arrays, options."""
    for way, log in itertools.product(MADE, ("no", "yes")):
        yield from _calls_of(way, log)
    # Two terms that one operation adds: the sum shows which of them was rounded before.
    x = torch.full((8, 512), -200.0, dtype=torch.float64)
    x[:, [3, 3 + 256]] = drawn(8, 2)
    arrays = backward_arrays(TYPES[0], x)
    yield "bwd of two weights", "bwd", "row_per_program", arrays, {"log": "no"}
    for cols, variant in ((70, "row_per_program"), (WIDE, "streamed")):
        x, options = rows_of_every_kind(cols)[:1], {"log": "no"}
        arrays = forward_arrays(TYPES[0], x)
        yield f"{variant}, y is x", "fwd", variant, arrays | {"y": arrays["x"]}, options
        for place in ("y", "grad_y"):
            arrays = backward_arrays(TYPES[0], x)
            arrays["grad_x"] = arrays[place]
            yield f"{variant}, grad_x is {place}", "bwd", variant, arrays, options
