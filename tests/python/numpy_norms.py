# SPDX-License-Identifier: Apache-2.0
"""isobit.numpy's norms and arrays for them, as its tests take them."""

from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

import isobit.numpy as isobit_numpy

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = tuple(map(np.dtype, ("f4", "f2", BFLOAT16, "f8")))


class Norm(NamedTuple):
    op: str
    plain: Callable
    add: Callable
    dropout_add: Callable
    backward: Callable
    weights: tuple


LAYER = Norm(
    "layernorm",
    isobit_numpy.layer_norm,
    isobit_numpy.add_layer_norm,
    isobit_numpy.dropout_add_layer_norm,
    isobit_numpy.layer_norm_backward,
    ("weight", "bias"),
)
RMS = Norm(
    "rmsnorm",
    isobit_numpy.rms_norm,
    isobit_numpy.add_rms_norm,
    isobit_numpy.dropout_add_rms_norm,
    isobit_numpy.rms_norm_backward,
    ("weight",),
)

of_dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)
of_norms = pytest.mark.parametrize("norm", (LAYER, RMS), ids=lambda norm: norm.op)


def drawn(*shape, dtype=np.float32, seed=1):
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(dtype)


def weights_of(norm, *shape, dtype=np.float32):
    return {
        name: drawn(*shape, dtype=dtype, seed=seed) for seed, name in enumerate(norm.weights, 7)
    }


def same_bits(one, other):
    return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
