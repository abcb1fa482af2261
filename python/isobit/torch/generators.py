# SPDX-License-Identifier: Apache-2.0
"""Where random numbers come from: a seed names a sequence, of which each call takes the next."""

from operator import index

import torch
from torch.autograd.graph import increment_version
from torch.library import register_fake

from isobit.torch import adapters

adapters.load()

DISTRIBUTIONS = ("uniform", "normal", "truncated_normal", "bernoulli")

for _prefix in ("", "_"):
    register_fake(f"isobit::{_prefix}random_", lambda *_arguments, **_more: None)


def _whole(what, value):
    """Of 64 bits; a negative number means the same as itself + 2^64."""
    try:
        number = index(value)
    except TypeError:
        kind = type(value).__name__
        raise TypeError(f"Generator: {what} must be an integer; it is {kind}") from None
    if not -(1 << 63) <= number < 1 << 64:
        raise ValueError(f"Generator: {what} is {number}; allowed: -2^63 to 2^64 - 1")
    return number % (1 << 64)


class Generator:
    """A sequence, named by its seed, and how many of its numbers were taken.

    A tensor of n elements takes n numbers, whatever their type and distribution. `seed` and
    `offset` are all of its state. Threads that draw at the same time need a generator each.
    """

    def __init__(self, seed=0, offset=0):
        self._seed, self._offset = _whole("seed", seed), _whole("offset", offset)

    def __repr__(self):
        return f"Generator(seed={self._seed}, offset={self._offset})"

    @property
    def seed(self):
        return self._seed

    @property
    def offset(self):
        return self._offset

    def initial_seed(self):
        return self._seed

    def manual_seed(self, seed):
        """Begins another sequence."""
        self._seed, self._offset = _whole("seed", seed), 0
        return self

    def take(self, count):
        """The offset of the next `count` numbers, which the generator leaves behind it."""
        first = self._offset
        self._offset = (first + count) % (1 << 64)
        return first


default = Generator()


def manual_seed(seed):
    """Begins another sequence for all that is given no generator; returns the generator. Until
    then its seed is 0."""
    return default.manual_seed(seed)


def _signed(number):
    return number - (1 << 64) if number >= 1 << 63 else number


def fill(tensor, distribution, seed, offset, *, low=0.0, high=1.0, mean=0.0, std=1.0, p=0.5):
    """Numbers offset, offset + 1, ... of a sequence as the elements of a tensor, in C order."""
    if tensor.is_meta or tensor.numel() == 0:
        return tensor
    if distribution == "uniform" and low == high:  # as layers without inputs begin
        distribution, mean, std = "normal", low + 0.0, 0.0
    with torch.no_grad():
        dense = tensor.is_contiguous()
        to = tensor if dense else torch.empty_like(tensor, memory_format=torch.contiguous_format)
        numbers = (float(each) for each in (low, high, mean, std, p))
        code = DISTRIBUTIONS.index(distribution)
        torch.ops.isobit.random_(to, code, *numbers, _signed(seed), _signed(offset))
        if not dense:
            tensor.copy_(to)
        elif not torch.compiler.is_compiling():  # which knows it from the schema
            increment_version(tensor)
    return tensor


def draw(tensor, distribution, generator, **numbers):
    """The next numbers of a generator; of the default one if None."""
    generator = default if generator is None else generator
    if not isinstance(generator, Generator):
        kind = f"{type(generator).__module__}.{type(generator).__qualname__}"
        raise TypeError(
            f"generator must be an isobit.torch.Generator; it is {kind}, whose numbers depend on "
            "the machine"
        )
    return fill(tensor, distribution, generator.seed, generator.take(tensor.numel()), **numbers)
