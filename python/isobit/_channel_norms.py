# SPDX-License-Identifier: Apache-2.0
"""Norms of channels of isobit.numpy."""

from math import prod

from isobit import _arguments, _arrays, c_abi
from isobit._calls import FLOATS, Call, context


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """(input - mean) / sqrt(variance + eps) * weight + bias for input (batch, channels, ...), with
    mean and variance of each of num_groups groups of channels of an image. Of any strides."""
    call = _Channels("group_norm", input)
    groups = _arguments.integer("group_norm", "num_groups", num_groups, 1, 1 << 62, "at least 1")
    tensors = call.weights(weight=weight, bias=bias)
    numbers = _arguments.reals("group_norm", eps=eps)
    return call.run("group_norm", tensors, groups=groups, **numbers)


def batch_norm(
    input,
    running_mean,
    running_var,
    weight=None,
    bias=None,
    training=False,
    momentum=0.1,
    eps=1e-5,
):
    """(input - mean) / sqrt(variance + eps) * weight + bias for input (batch, channels, ...): in
    training with mean and variance of each channel, and running_mean and running_var, where they
    are given, are changed in place; otherwise with these. Of any strides."""
    call = _Channels("batch_norm", input)
    if training and call.x.shape[0] * prod(call.x.shape[2:]) == 1:
        raise ValueError(
            f"batch_norm: input of shape {call.x.shape} has one value of each channel; training "
            "needs more"
        )
    numbers = _arguments.reals("batch_norm", momentum=momentum, eps=eps)
    tensors = call.weights(weight=weight, bias=bias)
    for name, given in (("running_mean", running_mean), ("running_var", running_var)):
        if given is None:
            continue
        array = call.statistics(name, given, written=training)
        tensors[name] = call.tensor(array)
        if training:
            tensors[name.replace("running", "next")] = tensors[name]
    return call.run("batch_norm", tensors, training=bool(training), **numbers)


class _Channels(Call):
    """A call whose x is (batch, channels, extent), and its result."""

    def __init__(self, function, input):
        super().__init__(function, "input", input, FLOATS)
        if self.x.ndim < 2:
            raise ValueError(f"{function}: input has {self.x.ndim} dimensions; must have 2 or more")
        self.real = "float64" if self.dtype == "float64" else "float32"

    def weights(self, **given):
        channels = self.x.shape[1:2]
        types = tuple(dict.fromkeys((self.dtype, "float32")))
        return {
            name: self.input(name, each, types, self.like, channels, "there are channels")
            for name, each in given.items()
            if each is not None
        }

    def statistics(self, name, given, written):
        array = _arrays.checked(self.function, name, given, (self.real,), self.like)
        if array.shape != self.x.shape[1:2]:
            raise ValueError(
                f"{self.function}: {name} has shape {array.shape}; input has shape {self.x.shape}"
            )
        in_place = array.flags.c_contiguous and array.flags.aligned
        if written and not (in_place and _arrays.written_through(given, array)):
            raise ValueError(
                f"{self.function}: {name} is changed in training; it must be writable, adjacent "
                "and aligned, in this machine's byte order"
            )
        return array

    def run(self, op, tensors, **options):
        flat = (*self.x.shape[:2], prod(self.x.shape[2:]))
        y = self.empty(self.x.shape, self.dtype)
        x, to = self.x.reshape(flat), y.reshape(flat)
        arrays = {"x": _arrays.strided(x), "y": _arrays.strided(to)}
        c_abi.call(op, "fwd", context(), **arrays, **tensors, **options)
        return self.result(y)
