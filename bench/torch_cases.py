# SPDX-License-Identifier: Apache-2.0
"""What benchmarks of isobit.torch compute: cases, who computes them, and whether rightly."""

import sys
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F

import isobit.torch

NORMS = ("layernorm", "rmsnorm")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
TOLERANCE = {"f32": 1e-5, "bf16": 1e-2}  # of the largest value of a result
EPS = 1e-5
POOLED = 1 << 20  # bytes from which on results come from Isobit's pool


class Case(NamedTuple):
    norm: str
    adds: bool
    backward: bool
    dtype: str
    rows: int
    cols: int

    @property
    def size(self):
        """Bytes of one matrix."""
        return self.rows * self.cols * DTYPES[self.dtype].itemsize

    @property
    def moved(self):
        """Bytes at the least: every matrix once in each pass."""
        forward, backward = (4, 4) if self.adds else (2, 3)
        return self.size * (forward + self.backward * backward)

    @property
    def returned(self):
        """Bytes of the matrices that live when the last result is there."""
        return self.size * (1 + self.adds + self.backward)

    def described(self):
        return {
            **{"op": self.norm, "pass": "fwd+bwd" if self.backward else "fwd"},
            **({"with": "residual+sum"} if self.adds else {}),
            **{"rows": self.rows, "cols": self.cols},
            **{"dtype": self.dtype, "weight_dtype": self.dtype},
        }


def torch_add_layer_norm(x, residual, *rest):
    total = x + residual
    return F.layer_norm(total, *rest), total


def torch_add_rms_norm(x, residual, *rest):
    total = x + residual
    return F.rms_norm(total, *rest), total


TORCH = {
    ("layernorm", False): F.layer_norm,
    ("layernorm", True): torch_add_layer_norm,
    ("rmsnorm", False): F.rms_norm,
    ("rmsnorm", True): torch_add_rms_norm,
}
OURS = {
    ("layernorm", False): isobit.torch.layer_norm,
    ("layernorm", True): isobit.torch.add_layer_norm,
    ("rmsnorm", False): isobit.torch.rms_norm,
    ("rmsnorm", True): isobit.torch.add_rms_norm,
}
POOL_LIMIT = isobit.torch.cache_limit()


class Implementation(NamedTuple):
    functions: dict
    compiled: bool = False
    pool: bool = True

    def function(self, case):
        found = self.functions[case.norm, case.adds]
        return torch.compile(found, dynamic=False) if self.compiled else found

    def set_pool(self):
        isobit.torch.set_cache_limit(POOL_LIMIT if self.pool else 0)

    def differs(self, case):
        return self.pool or case.size >= POOLED


IMPLEMENTATIONS = {
    "isobit": Implementation(OURS),
    "torch": Implementation(TORCH),
    "torch.compile": Implementation(TORCH, compiled=True),
    "isobit compiled": Implementation(OURS, compiled=True),
    "isobit without pool": Implementation(OURS, pool=False),
}


class Arrays:
    """The tensors of a case."""

    def __init__(self, case):
        generator = torch.Generator().manual_seed(0)

        def drawn(*shape):
            return torch.randn(*shape, generator=generator).to(DTYPES[case.dtype])

        def matrices(count):
            return [drawn(case.rows, case.cols) for _ in range(count)]

        self.case = case
        self.inputs = matrices(1 + case.adds)
        self.weights = [1 + drawn(case.cols) / 2]
        if case.norm == "layernorm":
            self.weights.append(drawn(case.cols))
        self.gradients = matrices(case.backward * len(self.inputs))

    def call(self, function, convert=lambda tensor: tensor):
        """One call of the case, on these tensors or what they are converted to."""
        inputs, weights, gradients = (
            list(map(convert, some)) for some in (self.inputs, self.weights, self.gradients)
        )
        forward = partial(function, *inputs, (self.case.cols,), *weights, EPS)
        if not self.case.backward:
            return forward
        leaves = [leaf.requires_grad_() for leaf in (*inputs, *weights)]

        def both():
            results = forward()
            return torch.autograd.grad(results, leaves, gradients)

        return both


def tuple_of(results):
    return (results,) if torch.is_tensor(results) else tuple(results)


def error(found, truth):
    """The largest error of a result over its largest value; NaN is larger than any."""
    parts = [
        (each.double() - true).abs().max() / true.abs().max()
        for each, true in zip(tuple_of(found), truth, strict=True)
    ]
    return torch.stack(parts).max().item()


def checked(case, arrays, calls):
    """Errors against double precision; one of ours that is wrong ends the run."""
    exact = arrays.call(TORCH[case.norm, case.adds], lambda tensor: tensor.detach().double())
    truth = tuple_of(exact())
    errors = {name: error(call(), truth) for name, call in calls.items()}
    for name, value in errors.items():
        if IMPLEMENTATIONS[name].functions is OURS and not value <= TOLERANCE[case.dtype]:
            sys.exit(f"{name} errs by {value:.2g} of the largest value: {case}")
    return errors
