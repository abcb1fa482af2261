# SPDX-License-Identifier: Apache-2.0
"""What the operators' Triton versions share: variants that a lab can list, launches, rounding."""

import contextlib
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from triton.compiler import ASTSource
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

from isobit.ops.triton_fitting import check

DTYPES = MappingProxyType(
    {
        "f32": torch.float32,
        "f16": torch.float16,
        "bf16": torch.bfloat16,
        "f64": torch.float64,
        "i32": torch.int32,
        "i64": torch.int64,
        "bool": torch.bool,
        "u8": torch.uint8,
    }
)
_POINTERS = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.float64: "*fp64",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
    torch.bool: "*i1",
    torch.uint8: "*u8",
}

# What a variant's plan says.
KNOBS = MappingProxyType(
    {
        "warps": "warps that share a program",
        "runs": "runs of 16 rows that a program adds up",
        "heads": "heads that a program turns at a time",
        "rows": "rows of y, or of a gradient, that a program computes",
        "cols": "columns of y, or of a gradient, that a program computes",
        "channels": "channels of results, or filters, that a program computes",
        "places": "places of results, or weights of a filter, that a program computes",
    }
)

# No product may melt into a sum that follows it, and no denormal may be flushed.
EXACT = MappingProxyType({"enable_fp_fusion": False, "enable_reflect_ftz": False})


@triton.jit
def wide(value):
    """In the type that is computed in."""
    if value.dtype == tl.bfloat16:
        # By its bits, since Triton's interpreter widens subnormal numbers wrongly.
        bits = value.to(tl.uint16, bitcast=True).to(tl.uint32)
        value = (bits << 16).to(tl.float32, bitcast=True)
    elif value.dtype == tl.float16:
        value = value.to(tl.float32)
    return value


@triton.jit
def narrow(value, dtype: tl.constexpr):
    """Rounded once, to nearest even, a NaN as the one canonical NaN."""
    if dtype == tl.bfloat16:
        # In integers, since Triton's interpreter cuts the digits off that this type lacks.
        bits = value.to(tl.uint32, bitcast=True)
        bits = tl.where(value != value, 0x7FC00000, bits + 0x7FFF + (bits >> 16 & 1))
        value = (bits >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)
    elif dtype == tl.float16:
        bits = value.to(tl.float16).to(tl.uint16, bitcast=True)
        value = tl.where(value != value, 0x7E00, bits).to(tl.uint16).to(tl.float16, bitcast=True)
    elif dtype.is_floating():
        value = tl.where(value != value, float("nan"), value)
    return value


@triton.jit
def rounded_to_odd(value):
    """Doubles as floats that round to 16 bits as the doubles would: see core/odd.h."""
    nearest = value.to(tl.float32)
    bits = nearest.to(tl.uint32, bitcast=True)
    back = nearest.to(tl.float64)
    lost = (back != value) & (value == value) & (bits & 1 == 0)
    too_large = tl.abs(back) > tl.abs(value)
    bits = tl.where(lost, tl.where(too_large, bits - 1, bits + 1), bits)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def quotient(a, b):
    """Rounded to nearest: of floats `/` is not."""
    return a / b if a.dtype == tl.float64 else tl.math.div_rn(a, b)


@triton.jit
def scalar(number_bits, like):
    """A number of the type that is computed in, from its bits, since kernels take no doubles."""
    if like.dtype == tl.float64:
        number = tl.full([], number_bits, tl.int64).to(tl.float64, bitcast=True)
    else:
        number = tl.full([], number_bits, tl.int32).to(tl.float32, bitcast=True)
    return number


@triton.jit
def walked(extents, steps, index):
    """Where a turn of loops stands, which are told from the innermost on."""
    at = tl.zeros(index.shape, tl.int64)
    for loop in tl.static_range(len(extents)):
        rest = index // extents[loop]
        at += (index - rest * extents[loop]) * steps[loop]
        index = rest
    return at


