# SPDX-License-Identifier: Apache-2.0
"""Calls of layernorm and rmsnorm that test_triton.py makes of Triton and of the library."""

import torch

from isobit.ops.layernorm.triton import VARIANTS
from isobit.ops.rmsnorm.triton import VARIANTS as RMS_VARIANTS
from isobit.ops.triton_variants import DTYPES, Case

NORMS = {"layernorm": VARIANTS, "rmsnorm": RMS_VARIANTS}
SHAPES = {
    "layernorm": ((0, 7), (3, 0), (3, 1), (7, 64), (4, 513), (33, 100), (2, 1000)),
    "rmsnorm": ((0, 7), (3, 0), (3, 1), (2, 1000), (18, 100)),
}
TYPES = (("f16", "f16"), ("bf16", "bf16"), ("bf16", "f32"), ("f32", None))


def draw(*shape, dtype="f32", seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DTYPES[dtype])


def unset(*shape, dtype="f32"):
    return torch.full(shape, 99, dtype=DTYPES[dtype])


def of_kind(op, kind):
    return [name for name, variant in NORMS[op].items() if variant.kinds == (kind,)]


def forward_arrays(x, weight_dtype=None):
    rows, cols = x.shape
    arrays = {"x": x, "y": torch.full_like(x, 99), "mean": unset(rows), "rstd": unset(rows)}
    if weight_dtype is not None:
        arrays["weight"] = draw(cols, dtype=weight_dtype, seed=2)
        arrays["bias"] = draw(cols, dtype=weight_dtype, seed=3)
    return arrays


def backward_arrays(x, weight_dtype=None):
    cols = x.shape[1]
    gradients = {"dtype": Case.of(x=x).dtypes["x"] if weight_dtype is None else weight_dtype}
    grad_y = draw(*x.shape, seed=1).to(x.dtype)
    grad_y[6::4] = -0.0  # a constant row's, where there are rows of every kind
    arrays = {"x": x, "grad_y": grad_y, "grad_x": torch.full_like(x, 99)}
    arrays |= {name: unset(cols, **gradients) for name in ("grad_weight", "grad_bias")}
    if weight_dtype is not None:
        arrays["weight"] = draw(cols, dtype=weight_dtype, seed=2)
    return arrays


ARRAYS = {"fwd": forward_arrays, "bwd": backward_arrays}


def only(gradient, arrays):
    others = {"grad_x", "grad_weight", "grad_bias"} - {gradient}
    return {name: array for name, array in arrays.items() if name not in others}


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


FEW = [0, 4, 6, 8, 9, 11, 13, 15, 17]  # a usual one, and those in which eps is seen


def norm_calls():
    """name, operator, pass, variant, arrays, plan, options."""
    for op, variants in NORMS.items():
        for name, kind, variant, arrays, plan, options in _calls_of(op):
            takes = variants[variant].takes
            given = {each: array for each, array in arrays.items() if each in takes}
            yield f"{op} {variant} {name}", op, kind, variant, given, plan, options


def _calls_of(op):
    """With all arrays that a norm may have."""
    for kind, arrays in ARRAYS.items():
        for variant in of_kind(op, kind):
            for rows, cols in SHAPES[op]:
                if kind == "fwd" and rows > 16:
                    continue  # rows are added in backward alone
                yield f"{rows}x{cols}", kind, variant, arrays(draw(rows, cols), "f32"), {}, {}
            for dtype, weight_dtype in TYPES:
                given = arrays(draw(3, 130, dtype=dtype), weight_dtype)
                yield f"{dtype} {weight_dtype}", kind, variant, given, {}, {}
            for eps in (1e-5, 0.0):
                rows = rows_of_every_kind(70)
                given = arrays(rows if eps == 0 else rows[FEW], "f32")
                yield f"eps {eps}", kind, variant, given, {}, {"eps": eps}
    for eps in (1e-40, -1.0):
        arrays = forward_arrays(rows_of_every_kind(70)[FEW])
        yield f"unusual eps {eps}", "fwd", "row_per_program", arrays, {}, {"eps": eps}
    wide = rows_of_every_kind(8200)[[0, 2, 6, 11, 15, 19]]
    yield "wide", "fwd", "streamed", forward_arrays(wide, "f32"), {}, {}
    yield "wide", "bwd", "two_pass", only("grad_x", backward_arrays(wide)), {}, {}
    for variant in of_kind(op, "bwd"):
        arrays = backward_arrays(draw(18, 70), "f32")
        arrays |= {"mean": draw(18) / 10, "rstd": draw(18).abs()}
        yield "statistics given", "bwd", variant, arrays, {}, {}
        arrays = only("grad_weight", backward_arrays(draw(1, 70)))
        arrays["grad_y"].fill_(1e-45)  # products vanish, but for their signs
        yield "grad_weight", "bwd", variant, arrays, {}, {}
        arrays = only("grad_x", backward_arrays(draw(7, 64)))
        yield "grad_x", "bwd", variant, arrays, {}, {}
    if op == "layernorm":  # rmsnorm adds columns by the same code, but is slow to interpret here
        for runs in VARIANTS["two_pass"].knobs["runs"]:
            rows = 16 * runs * 5 + 3  # six programs, whose sums are added by pairs
            arrays = only("grad_bias", backward_arrays(draw(rows, 2)))
            yield f"many rows, {runs=}", "bwd", "two_pass", arrays, {"runs": runs}, {}
