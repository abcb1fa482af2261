# SPDX-License-Identifier: Apache-2.0
"""Calls of activation, rope, scan and matmul that test_triton.py makes of Triton and of the
library."""

import itertools

import torch
from triton_interpreted import RUN, Call, in_order, shortened

from isobit.ops.triton_variants import DTYPES

ENDS = (0.0, -0.0, 1e-45, -6e-8, 1.0, 3e38, *map(float, ("inf", "-inf", "nan")))
FUNCTIONS = ("exp", "log", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu")
STYLES = ("half", "interleaved")
TABLE = 12  # rows
# batch, seq, heads, kv_heads, head_dim and how many elements of it turn
HEADS = ((2, 3, 3, 1, 34, 34), (1, 4, 5, 2, 9, 8), (2, 2, 1, 4, 70, 10), (3, 1, 2, 2, 1, 0))
TOKEN = ("q", "k", "y_q", "y_k"), ("grad_y_q", "grad_y_k", "grad_q", "grad_k")


def drawn(generator, dtype, *shape):
    """Numbers, and among them those that functions have ends at."""
    x = torch.randn(*shape, generator=generator, dtype=torch.float64)
    ends = torch.tensor(ENDS, dtype=torch.float64)
    place = torch.randint(4 * len(ENDS), shape, generator=generator)
    x = torch.where(place < len(ENDS), ends[place % len(ENDS)], x)
    return x.to(DTYPES[dtype])


def activation_arrays(dtype, gated, *, backward=False):
    """Every exponent, subnormal numbers too; ordinary numbers; what functions have ends at."""
    generator = torch.Generator().manual_seed(5)
    of_every_exponent = torch.randint(-(2**31), 2**31, (2, 1000), generator=generator)
    every = of_every_exponent.to(torch.int32).view(torch.float32)
    ends = torch.tensor(
        [0.0, -0.0, 1e-45, 1e-39, 1.0, 89.0, -104.0, 3e38, *map(float, ("inf", "-inf", "nan"))]
    )
    ordinary = torch.randn(2, 1000, generator=generator, dtype=torch.float64) * 5
    x, gate = torch.cat([every, ordinary, torch.stack([ends, ends.flip(0)])], 1).to(DTYPES[dtype])
    x, gate = x.reshape(1, -1), gate.roll(500).reshape(1, -1)
    arrays = {"x": x, "gate": gate} if gated else {"x": x}
    if not backward:
        return arrays | {"y": torch.full_like(x, 99)}
    arrays |= {"grad_y": x.roll(1234, 1), "grad_x": torch.full_like(x, 99)}
    return arrays | ({"grad_gate": torch.full_like(x, 99)} if gated else {})


def activation_calls():
    """name, variant, pass, arrays, function."""
    for way in ("fwd", "bwd"):
        for function, dtype, gated in itertools.product(
            FUNCTIONS, ("f32", "f16", "bf16"), (False, True)
        ):
            if gated and dtype != "f32" and function != "gelu":
                continue  # how a gate is read and multiplied is no matter of the function
            arrays = activation_arrays(dtype, gated, backward=way == "bwd")
            name = f"{way} {function} {dtype}{' as a gate' * gated}"
            yield name, "vec16", way, arrays, function
        arrays = activation_arrays("bf16", True, backward=way == "bwd")
        yield f"{way} naive", "naive", way, arrays, "silu"
    arrays = activation_arrays("f32", True, backward=True)
    del arrays["grad_gate"]
    yield "bwd of x alone", "vec16", "bwd", arrays, "gelu"


def rope_arrays(dtype, shape, *, backward=False, positions=None, k=True):
    batch, seq, heads, kv_heads, head_dim, turning = shape
    generator = torch.Generator().manual_seed(head_dim)
    names = dict(zip(("q", "k", "y_q", "y_k"), TOKEN[backward], strict=True))
    arrays = {names["q"]: drawn(generator, dtype, batch, seq, heads, head_dim)}
    if k:
        arrays[names["k"]] = drawn(generator, dtype, batch, seq, kv_heads, head_dim)
    for x, y in (("q", "y_q"), ("k", "y_k"))[: len(arrays)]:
        arrays[names[y]] = torch.full_like(arrays[names[x]], 99)
    real = torch.float64 if dtype == "f64" else torch.float32
    angles = torch.randn(TABLE, turning // 2, generator=generator, dtype=torch.float64)
    angles[0] = 0  # where the sine is 0, signs of zeros tell how a product is negated
    arrays |= {"cos": angles.cos().to(real), "sin": angles.sin().to(real)}
    if positions == "of each":
        arrays["positions"] = torch.randint(TABLE - 5, (batch, seq), generator=generator)
    elif positions == "of all":
        arrays["positions"] = torch.randint(TABLE - 5, (seq,), generator=generator)
    return arrays


def rope_calls():
    """name, pass, arrays, plan, options."""
    for backward in (False, True):
        way = "bwd" if backward else "fwd"
        for style in STYLES:
            for dtype in ("f32", "f16", "bf16", "f64"):
                for shape in HEADS if dtype == "f32" else HEADS[:2]:
                    arrays = rope_arrays(dtype, shape, backward=backward)
                    options = {"style": style, "rotary_dim": shape[-1]}
                    yield f"{way} {style} {dtype} {shape}", way, arrays, {}, options
            for positions in ("of each", "of all"):
                arrays = rope_arrays("f32", HEADS[0], backward=backward, positions=positions)
                options = {"style": style, "offset_positions": 5}
                yield f"{way} {style} positions {positions}", way, arrays, {}, options
    alone = rope_arrays("f32", HEADS[0], k=False)
    yield "without k", "fwd", alone, {}, {"offset_positions": 4}
    for heads in (1, 2, 32):
        arrays = rope_arrays("f32", HEADS[0])
        yield f"{heads} heads at a time", "fwd", arrays, {"heads": heads}, {}


def positions_without_a_row():
    arrays = rope_arrays("bf16", (1, 4, 2, 1, 12, 10))
    places = [2, -1, TABLE, 2**62]
    return arrays | {"positions": torch.tensor(places)}, {"rotary_dim": 10}


SCANNED = [("f32", "f32"), ("f32", "f64"), ("f64", "f64"), ("f16", "f16"), ("bf16", "bf16")]
SCANNED += [("bf16", "f32"), ("i32", "i32"), ("i32", "i64"), ("i64", "i64")]
# outer, length, inner: parts of a group and of a block, and trees of up to four levels
SEQUENCES = ((2, 1, 1), (1, 15, 2), (1, 513, 1), (2, 700, 2), (1, 3 * 512, 1), (1, 15 * 512 + 7, 1))
NOTHING = ((0, 5, 1), (2, 0, 1), (2, 5, 0))


def scan_arrays(dtype, y_dtype, shape, *, init=False, broken=False):
    generator = torch.Generator().manual_seed(shape[1])
    if DTYPES[dtype].is_floating_point:
        x = torch.randn(*shape, generator=generator, dtype=torch.float64).to(DTYPES[dtype])
    else:
        most = torch.iinfo(DTYPES[dtype]).max
        x = torch.randint(-most, most, shape, generator=generator, dtype=DTYPES[dtype])
    x[:, :40:3] = 0  # negative zeros in the beginning, of which nothing may be seen
    x[:, :40:3] *= -1
    if broken:
        x[0, 600], x[1, 20], x[1, 650] = float("nan"), float("inf"), -float("inf")
    arrays = {"x": x, "y": torch.full(shape, 99, dtype=DTYPES[y_dtype])}
    if init:
        first = torch.arange(shape[0] * shape[2]).reshape(shape[0], shape[2]) - 1
        arrays["init"] = first.to(DTYPES[y_dtype])
    return arrays


def scan_calls():
    """name, arrays, options."""
    for types in SCANNED:
        yield f"{types}", scan_arrays(*types, (2, 700, 2), init=True), {}
    for shape in SEQUENCES + NOTHING:
        for exclusive in ("no", "yes"):
            for reverse in ("no", "yes"):
                if shape[1] > 700 and exclusive != reverse:
                    continue  # long ones differ in their trees alone
                options = {"exclusive": exclusive, "reverse": reverse}
                yield f"{shape} {options}", scan_arrays("f32", "f32", shape), options
    options = {"exclusive": "yes", "reverse": "yes"}
    yield f"init {options}", scan_arrays("f32", "f32", (2, 700, 2), init=True), options
    yield "infinities and NaN", scan_arrays("f32", "f32", (2, 700, 2), broken=True), {}


MULTIPLIED = [(dtype, dtype, dtype) for dtype in ("f32", "f16", "bf16", "f64")]
MIXED = [("f32", "f32", "bf16"), ("f32", "f32", "f16"), ("bf16", "f32", "f32")]
MIXED += [("f16", "f16", "f32"), ("bf16", "f32", "bf16")]
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")
# batch, m, n, k: no element of y, no term of a sum, more than one tile, more than one panel
PRODUCTS = ((0, 3, 4, 5), (2, 0, 4, 5), (2, 3, 0, 5), (2, 3, 4, 0), (1, 70, 67, 3), (1, 5, 9, 514))


def matmul_arrays(types, batch, m, n, k, extra="", scale=1.0):
    """Numbers, and what is added to the product with ends among them."""
    dtype, bias_dtype, y_dtype = types
    generator = torch.Generator().manual_seed(m * n + k)
    batch = batch if isinstance(batch, tuple) else (batch,)
    arrays = {
        name: torch.randn(*batch, *shape, generator=generator, dtype=torch.float64) * scale
        for name, shape in (("a", (m, k)), ("b", (k, n)))
    }
    arrays = {name: array.to(DTYPES[dtype]) for name, array in arrays.items()}
    arrays["y"] = torch.full((*batch, m, n), 99, dtype=DTYPES[y_dtype])
    for name in extra.split():
        shape = (n,) if name == "bias" else arrays["y"].shape
        arrays[name] = drawn(generator, bias_dtype if name == "bias" else y_dtype, *shape)
    return arrays


def matmul_calls():
    """name, arrays, options, plan."""
    for types in MULTIPLIED:
        for shape in PRODUCTS if types[0] == "f32" else PRODUCTS[3:5]:
            yield f"{types[0]} {shape}", matmul_arrays(types, *shape), {}, {}
        least = 2.0 ** (-520 if types[0] == "f64" else -6 if types[0] == "f16" else -66)
        arrays = matmul_arrays(types, 1, 5, 9, 7, scale=least)
        yield f"{types[0]} subnormal", arrays, {"alpha": 2.0**-13}, {}
        arrays = matmul_arrays(types, 1, 9, 5, 2)
        arrays["a"][0, :8, 0] = torch.tensor(ENDS[:8])
        arrays["b"][0, 1, :4] = torch.tensor(ENDS[5:])
        yield f"{types[0]} infinities and NaN", arrays, {}, {}
        for activation in ACTIVATIONS if types[0] != "f64" else ACTIVATIONS[:2]:
            arrays = matmul_arrays(types, 2, 3, 35, 20, "bias c residual pre")
            options = {"alpha": 0.7, "beta": -1.3, "activation": activation}
            yield f"{types[0]} {activation} and all else", arrays, options, {}
    for types in MIXED:
        yield f"{types}", matmul_arrays(types, 1, 20, 37, 40, "bias residual"), {}, {}
    f32 = MULTIPLIED[0]
    # a NaN in c is not read where beta is 0, and is where beta is a number that floats lack
    arrays = matmul_arrays(f32, 1, 5, 9, 4, "c")
    yield "beta 0", arrays, {"beta": 0.0}, {}
    yield "beta of double", arrays | {"y": arrays["y"].clone()}, {"beta": 1e-300}, {}
    for name in ("c", "residual"):
        arrays = matmul_arrays(f32, 2, 3, 20, 4, name)
        yield f"y is {name}", arrays | {"y": arrays[name]}, {"beta": float(name == "c")}, {}
    every = {"alpha": 0.7, "beta": -1.3, "activation": "gelu"}
    yield "two runs", matmul_arrays(f32, 1, 2, 3, 8193, "bias c residual pre"), every, {}
    for name, change in LAYOUTS.items():
        arrays = matmul_arrays(f32, (3, 2), 4, 18, 6, "bias c residual pre")
        yield f"layout {name}", arrays | change(arrays), every | {"activation": "none"}, {}
    arrays = matmul_arrays(f32, (5,), 1, 18, 6, "residual")
    yield "rows of a batch", arrays | {"b": arrays["b"][:1].expand(5, 6, 18)}, {}, {}
    arrays = {name: array[0] for name, array in matmul_arrays(f32, 1, 4, 18, 6).items()}
    yield "no batch", arrays, {}, {}
    for plan in ({"rows": 16, "cols": 64}, {"rows": 64, "cols": 16}, {"warps": 8}):
        yield f"{plan}", matmul_arrays(f32, 1, 70, 67, 3), {}, plan


def gradient_arrays(types, batch, m, n, k, extra="", wanted="grad_a grad_b grad_bias grad_c"):
    """What a call of `matmul_arrays` has, and its gradients."""
    of_forward = matmul_arrays(types, batch, m, n, k)
    arrays = {"a": of_forward["a"], "b": of_forward["b"]}
    generator = torch.Generator().manual_seed(m * n + k + 1)
    shape = of_forward["y"].shape
    arrays["grad_y"] = torch.randn(shape, generator=generator, dtype=torch.float64)
    arrays["grad_y"] = arrays["grad_y"].to(of_forward["y"].dtype)
    if extra == "pre":
        arrays["pre"] = drawn(generator, types[2], *shape)
    forms = {"grad_a": arrays["a"], "grad_b": arrays["b"], "grad_c": arrays["grad_y"]}
    forms["grad_bias"] = torch.empty(n, dtype=DTYPES[types[1]])
    return arrays | {name: torch.full_like(forms[name], 99) for name in wanted.split()}


def gradient_calls():
    """name, arrays, options, plan."""
    f32 = MULTIPLIED[0]
    for shape in PRODUCTS[:5]:
        yield f"f32 {shape}", gradient_arrays(f32, *shape), {"beta": 1.0}, {}
    for activation in ACTIVATIONS[1:]:
        arrays = gradient_arrays(f32, 2, 3, 35, 20, "pre")
        options = {"alpha": 0.7, "beta": -1.3, "activation": activation}
        yield f"f32 {activation}", arrays, options, {}
    for types in MULTIPLIED + MIXED:
        arrays = gradient_arrays(types, 1, 9, 5, 2)
        arrays["grad_y"][0, :8, 0] = torch.tensor(ENDS[:8])
        arrays["grad_y"][0, :8, 1] = -0.0
        yield f"{types} infinities and NaN", arrays, {"beta": -2.0}, {}
        activation = "relu" if types[0] == "f64" else "silu"
        arrays = gradient_arrays(types, 1, 3, 20, 2, "pre")
        yield f"{types} {activation}", arrays, {"activation": activation}, {}
    for name in ("grad_a", "grad_b", "grad_bias", "grad_c"):
        arrays = gradient_arrays(f32, 2, 3, 20, 4, "pre", wanted=name)
        yield f"{name} alone", arrays, {"beta": 2.0, "activation": "gelu"}, {}
    for beta in (0.0, -0.0, 1e-300):
        arrays = gradient_arrays(f32, 1, 5, 9, 4, wanted="grad_c")
        yield f"beta {beta}", arrays, {"beta": beta}, {}
    for rows in (16, 17, 150):  # a run, more than one, several groups of them
        arrays = gradient_arrays(f32, (), rows, 3, 1, "pre", wanted="grad_bias")
        yield f"{rows} rows", arrays, {"activation": "relu"}, {}
    arrays = gradient_arrays(f32, (5, 6), 3, 5, 2, wanted="grad_bias grad_c")
    yield "rows of a batch", arrays, {"beta": 1.0}, {}
    for name, change in LAYOUTS.items():
        arrays = gradient_arrays(f32, (3, 2), 4, 18, 6, "pre")
        of_forward = arrays | {"c": arrays["pre"]}
        changed = {k: v for k, v in change(of_forward).items() if k in arrays}
        every = {"alpha": 0.7, "beta": -1.3, "activation": "relu"}
        yield f"layout {name}", arrays | changed, every, {}
    arrays = gradient_arrays(f32, 1, 6, 5, 4, "pre")
    arrays["grad_bias"] = torch.full([10], 99.0)[::2]
    yield "bias among others", arrays, {"activation": "gelu_tanh"}, {}
    plan = {"rows": 16, "cols": 64, "warps": 8}
    yield f"{plan}", gradient_arrays(f32, 1, 20, 67, 30), {}, plan


class Runs:
    """Sums of eleven runs, which are shortened.

    The second factor of a product is a power of two of its column. So a sum of the other in the
    same order is what is expected, times that.
    """

    def __init__(self):
        generator = torch.Generator().manual_seed(7)
        self.powers = 2.0 ** torch.arange(-6, 7)
        a = torch.randn(2, 6, 10 * RUN + 2, generator=generator)
        b = self.powers.expand(*a.mT.shape[:-1], 13)
        self.arrays = {"a": a, "b": b, "y": torch.full((2, 6, 13), 99.0)}

    def run(self):
        from isobit.ops.matmul import triton, triton_products

        with shortened(triton_products):
            triton.VARIANTS["register_tiled"].run(**self.arrays)

    def canonical(self):
        return {"y": in_order(self.arrays["a"].unbind(-1)).unsqueeze(-1) * self.powers}


class FewRuns(Call):
    """Of whole numbers, whose sums are exact and so the library's, which has one run of them."""

    def __init__(self):
        arrays = matmul_arrays(MULTIPLIED[0], 2, 5, 9, 2 * RUN + 1, "bias c residual pre")
        arrays |= {name: (arrays[name] * 4).round() for name in ("a", "b")}
        options = {"alpha": 0.7, "beta": -1.3, "activation": "gelu"}
        super().__init__("matmul", "fwd", "register_tiled", arrays, options)

    def run(self):
        from isobit.ops.matmul import triton_products

        with shortened(triton_products):
            super().run()


def _turned(array):
    """The same elements, with its last two dimensions exchanged in memory."""
    return array.mT.contiguous().mT


def _batch_turned(array):
    return array.transpose(0, 1).contiguous().transpose(0, 1)


def _among_others(array):
    """The same elements, with gaps between them."""
    wide = torch.full([2 * extent for extent in array.shape], 7.0, dtype=array.dtype)
    part = wide[tuple(slice(None, None, 2) for _ in array.shape)]
    return part.copy_(array)


def _of_all(arrays, change):
    return {name: change(array) for name, array in arrays.items() if array.dim() > 1}


LAYOUTS = {
    "turned": lambda arrays: _of_all(arrays, _turned),
    "among others": lambda arrays: {k: _among_others(v) for k, v in arrays.items()},
    "batch turned": lambda arrays: _of_all(arrays, _batch_turned),
    "only batch of b turned": lambda arrays: {"b": _batch_turned(arrays["b"])},
    "one b": lambda arrays: {"b": arrays["b"][:1, :1].expand(3, 2, 6, 18)},
    "a b for each two": lambda arrays: {"b": arrays["b"][:, :1].expand(3, 2, 6, 18)},
    "one b, batch of a turned": lambda arrays: {
        "a": _batch_turned(arrays["a"]),
        "b": arrays["b"][:1, :1].expand(3, 2, 6, 18),
    },
    "one a and one row of c": lambda arrays: {
        "a": arrays["a"][:1, :1].expand(3, 2, 4, 6),
        "c": arrays["c"][:1, :1, :1].expand(3, 2, 4, 18),
    },
}
