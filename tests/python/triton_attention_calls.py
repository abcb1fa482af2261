# SPDX-License-Identifier: Apache-2.0
"""Calls of attention that test_triton_attention.py makes of Triton and of the library."""

import torch
from triton_interpreted import c_tensor

from isobit import c_abi
from isobit.ops.triton_variants import DTYPES

# batch, heads, kv_heads, seq_q, seq_k, head_dim, value_dim
USUAL = (1, 2, 1, 9, 150, 7, 5)
SMALL = (1, 2, 1, 9, 20, 3, 2)
BANDS = (
    {"causal": "top_left"},
    {"causal": "bottom_right"},
    {"window": 4},
    {"causal": "bottom_right", "window": 30},
)
EMPTY = ((0, 2, 1, 3, 4, 5, 6), (1, 2, 1, 0, 4, 5, 6), (1, 2, 1, 3, 0, 5, 6))
EMPTY += ((1, 2, 1, 3, 4, 0, 6), (1, 2, 1, 3, 4, 5, 0), (1, 0, 0, 3, 4, 5, 6))


FAR = (1, 1, 1, 150, 40, 1, 1)  # the first queries see no key, and keys no query of a panel


def forward_arrays(dtype, shape, extra="", results="y lse max sum", scale=1.0):
    batch, heads, kv_heads, seq_q, seq_k, head_dim, value_dim = shape
    generator = torch.Generator().manual_seed(seq_q + seq_k)
    shapes = {
        "q": (batch, heads, seq_q, head_dim),
        "k": (batch, kv_heads, seq_k, head_dim),
        "v": (batch, kv_heads, seq_k, value_dim),
        "bias": (batch, heads, seq_q, seq_k),
    }
    arrays = {
        name: torch.randn(*shapes[name], generator=generator, dtype=torch.float64)
        for name in ["q", "k", "v", *(["bias"] * ("bias" in extra))]
    }
    arrays["q"] *= scale
    arrays = {name: array.to(DTYPES[dtype]) for name, array in arrays.items()}
    if "mask" in extra:
        arrays["mask"] = torch.rand(shapes["bias"], generator=generator) > 0.3
    if "slopes" in extra:
        arrays["slopes"] = torch.randn(batch, heads, generator=generator)
    for name in results.split():
        rows = shapes["q"][:3]
        like = arrays["q"].new_empty(*rows, value_dim) if name == "y" else torch.empty(rows)
        arrays[name] = torch.full_like(like, 99)
    return arrays


def with_ends(arrays):
    """Infinities, NaN, zeros and subnormal numbers, which some queries see and others do not."""
    q, k, v, bias, mask = (arrays[name] for name in ("q", "k", "v", "bias", "mask"))
    q[0, 0, 3, 1], q[0, 1, 4] = float("nan"), 0.0
    if q.dtype == torch.float32:  # a NaN whose bits stand for what is not seen
        q.view(torch.int32)[0, 0, 3, 1] = 0x7FC00001
    k[0, 0, 2, 0], k[0, 0, 5, 0], k[0, 0, 6, 1] = float("inf"), -float("inf"), float("nan")
    v[0, 0, 1], v[0, 0, 7, 0], v[0, 0, 8, 1] = float("nan"), float("inf"), -0.0
    v[0, 0, 9:12, 0] = torch.tensor([-6e-8, 1e-45, -1e-45])
    bias[0, 0, 6, ::2], bias[0, 1, 6, 3] = -float("inf"), float("inf")
    bias[0, 1, 7, 12], bias[0, 1, 8, :] = float("nan"), -float("inf")
    mask[0, :, :, [1, 2, 5, 6, 7]] &= torch.arange(q.shape[2])[None, :, None] % 3 == 0
    return arrays


def with_slopes(arrays):
    """One for each head, whatever the batch, which makes all other keys absent in the last."""
    arrays["slopes"][0, -1] = float("inf")
    arrays["slopes"] = arrays["slopes"][:1].expand(arrays["q"].shape[:2])
    if "bias" in arrays:
        arrays["bias"][:, :, :, 3] = -float("inf")
    return arrays


PADDED = (2, 1, 1, 5, 150, 3, 2)


def padded(arrays):
    """Sequences that have not all of the keys; what they do not have is NaN."""
    arrays["key_begin"], arrays["key_end"] = torch.tensor([20, 0]), torch.tensor([150, 140])
    for name in ("k", "v"):
        arrays[name][0, :, :20] = arrays[name][1, :, 140:] = float("nan")
    return arrays


def far_apart():
    """Weights of 2^-124 and less beside 1, in its panel and the next, which large numbers show."""
    arrays = forward_arrays("f32", (1, 1, 1, 2, 132, 1, 8))
    arrays["q"].fill_(1.0)
    arrays["k"].fill_(-1000.0)
    arrays["k"][0, 0, 0] = 0.0
    arrays["v"].fill_(0.0)
    for first in (1, 128):
        for i in range(4):
            arrays["k"][0, 0, first + i] = -124.0 - i
            arrays["v"][0, 0, first + i, i + 4 * (first > 1)] = 2.0**120
    return arrays