@triton.jit
def widened(pointer, at, inside):
    """Elements in the type that is computed in, and zeros outside."""
    return wide(tl.load(pointer + at, mask=inside, other=0))


@triton.jit
def store(pointer, at, value, inside):
    tl.store(pointer + at, narrow(value, pointer.dtype.element_ty), mask=inside)


@dataclass(frozen=True)
class Launch:
    """A kernel with its grid and arguments, by the names of its parameters."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    warps: int = 4

    def __call__(self):
        if 0 not in self.grid:
            with _exact_interpreter(), _quick_interpreter():
                self.kernel[self.grid](**self.arguments, num_warps=self.warps, **EXACT)

    def compiled(self, target):
        """The kernel as Triton makes it for such arguments, without a GPU."""
        types = {name: _type(value) for name, value in self._in_order()}
        values = dict(_leaves(tuple(value for _, value in self._in_order())))
        # Without their wrapping: of a function, Triton's cache wants the source.
        constants = {
            path: getattr(value, "value", value)
            for path, value in values.items()
            if _type(value) == "constexpr"
        }
        divisible = {
            path: [["tt.divisibility", 16]] for path, value in values.items() if _divisible(value)
        }
        source = ASTSource(self.kernel, types, constants, divisible)
        return triton.compile(source, target, {"num_warps": self.warps, **EXACT})

    def parameters(self):
        """What a compiled kernel takes, in order: the arguments that are not known by then."""
        values = _leaves(tuple(value for _, value in self._in_order()))
        return [value for _, value in values if _type(value) != "constexpr"]

    def _in_order(self):
        """The arguments as the kernel takes them; those known when it is compiled are marked."""
        for parameter in self.kernel.params:
            value = self.arguments[parameter.name]
            yield parameter.name, tl.constexpr(value) if parameter.is_constexpr else value


def _leaves(values, path=()):
    """What tuples hold, and the indices that lead there."""
    for i, value in enumerate(values):
        if isinstance(value, tuple):
            yield from _leaves(value, (*path, i))
        else:
            yield (*path, i), value


def _divisible(value):
    """Whether Triton makes use of it that an address or a number is a multiple of 16."""
    if isinstance(value, torch.Tensor):
        value = value.data_ptr()
    return type(value) is int and value % 16 == 0


def _type(value):
    if isinstance(value, tuple):
        types = [_type(each) for each in value]
        return type(value)(*types) if hasattr(value, "_fields") else tuple(types)
    if isinstance(value, torch.Tensor):
        return _POINTERS[value.dtype]
    if type(value) is int and value != 1:  # of which Triton makes a constant
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    return "fp32" if type(value) is float else "constexpr"


@dataclass(frozen=True)
class Case:
    """What a variant may decline: the types and shapes of the arrays, and options, by name."""

    dtypes: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, **arguments):
        names = {dtype: name for name, dtype in DTYPES.items()}
        arrays = {name: a for name, a in arguments.items() if isinstance(a, torch.Tensor)}
        return cls(
            {name: names[array.dtype] for name, array in arrays.items()},
            {name: tuple(array.shape) for name, array in arrays.items()},
            {name: value for name, value in arguments.items() if name not in arrays},
        )


@dataclass(frozen=True)
class Variant:
    """A way to compute, by name. `kinds` says what: the kinds of an operator, or its passes."""

    name: str
    kinds: tuple[str, ...]
    takes: frozenset[str]  # arrays and options
    make: Callable[..., Iterator[Launch]]  # launches, of a whole plan, arrays and options by name
    knobs: Mapping[str, tuple[int, ...]]
    choose: Callable[[Case], Mapping[str, int]]  # its own plan
    declines: Callable[[Case], str] = lambda case: ""  # why it cannot; empty where it can
    any_strides: bool = False  # of arrays whose elements need not be adjacent
    fits: Callable[[Mapping[str, tuple[int, ...]]], None] | None = None  # by shapes; or make checks

    def launches(self, plan: Mapping[str, int] = MappingProxyType({}), **arrays):
        """What fills the outputs among the arrays. A knob that the plan does not name is chosen."""
        if unknown := sorted(set(arrays) - self.takes):
            raise TypeError(f"{self.name}: it does not take {', '.join(unknown)}")
        for name, array in arrays.items():
            if self.any_strides or not isinstance(array, torch.Tensor):
                continue
            if not array.is_contiguous():
                shape, strides = tuple(array.shape), array.stride()
                raise ValueError(
                    f"{self.name}: {name} of shape {shape} has strides {strides}; "
                    "its elements must be adjacent"
                )
        case = Case.of(**arrays)
        if reason := self.declines(case):
            raise NotImplementedError(f"{self.name}: {reason}")
        if self.fits:
            self.fits(case.shapes)
        return self.make({**self.choose(case), **plan}, **arrays)

    def run(self, plan: Mapping[str, int] = MappingProxyType({}), **arrays):
        for launch in self.launches(plan, **arrays):
            launch()


def bits_of(number, dtype):
    """Of a number, rounded to the type that is computed in."""
    number_type, integer_type = ("<d", "<q") if dtype == torch.float64 else ("<f", "<i")
    return struct.unpack(integer_type, struct.pack(number_type, number))[0]


def by_name(*variants: Variant) -> dict[str, Variant]:
    return {variant.name: variant for variant in variants}


def fitting(op, **rules):
    """What raises if arrays do not fit as the operator is described."""
    return lambda shapes: check(op, shapes, **rules)


def parts(count, size):
    """How many parts of a size hold so many."""
    return -(-count // size)


@contextlib.contextmanager
def _exact_interpreter():
    """Triton's interpreter rounds the product in a fused multiply-add as well; ours does not."""
    rounded_twice = InterpreterBuilder.create_fma
    InterpreterBuilder.create_fma = _fused
    try:
        yield
    finally:
        InterpreterBuilder.create_fma = rounded_twice


