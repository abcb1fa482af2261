# SPDX-License-Identifier: Apache-2.0
"""Calls of activation, rope and scan that test_triton.py makes of Triton and of the library."""

import itertools

import torch

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
                for shape in HEADS:
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
                options = {"exclusive": exclusive, "reverse": reverse}
                yield f"{shape} {options}", scan_arrays("f32", "f32", shape), options
    options = {"exclusive": "yes", "reverse": "yes"}
    yield f"init {options}", scan_arrays("f32", "f32", (2, 700, 2), init=True), options
    yield "infinities and NaN", scan_arrays("f32", "f32", (2, 700, 2), broken=True), {}