def _turned(array):
    return array.mT.contiguous().mT if array.dim() > 1 else array


def _packed(array):
    """As (batch, rows, heads, elements) in memory."""
    return array.transpose(1, 2).contiguous().transpose(1, 2)


def _apart(array):
    wide = torch.full([2 * extent for extent in array.shape], 7, dtype=array.dtype)
    part = wide[tuple(slice(None, None, 2) for _ in array.shape)]
    return part.copy_(array)


LAYOUTS = {"turned": _turned, "packed": _packed, "apart": _apart}


def forward_calls():
    """name, arrays, options, plan."""
    for dtype in ("f32", "f16", "bf16"):
        arrays = forward_arrays(dtype, USUAL, "bias mask")
        yield f"{dtype} bias and mask", arrays, {"causal": "bottom_right"}, {}
        arrays = with_ends(forward_arrays(dtype, SMALL, "bias mask"))
        yield f"{dtype} infinities and NaN", arrays, {}, {}
    for band in BANDS:
        yield f"{band}", forward_arrays("f32", USUAL), band, {}
        yield f"{band} of few keys", forward_arrays("f32", (1, 1, 1, 20, 9, 3, 2)), band, {}
    for dtype, extra in (("f32", "slopes"), ("bf16", "bias mask slopes")):
        arrays = with_slopes(forward_arrays(dtype, USUAL, extra))
        yield f"{dtype} {extra}", arrays, {"causal": "top_left", "window": 100}, {}
    for options in ({}, {"causal": "bottom_right", "window": 50}):
        arrays = padded(forward_arrays("f32", PADDED, "mask slopes"))
        yield f"padded {options}", arrays, options, {}
    arrays = forward_arrays("f32", (1, 1, 1, 3, 4200, 2, 3))
    arrays["key_begin"] = torch.tensor([100])
    yield "padded runs", arrays, {}, {}
    for shape in EMPTY:
        yield f"{shape}", forward_arrays("f32", shape), {}, {}
    for options in ({"softcap": 1.5}, {"softcap": 20.0, "scale": -0.7}, {"scale": 1e38}):
        yield f"{options}", forward_arrays("f32", SMALL, "bias"), options, {}
    for scale in (1e-42, 200.0, 1e20):  # weights that vanish, scores beyond all of them
        arrays = forward_arrays("f32", USUAL, scale=scale)
        yield f"q times {scale}", arrays, {}, {"rows": 32}
    yield "far apart", far_apart(), {"scale": 0.6931471805599453}, {}
    arrays = forward_arrays("f32", (1, 1, 1, 256, 2, 1, 1))
    yield "logarithms of many sums", arrays, {}, {"rows": 32}
    for result in ("y", "y lse", "y max"):
        yield f"{result} alone", forward_arrays("f32", SMALL, results=result), {}, {}
    for name, change in LAYOUTS.items():
        arrays = forward_arrays("bf16", (2, 2, 1, 5, 9, 3, 2), "bias mask")
        yield f"layout {name}", {k: change(v) for k, v in arrays.items()}, {}, {"warps": 8}
    arrays = forward_arrays("f32", SMALL, "bias mask")
    arrays |= {name: arrays[name][:, :1, :1].expand(1, 2, 9, 20) for name in ("bias", "mask")}
    yield "one bias and mask of all", arrays, {}, {}
    for keys in (2070, 4110):  # a band that two runs have keys of, of two and of three
        band = {"causal": "bottom_right", "window": 50}
        yield f"{keys} keys", forward_arrays("f32", (1, 1, 1, 20, keys, 2, 3)), band, {}


GRADIENTS = "grad_q grad_k grad_v"


def backward_arrays(dtype, shape, extra="", wanted=GRADIENTS, options=None, change=None):
    """What forward takes and gives, changed, and gradients."""
    arrays = forward_arrays(dtype, shape, extra, results="y max sum")
    arrays = change(arrays) if change else arrays
    tensors = {name: c_tensor(array) for name, array in arrays.items()}
    c_abi.call("attention", "fwd", **tensors, **(options or {}))
    generator = torch.Generator().manual_seed(3)
    for name in ["grad_y", *(["grad_lse"] * ("lse" in extra))]:
        of = arrays["y" if name == "grad_y" else "max"]
        drawn = torch.randn(of.shape, generator=generator, dtype=torch.float64)
        arrays[name] = drawn.to(of.dtype)
    return arrays | {name: torch.full_like(arrays[name[5:]], 99) for name in wanted.split()}


