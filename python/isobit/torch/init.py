# SPDX-License-Identifier: Apache-2.0
"""torch.nn.init with numbers that have the same bits on every machine, and whole models.

Names and arguments are those of torch.nn.init; `generator` is an isobit.torch.Generator, or None
for the one that isobit.torch.manual_seed begins. What draws nothing is PyTorch's own.
"""

from math import ceil, sqrt

import torch
from torch.nn.init import _calculate_correct_fan as _fan
from torch.nn.init import _calculate_fan_in_and_fan_out as _fans
from torch.nn.init import (  # noqa: F401, some of them PyTorch's own under our roof
    calculate_gain,
    constant_,
    dirac_,
    eye_,
    ones_,
    zeros_,
)

from isobit.torch.generators import draw
from isobit.torch.orthonormal import orthonormal
from isobit.torch.resetting import reset_parameters_

__all__ = [
    "bernoulli_",
    "kaiming_normal_",
    "kaiming_uniform_",
    "normal_",
    "orthogonal_",
    "reset_parameters_",
    "sparse_",
    "trunc_normal_",
    "uniform_",
    "xavier_normal_",
    "xavier_uniform_",
]


def uniform_(tensor, a=0.0, b=1.0, generator=None):
    """Numbers from a to b, without b itself where that is not a."""
    return draw(tensor, "uniform", generator, low=a, high=b)


def normal_(tensor, mean=0.0, std=1.0, generator=None):
    return draw(tensor, "normal", generator, mean=mean, std=std)


def trunc_normal_(tensor, mean=0.0, std=1.0, a=-2.0, b=2.0, generator=None):
    """Normal numbers between a and b: as if those outside had been drawn again."""
    return draw(tensor, "truncated_normal", generator, mean=mean, std=std, low=a, high=b)


def bernoulli_(tensor, p=0.5, generator=None):
    """1 with probability p, otherwise 0, as a tensor of PyTorch's is filled."""
    return draw(tensor, "bernoulli", generator, p=p)


def xavier_uniform_(tensor, gain=1.0, generator=None):
    fan_in, fan_out = _fans(tensor)
    bound = sqrt(3.0) * (gain * sqrt(2.0 / float(fan_in + fan_out)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor, gain=1.0, generator=None):
    fan_in, fan_out = _fans(tensor)
    return normal_(tensor, 0.0, gain * sqrt(2.0 / float(fan_in + fan_out)), generator)


def _kaiming_std(tensor, a, mode, nonlinearity):
    return calculate_gain(nonlinearity, a) / sqrt(_fan(tensor, mode))


def kaiming_uniform_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    if 0 in tensor.shape:
        return tensor
    bound = sqrt(3.0) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(tensor, a=0, mode="fan_in", nonlinearity="leaky_relu", generator=None):
    if 0 in tensor.shape:
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor, gain=1, generator=None):
    """Of a tensor as a matrix of its first dimension and the others: the rows or, where they are
    more than the columns, the columns are orthogonal and have the length `gain`. The numbers are
    drawn and made orthogonal in float64 whatever the type, by products and sums in a fixed order.
    """
    if tensor.ndim < 2:
        raise ValueError(f"orthogonal_: tensor has {tensor.ndim} dimensions; must have 2 or more")
    if not tensor.is_floating_point():
        raise ValueError(f"orthogonal_: tensor has dtype {tensor.dtype}; must be floating-point")
    if tensor.numel() == 0:
        return tensor
    rows = len(tensor)
    drawn = tensor.new_empty((rows, tensor.numel() // rows), dtype=torch.float64)
    matrix = normal_(drawn, generator=generator)
    if tensor.is_meta:
        return tensor
    with torch.no_grad():
        vectors = matrix if rows < matrix.shape[1] else matrix.t()
        found = orthonormal(vectors) * gain
        return tensor.copy_((found if vectors is matrix else found.t()).reshape(tensor.shape))


def sparse_(tensor, sparsity, std=0.01, generator=None):
    """Normal numbers, and in each column 0 in as many rows as the part `sparsity` of them is,
    rounded up. Which rows, an order of uniform numbers says."""
    if tensor.ndim != 2:
        raise ValueError(f"sparse_: tensor has {tensor.ndim} dimensions; must have 2")
    if not 0 <= sparsity <= 1:
        raise ValueError(f"sparse_: sparsity is {sparsity}; allowed: 0 to 1")
    rows, cols = tensor.shape
    normal_(tensor, 0.0, std, generator)
    keys = uniform_(tensor.new_empty((cols, rows), dtype=torch.float64), generator=generator)
    if tensor.is_meta:
        return tensor
    zeros = keys.argsort(dim=1, stable=True)[:, : ceil(sparsity * rows)]
    with torch.no_grad():
        return tensor.scatter_(0, zeros.t(), 0)
