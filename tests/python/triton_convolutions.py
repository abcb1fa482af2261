# SPDX-License-Identifier: Apache-2.0
"""Calls of conv1d and conv2d that test_triton.py makes of Triton and of the library."""

import torch
from triton_calls import ACTIVATIONS, ENDS, MIXED, MULTIPLIED, drawn
from triton_interpreted import in_order, shortened

from isobit.ops.triton_variants import DTYPES

VARIANTS = ("implicit", "direct")
MODES = ("zeros", "reflect", "replicate", "circular")
F32 = MULTIPLIED[0]


def numbers(dims, **values):
    """Options by the names that they have in so many dimensions; a pair differs between them."""
    tails = ("",) if dims == 1 else ("_h", "_w")
    options = {}
    for name, value in values.items():
        if name in ("groups", "padding_mode", "activation"):
            options[name] = value
            continue
        each = value if isinstance(value, tuple) else (value, value)
        options |= {name + tail: each[-1 - at] for at, tail in enumerate(reversed(tails))}
    return options


def _extent(length, taps, stride=1, dilation=1, padding=0, extra_padding=0):
    return (length + 2 * padding + extra_padding - dilation * (taps - 1) - 1) // stride + 1


def arrays(types, x_shape, filters, kernel, extra="", scale=1.0, **options):
    """x, weight and y, and numbers with ends among them in what is added."""
    dtype, bias_dtype, y_dtype = types
    dims = len(kernel)
    generator = torch.Generator().manual_seed(sum(x_shape) + filters)
    given = {
        name: torch.randn(*shape, generator=generator, dtype=torch.float64).mul(scale)
        for name, shape in (
            ("x", x_shape),
            ("weight", (filters, x_shape[1] // options.get("groups", 1), *kernel)),
        )
    }
    given = {name: array.to(DTYPES[dtype]) for name, array in given.items()}
    windows = {
        name: value if isinstance(value, tuple) else (value, value)
        for name, value in options.items()
        if name not in ("groups", "padding_mode", "activation")
    }
    places = [
        _extent(length, taps, **{name: value[at - dims] for name, value in windows.items()})
        for at, (length, taps) in enumerate(zip(x_shape[2:], kernel, strict=True))
    ]
    given["y"] = torch.full((x_shape[0], filters, *places), 99, dtype=DTYPES[y_dtype])
    for name in extra.split():
        shape = (filters,) if name == "bias" else given["y"].shape
        given[name] = drawn(generator, bias_dtype if name == "bias" else y_dtype, *shape)
    return given


def gradient_arrays(types, *shapes, wanted="grad_x grad_weight grad_bias", **options):
    """What a call of `arrays` has, and its gradients."""
    of_forward = arrays(types, *shapes, **options)
    generator = torch.Generator().manual_seed(9)
    y = of_forward.pop("y")
    grad_y = torch.randn(y.shape, generator=generator, dtype=torch.float64).to(DTYPES[types[0]])
    forms = {"grad_x": of_forward["x"], "grad_weight": of_forward["weight"]}
    forms["grad_bias"] = torch.empty(y.shape[1], dtype=DTYPES[types[1]])
    gradients = {name: torch.full_like(forms[name], 99) for name in wanted.split()}
    return {**of_forward, "grad_y": grad_y, **gradients}


# Shapes of x, filters, kernel and options: a window alone; groups, strides that leave elements
# out, and what stands behind the last; depthwise; no element of x, of y and of a sum.
WINDOWS = (
    ((1, 1, 1), 1, (1,), {}),
    ((2, 4, 13), 6, (3,), {"groups": 2, "stride": 2, "dilation": 2, "padding": 2}),
    ((1, 3, 9), 3, (4,), {"groups": 3, "stride": 3, "padding": 3, "extra_padding": -3}),
    ((2, 3, 5, 7), 5, (3, 2), {"padding": (1, 2), "stride": (2, 1), "dilation": (1, 2)}),
    ((1, 4, 6, 5), 4, (2, 3), {"groups": 4, "padding": 2, "extra_padding": (-2, 1)}),
    ((0, 2, 5), 3, (2,), {}),
    ((1, 2, 5), 0, (2,), {}),
    ((1, 0, 5, 5), 3, (2, 2), {}),
)
FORM = (2, 3, 4, 5), 2, (2, 3)
# More than one program's: a tile's of both sides, or those of 32 results.
MANY = {"implicit": ((1, 1, 18), 17, (2,)), "direct": ((1, 1, 38), 1, (2,))}
MANY_WEIGHTS = {"implicit": ((1, 17, 3), 17, (1,)), "direct": ((1, 19, 2), 2, (1,))}


def forward_calls():
    """name, operator, variant, arrays, options, plan."""
    for op, variant, *call in _calls(_forwards):
        yield f"{op} {variant} {call[0]}", op, variant, *call[1:]


def backward_calls():
    for op, variant, *call in _calls(_backwards):
        yield f"{op} bwd {variant} {call[0]}", op, variant, *call[1:]


def _calls(make):
    for variant in VARIANTS:
        for name, given, options, *plan in make(variant):
            dims = given["x"].dim() - 2
            numbered = numbers(dims, **options)
            yield f"conv{dims}d", variant, name, given, numbered, *(plan or ({},))


def _forwards(variant):
    for x_shape, filters, kernel, options in WINDOWS:
        yield f"{x_shape}", arrays(F32, x_shape, filters, kernel, **options), options
    if variant == "implicit":  # a panel ends among the channels of a tap
        yield "513 k", arrays(F32, (1, 171, 2), 2, (3,), padding=1), {"padding": 1}
    for mode in MODES[1:]:
        options = {"padding": (3, 2), "extra_padding": (-1, 1), "padding_mode": mode}
        yield mode, arrays(F32, *FORM, **options), options
    for types in MULTIPLIED:
        options = {"padding": 1, "activation": "relu"}
        given = arrays(types, (2, 1, 5), 2, (2,), "bias residual pre", padding=1)
        yield f"{types[0]} and all else", given, options
        given = arrays(types, (1, 1, 9), 9, (2,), padding=1)
        given["x"][0, 0, :8] = torch.tensor(ENDS[:8])
        given["weight"][:4, 0, 0] = torch.tensor(ENDS[5:])  # what is padded meets the infinite
        yield f"{types[0]} infinities and NaN", given, {"padding": 1}
    if variant == "implicit":  # finishes sums as the other does
        for activation in ACTIVATIONS[2:]:
            given = arrays(F32, (2, 3, 9), 5, (3,), "bias residual pre")
            yield activation, given, {"activation": activation}
        for types in MIXED:
            yield f"{types}", arrays(types, (1, 3, 7), 4, (3,), "bias residual"), {}
    for types in MULTIPLIED:
        least = 2.0 ** (-520 if types[0] == "f64" else -6 if types[0] == "f16" else -66)
        yield f"{types[0]} subnormal", arrays(types, (1, 3, 5), 2, (2,), scale=least), {}
    given = arrays(F32, *FORM, "residual")
    yield "y is residual", given | {"y": given["residual"]}, {}
    for name, change in LAYOUTS.items():
        yield f"layout {name}", change(arrays(F32, *FORM, "bias residual pre")), {}
    for plan in PLANS[variant]:
        yield f"{plan}", arrays(F32, *MANY[variant]), {}, plan


def _backwards(variant):
    for x_shape, filters, kernel, options in WINDOWS:
        yield f"{x_shape}", gradient_arrays(F32, x_shape, filters, kernel, **options), options
    wanted, *form = {
        "direct": ("grad_x", (1, 2, 2), 171, (3,)),
        "implicit": ("grad_weight", (3, 1, 171), 2, (3,)),
    }[variant]
    given = gradient_arrays(F32, *form, wanted=wanted, padding=1)
    yield f"{wanted} of 513 k", given, {"padding": 1}
    for mode in MODES[1:]:
        options = {"padding": (2, 1), "extra_padding": (-1, 1), "stride": (2, 1)}
        options["padding_mode"] = mode
        wanted = "grad_weight grad_bias" + " grad_x" * (variant == "direct")
        yield mode, gradient_arrays(F32, *FORM, wanted=wanted, **options), options
    for types in MULTIPLIED:
        options = {"padding": 1, "stride": 2}
        given = gradient_arrays(types, (2, 2, 5), 2, (3,), **options)
        given["grad_y"][0, 0, :3] = torch.tensor(ENDS[5:8])
        given["weight"][1, 0, 0] = float("inf")  # where no tap lands, it is not met
        given["x"][1, 1, 3] = float("nan")
        yield f"{types[0]} infinities and NaN", given, options
    mixed = ("bf16", "f32", "f32")
    yield f"{mixed}", gradient_arrays(mixed, (1, 3, 7), 4, (3,)), {}
    for name in ("grad_x", "grad_weight", "grad_bias"):
        yield f"{name} alone", gradient_arrays(F32, *FORM, wanted=name), {}
    for name, change in LAYOUTS.items():
        yield f"layout {name}", change(gradient_arrays(F32, *FORM)), {}
    for plan in PLANS[variant]:
        yield f"{plan}", gradient_arrays(F32, *MANY_WEIGHTS[variant]), {}, plan


class Runs:
    """Sums of eleven runs, which are shortened.

    One factor of a product is a power of two of its channel. So a sum of the other in the same
    order is what is expected, times that.
    """

    def __init__(self, variant):
        self.variant = variant
        generator = torch.Generator().manual_seed(3)
        powers = torch.tensor([1.0, -4.0, 0.5])
        self.arrays = {
            "x": torch.randn(2, 42, 2, 3, generator=generator),
            "weight": powers[:, None, None, None].expand(3, 42, 1, 1),
            "y": torch.full((2, 3, 2, 3), 99.0),
            "grad_y of weight": powers[None, :, None, None].expand(1, 3, 6, 7),
            "x of weight": torch.randn(1, 2, 6, 7, generator=generator),
            "grad_weight": torch.full((3, 2, 1, 1), 99.0),
        }

    def run(self):
        from isobit.ops.conv2d.triton import VARIANTS
        from isobit.ops.convolution import triton_weights, triton_windows

        given, compute = self.arrays, VARIANTS[self.variant].run
        form = {"x": given["x of weight"], "weight": given["grad_weight"]}
        with shortened(triton_windows, triton_weights):
            compute(**{name: given[name] for name in ("x", "weight", "y")})
            compute(grad_y=given["grad_y of weight"], grad_weight=given["grad_weight"], **form)

    def canonical(self):
        given = self.arrays
        powers = given["grad_y of weight"][0, :, 0, 0]
        y = in_order(given["x"].unbind(1))[:, None] * powers[:, None, None]
        of_weight = in_order(given["x of weight"][0].flatten(1).unbind(1))
        grad_weight = (powers[:, None] * of_weight)[..., None, None]
        return {"y": y, "grad_weight": grad_weight}


def _channels_last(array):
    return array.movedim(1, -1).contiguous().movedim(-1, 1) if array.dim() > 1 else array


def _among_others(array):
    """The same elements, with gaps between them."""
    wide = torch.full([2 * extent for extent in array.shape], 7.0, dtype=array.dtype)
    part = wide[tuple(slice(None, None, 2) for _ in array.shape)]
    return part.copy_(array)


LAYOUTS = {
    "channels last": lambda given: {k: _channels_last(v) for k, v in given.items()},
    "among others": lambda given: {k: _among_others(v) for k, v in given.items()},
    "one image for all": lambda given: given | {"x": given["x"][:1].expand_as(given["x"])},
}
PLANS = {
    "implicit": ({"channels": 16, "places": 16}, {"channels": 64, "places": 32, "warps": 8}),
    "direct": ({"warps": 1},),
}
