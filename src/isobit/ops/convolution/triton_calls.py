# SPDX-License-Identifier: Apache-2.0
"""The variants of conv1d and conv2d in Triton: a signal is an image of height 1."""

import math

from isobit.ops.convolution.triton_weights import weights
from isobit.ops.convolution.triton_windows import Axis, Weights, windows
from isobit.ops.matmul import triton_gradients as products
from isobit.ops.triton_variants import Variant, by_name

_FORWARD = {"x", "weight", "bias", "residual", "y", "pre"}
_BACKWARD = {"grad_y", "x", "weight", "grad_x", "grad_weight", "grad_bias"}
_NUMBERS = ("stride", "dilation", "padding", "extra_padding")
_SIDES = (16, 32, 64)
_MODES = ("zeros", "reflect", "replicate", "circular")


class _Call:
    """The axes of a call, and its arrays as images."""

    def __init__(self, dims, arrays, options):
        self.op = f"conv{dims}d"
        self.arrays = {
            name: array.unsqueeze(2)
            if dims == 1 and array is not None and array.dim() == 3
            else array
            for name, array in arrays.items()
        }
        self.mode = options.get("padding_mode", "zeros")
        allowed = ", ".join(_MODES)
        self._hold(self.mode in _MODES, f"padding_mode is {self.mode!r}; allowed: {allowed}")
        self.groups = int(options.get("groups", 1))
        channels, (filters, ins) = arrays["x"].shape[1], arrays["weight"].shape[:2]
        fit = self.groups >= 1 and filters % self.groups == 0 and ins * self.groups == channels
        found = f"x has {channels} channels, weight {filters} filters of {ins}"
        self._hold(fit, f"{found}; in {self.groups} groups they do not fit")
        tails = ("_h", "_w") if dims == 2 else (None, "")
        self.h, self.w = (self._axis(dim, tail, options) for dim, tail in enumerate(tails, 2))
        name = "y" if "y" in arrays else "grad_y"
        places = (self.h.results, self.w.results)[-dims:]
        expected = arrays["x"].shape[0], arrays["weight"].shape[0], *places
        found = tuple(arrays[name].shape)
        self._hold(found == expected, f"{name} has shape {found}; must have {expected}")

    def _hold(self, condition, what):
        if not condition:
            raise ValueError(f"{self.op}: {what}")

    def _axis(self, dim, tail, options):
        if tail is None:
            return Axis(1, 1, 1, 1, 1, 0, 0)
        stride, dilation, padding, extra = (
            int(options.get(name + tail, int(name in ("stride", "dilation")))) for name in _NUMBERS
        )
        for name, number in (("stride", stride), ("dilation", dilation)):
            self._hold(number >= 1, f"{name}{tail} is {number}; must be at least 1")
        extent, taps = (self.arrays[name].shape[dim] for name in ("x", "weight"))
        results = (extent + 2 * padding + extra - dilation * (taps - 1) - 1) // stride + 1
        return Axis(results, extent, taps, stride, dilation, padding, padding + extra)

    def forward(self, tiled, plan, activation="none"):
        given = self.arrays
        f, c, i, j = given["weight"].stride()
        ins, outs = given["weight"].shape[1], given["weight"].shape[0] // self.groups
        last = {name: given.get(name) for name in ("bias", "residual", "pre")}
        yield from windows(
            *(tiled, plan, given["x"], Weights(given["weight"], outs * f, f, c, i, j)),
            *(given["y"], self.h, self.w, ins, outs, self.groups),
            **last,
            activation=activation,
            mode=self.mode,
        )

    def backward(self, tiled, plan):
        given = self.arrays
        grad_y, x, weight = (given[name] for name in ("grad_y", "x", "weight"))
        if given.get("grad_x") is not None:
            f, c, i, j = weight.stride()
            outs, ins = weight.shape[1], weight.shape[0] // self.groups
            h, w = (
                axis._replace(results=axis.sources, sources=axis.results)
                for axis in (self.h, self.w)
            )
            yield from windows(
                *(tiled, plan, grad_y, Weights(weight, ins * f, c, f, i, j)),
                *(given["grad_x"], h, w, ins, outs, self.groups),
                mode=self.mode,
                gradient=True,
            )
        if given.get("grad_weight") is not None:
            of_call = given["grad_weight"], self.h, self.w, self.groups, self.mode
            yield from weights(tiled, plan, grad_y, x, *of_call)
        if given.get("grad_bias") is not None:
            rows = grad_y.permute(0, 2, 3, 1)
            yield from products.backward(plan, rows, x, None, grad_bias=given["grad_bias"])


def _launches(dims, tiled):
    options = _options(dims)

    def make(plan, activation="none", **given):
        arrays = {name: each for name, each in given.items() if name not in options}
        call = _Call(dims, arrays, {k: v for k, v in given.items() if k in options})
        if "grad_y" in arrays:
            return call.backward(tiled, plan)
        return call.forward(tiled, plan, activation)

    return make


def _options(dims):
    tails = ("",) if dims == 1 else ("_h", "_w")
    return {name + tail for name in _NUMBERS for tail in tails} | {"groups", "padding_mode"}


def _plan(case):
    """Tiles that are no larger than what they are of. Twice the warps for doubles, which take twice
    the registers, and for forward's largest tile: what finishes it spills from those of four."""
    groups = int(case.options.get("groups", 1))
    results = [case.shapes[name] for name in ("y", "grad_x") if name in case.shapes]
    down = [shape[1] // groups for shape in results]
    across = [shape[0] * math.prod(shape[2:]) for shape in results]
    if "grad_weight" in case.shapes:
        filters, *of_filter = case.shapes["grad_weight"]
        down.append(filters // groups)
        across.append(math.prod(of_filter))
    channels, places = (
        next((side for side in _SIDES if side >= max(extents, default=0)), _SIDES[-1])
        for extents in (down, across)
    )
    largest = channels * places == _SIDES[-1] ** 2
    warps = 8 if case.dtypes["x"] == "f64" or ("y" in case.shapes and largest) else 4
    return {"channels": channels, "places": places, "warps": warps}


def _declines(case):
    activation = case.options.get("activation", "none")
    if case.dtypes["x"] == "f64" and activation not in ("none", "relu"):
        return f"it computes {activation} in float, not in f64"
    return ""


def _declines_tiles(case):
    mode = case.options.get("padding_mode", "zeros")
    if "grad_x" in case.shapes and mode != "zeros":
        return f"it computes grad_x where zeros are padded, not where padding_mode is {mode}"
    return _declines(case)


def variants(dims):
    common = {
        "kinds": ("fwd", "bwd"),
        "takes": frozenset(_FORWARD | _BACKWARD | _options(dims) | {"activation"}),
        "any_strides": True,
    }
    return by_name(
        Variant(
            name="implicit",
            make=_launches(dims, True),
            knobs={"channels": _SIDES, "places": _SIDES, "warps": (4, 8)},
            choose=_plan,
            declines=_declines_tiles,
            **common,
        ),
        Variant(
            name="direct",
            make=_launches(dims, False),
            knobs={"warps": (1, 2, 4, 8)},
            choose=lambda case: {"warps": 4},
            declines=_declines,
            **common,
        ),
    )