@contextlib.contextmanager
def _quick_interpreter():
    """Triton's interpreter exchanges the functions of its language at each call of a function in a
    kernel, hundreds of them; ours does so once in a launch for each module that has functions."""
    exchange, exchanged = interpreter._patch_lang, {}

    def once(function):
        names = id(function.__globals__)
        if names not in exchanged:
            exchanged[names] = exchange(function)
        return exchanged[names]

    interpreter._patch_lang = once
    try:
        yield
    finally:
        interpreter._patch_lang = exchange


def _fused(_, x, y, z):
    """x * y + z, rounded once."""
    fused = _fused_doubles if x.data.dtype == np.float64 else _fused_floats
    with np.errstate(all="ignore"):
        return TensorHandle(fused(x.data, y.data, z.data), z.dtype.scalar)


def _fused_floats(x, y, z):
    product = x.astype(np.float64) * y  # double holds it
    total = product + z
    z_part = total - product
    lost = (product - (total - z_part)) + (z - z_part)
    # What lost something is made odd, lest the second rounding mistake it for a tie.
    bits = total.view(np.int64)
    even = np.isfinite(total) & (lost != 0) & (bits & 1 == 0)
    odd = bits + np.where(even, np.where((lost > 0) == (total > 0), 1, -1), 0)
    return odd.view(np.float64).astype(np.float32)


def _fused_double(x, y, z):
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        return x * y + z
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    if not exact:
        return x * y + z  # whose sign is right
    try:
        return exact.numerator / exact.denominator  # Python rounds quotients of integers once
    except OverflowError:
        return math.copysign(math.inf, exact)


def _fused_doubles(x, y, z):
    each = np.frompyfunc(lambda *of: _fused_double(*map(float, of)), 3, 1)
    return np.asarray(each(x, y, z), dtype=np.float64)