def backward_calls():
    """name, arrays, options, plan."""
    every = GRADIENTS + " grad_bias"
    for dtype in ("f32", "f16", "bf16"):
        options = {"causal": "bottom_right", "softcap": 2.0, "scale": -0.7}
        shape = (1, 2, 1, 3, 20, 4, 3) if dtype != "f32" else (1, 2, 1, 2, 130, 3, 2)
        arrays = backward_arrays(dtype, shape, "bias mask lse", every, options)
        yield f"{dtype} all", arrays, options, {}
        arrays = backward_arrays(dtype, SMALL, "bias mask", every, change=with_ends)
        yield f"{dtype} infinities and NaN", arrays, {}, {}
    for band in BANDS:
        for shape in ((1, 1, 1, 20, 9, 3, 2), (1, 1, 1, 9, 20, 3, 2)):
            yield f"{band} {shape}", backward_arrays("f32", shape, options=band), band, {}
    # Of a tile of 16 keys, the first or the last alone is seen.
    for keys, band in ((17, {}), (20, {"window": 3})):
        options = {"causal": "bottom_right"} | band
        arrays = backward_arrays("f32", (1, 1, 1, 3, keys, 2, 3), options=options)
        yield f"edge {keys}", arrays, options, {}
    yield "far from the band", backward_arrays("f32", FAR, options=BANDS[3]), BANDS[3], {}
    for wanted in (GRADIENTS, every):
        extra = "bias slopes" if wanted == every else "mask"
        options = {"causal": "bottom_right", "window": 50, "scale": -0.7}
        arrays = backward_arrays("f32", PADDED, extra, wanted, options, padded)
        yield f"padded {extra}", arrays, options, {}
    for extra in ("slopes", "bias slopes lse"):
        arrays = backward_arrays("f32", SMALL, extra, change=with_slopes)
        yield f"{extra}", arrays, {}, {}
    for shape in EMPTY:
        yield f"{shape}", backward_arrays("f32", shape), {"scale": -0.0}, {}
    for name in every.split():
        arrays = backward_arrays("f32", SMALL, "bias", name, BANDS[0])
        yield f"{name} alone", arrays, BANDS[0], {}
    for name, change in LAYOUTS.items():
        arrays = backward_arrays("bf16", (2, 2, 1, 5, 9, 3, 2), "bias mask lse", every)
        yield f"layout {name}", {k: change(v) for k, v in arrays.items()}, {}, {"warps": 8}
    # Queries in two panels, and keys in two runs, of two and of three.
    yield "many queries", backward_arrays("f32", (1, 1, 1, 130, 3, 2, 3)), {}, {"rows": 32}
    for keys in (2070, 4110):
        band = {"causal": "bottom_right", "window": 50}
        arrays = backward_arrays("f32", (1, 1, 1, 20, keys, 2, 3), "", "grad_q", band)
        yield f"{keys} keys", arrays, band, {}
    # Heads that share one of k are three runs.
    yield "many heads", backward_arrays("f32", (1, 33, 1, 1, 3, 2, 3), "", "grad_k grad_v"), {}, {}
    # What no forward gave: a maximum far below the scores, and one beyond them.
    arrays = backward_arrays("f32", SMALL)
    for row, number in enumerate((-300.0, -128.0, 127.0, 300.0, *map(float, ("inf", "nan")))):
        arrays["max"][0, 0, row] = number
    yield "another maximum", arrays, {}, {}


class Runs:
    """What is known of five runs, which become one; to interpret what makes such states takes half
    a minute."""

    def __init__(self):
        generator = torch.Generator().manual_seed(6)
        self.states = torch.randn(1, 2, 3, 5, 2 + 4, generator=generator)
        self.states[..., 0] = (self.states[..., 0] * 40).round()
        self.states[0, 0, 1, 2:4, 0] = -float("inf")  # runs whose keys are not seen
        self.states[0, 0, 1, 2:4, 1:] = 0
        self.states[..., 1].abs_()
        self.arrays = {"y": torch.full((1, 2, 3, 4), 99.0)}
        self.arrays |= {name: torch.full((1, 2, 3), 99.0) for name in ("max", "sum")}

    def run(self):
        from isobit.ops.attention.triton import VARIANTS

        q, kv = torch.zeros(1, 2, 3, 1), torch.zeros(1, 2, 4 * 2048 + 1, 4)
        _, *joins = VARIANTS["flash"].launches(q=q, k=kv[..., :1], v=kv, **self.arrays)
        joins[0].arguments["states"].copy_(self.states.reshape(-1))
        for join in joins:
            join()

    def canonical(self):
        def join(a, b):
            most = torch.maximum(a[0], b[0])
            base = most.nan_to_num(neginf=0)
            kept = [torch.where(x[0] - base < -125, 0, (x[0] - base).exp2()) for x in (a, b)]
            return [most, *(x * kept[0] + y * kept[1] for x, y in zip(a[1:], b[1:], strict=True))]

        a, b, c, d, e = (list(run.unbind(-1)) for run in self.states.unbind(3))
        most, total, *sums = join(join(join(a, b), join(c, d)), e)
        y = torch.stack(sums, -1) * (1 / total).unsqueeze(-1) + 0.0
        return {"y": y, "max": most + 0.0, "sum": total}
