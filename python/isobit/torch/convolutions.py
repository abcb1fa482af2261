# SPDX-License-Identifier: Apache-2.0
"""The convolutions: torch.nn.functional's of one and two dimensions, and the transposed ones, with
the same bits wherever they are computed."""

from collections.abc import Iterable

import torch
from torch.nn import functional as F

from isobit import _arguments
from isobit.torch.convolving import CONVOLUTION, CONVOLUTION_INPUT
from isobit.torch.functional import overridable, run


def numbers(op, name, value, dims):
    """One number for all dimensions, or one for each."""
    if type(value) is int:
        return (value,) * dims
    if type(value) is tuple and tuple(map(type, value)) == (int,) * dims:
        return value
    if isinstance(value, Iterable) and not isinstance(value, str):
        values = tuple(value)
        if len(values) == 1:
            values *= dims
    else:
        values = (value,) * dims
    if len(values) != dims:
        raise ValueError(f"{op}: {name} has {len(values)} numbers; must have 1 or {dims}")
    for each in values:
        if type(each) is not int and isinstance(each, (str, float, bool, torch.Tensor)):
            raise TypeError(f"{op}: {name} must be integers; it has a {type(each).__name__}")
    return values


def check_dims(op, dims, input, weight, bias):
    for name, tensor in (("input", input), ("weight", weight), ("bias", bias)):
        if tensor is None and name == "bias":
            continue
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{op}: {name} must be a Tensor; it is {type(tensor).__name__}")
        if tensor.is_nested:
            raise NotImplementedError(f"{op}: {name} is nested; must be strided")
    if input.ndim not in (dims + 1, dims + 2):
        raise ValueError(
            f"{op}: input has {input.ndim} dimensions; must have {dims + 2}, or {dims + 1} without "
            "a batch"
        )
    if weight.ndim != dims + 2:
        raise ValueError(f"{op}: weight has {weight.ndim} dimensions; must have {dims + 2}")


def _convolution(op, dims, input, weight, bias, stride, padding, dilation, groups):
    check_dims(op, dims, input, weight, bias)
    stride = numbers(op, "stride", stride, dims)
    dilation = numbers(op, "dilation", dilation, dims)
    extra = (0,) * dims
    if isinstance(padding, str):
        sides = _arguments.sides(op, padding, weight.shape[2:], stride, dilation)
        padding = [before for before, _ in sides]
        extra = [behind - before for before, behind in sides]
    else:
        padding = numbers(op, "padding", padding, dims)
    alone = input.ndim == dims + 1
    tensors = {"x": input.unsqueeze(0) if alone else input, "weight": weight, "bias": bias}
    y = run(
        CONVOLUTION,
        tensors,
        stride=stride,
        padding=padding,
        extra_padding=extra,
        dilation=dilation,
        groups=groups,
    )
    return y.squeeze(0) if alone else y


def _with_bias(y, bias, dims):
    """As the convolution of each channel with 1: the gradient of the bias is then its own sum."""
    one, none = (1,) * dims, (0,) * dims
    tensors = {"x": y, "weight": y.new_ones(y.shape[1], 1, *one), "bias": bias}
    windows = {"stride": one, "padding": none, "extra_padding": none, "dilation": one}
    return run(CONVOLUTION, tensors, **windows, groups=y.shape[1])


def _transposed(op, dims, input, weight, bias, stride, padding, output_padding, groups, dilation):
    check_dims(op, dims, input, weight, bias)
    stride = numbers(op, "stride", stride, dims)
    padding = numbers(op, "padding", padding, dims)
    beyond = numbers(op, "output_padding", output_padding, dims)
    dilation = numbers(op, "dilation", dilation, dims)
    each = zip(beyond, stride, dilation, strict=True)
    if any(b < 0 or b >= max(s, d) for b, s, d in each):
        raise ValueError(
            f"{op}: output_padding is {beyond}; must be less than stride {stride} or dilation "
            f"{dilation}"
        )
    alone = input.ndim == dims + 1
    x = input.unsqueeze(0) if alone else input
    filters = weight.shape[1] * groups
    if bias is not None and bias.shape != (filters,):
        raise ValueError(
            f"{op}: bias has shape {tuple(bias.shape)}; must be ({filters},), the channels of the "
            "result"
        )
    if x.shape[1] != weight.shape[0]:
        raise ValueError(
            f"{op}: input has {x.shape[1]} channels; weight has shape {tuple(weight.shape)}, whose "
            "first extent must be as many"
        )
    # What no window of the convolution sees that this is the gradient of: nothing but the bias.
    reached = [min(b, p) for b, p in zip(beyond, padding, strict=True)]
    reached = [b if b < s else r for b, r, s in zip(beyond, reached, stride, strict=True)]
    sides = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, reached, strict=True)
    size = [(extent - 1) * s - 2 * p + d * (taps - 1) + 1 + b for extent, taps, s, p, d, b in sides]
    rest = [b - r for b, r in zip(beyond, reached, strict=True)]
    whole = [extent + more for extent, more in zip(size, rest, strict=True)]
    if any(extent < 1 for extent in whole):
        raise ValueError(
            f"{op}: the result would have the extents {whole}: (input - 1) * stride - 2 * padding "
            "+ dilation * (kernel - 1) + output_padding + 1; must be at least 1"
        )
    extra = [-b if b >= s else 0 for b, s in zip(reached, stride, strict=True)]
    windows = {"stride": stride, "padding": padding, "extra_padding": extra, "dilation": dilation}
    if any(extent < 1 for extent in size):  # nothing of the input is seen
        y = x.new_zeros(x.shape[0], filters, *whole)
    else:
        tensors = {"grad_y": x, "weight": weight}
        y = run(CONVOLUTION_INPUT, tensors, size=size, **windows, groups=groups)
        if any(rest):
            y = F.pad(y, [number for each in reversed(rest) for number in (0, each)])
    if bias is not None and filters > 0:
        y = _with_bias(y, bias, dims)
    return y.squeeze(0) if alone else y


@overridable
def conv1d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """torch.nn.functional.conv1d."""
    return _convolution("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


@overridable
def conv2d(input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """torch.nn.functional.conv2d. Where input or weight has its channels last in memory, so has
    the result."""
    return _convolution("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


@overridable
def conv_transpose1d(
    input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1
):
    """torch.nn.functional.conv_transpose1d: the gradient of conv1d, to which bias is added."""
    more = (stride, padding, output_padding, groups, dilation)
    return _transposed("conv_transpose1d", 1, input, weight, bias, *more)


@overridable
def conv_transpose2d(
    input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1
):
    """torch.nn.functional.conv_transpose2d: the gradient of conv2d, to which bias is added."""
    more = (stride, padding, output_padding, groups, dilation)
    return _transposed("conv_transpose2d", 2, input, weight, bias, *more)


class _Padded:
    """What torch.nn's modules do, whose padding, unless it is of zeros, is an operation before."""

    def _conv_forward(self, input, weight, bias):
        padding = self.padding
        if self.padding_mode != "zeros":
            beside = self._reversed_padding_repeated_twice
            input, padding = F.pad(input, beside, mode=self.padding_mode), 0
        return self._isobit_function(
            input, weight, bias, self.stride, padding, self.dilation, self.groups
        )


class Conv1d(_Padded, torch.nn.Conv1d):
    """torch.nn.Conv1d."""

    _isobit_function = staticmethod(conv1d)


class Conv2d(_Padded, torch.nn.Conv2d):
    """torch.nn.Conv2d."""

    _isobit_function = staticmethod(conv2d)


class _Transposed:
    def forward(self, input, output_size=None):
        dims = len(self.kernel_size)
        output_padding = self._output_padding(
            input,
            output_size,
            self.stride,
            self.padding,
            self.kernel_size,
            dims,
            self.dilation,
        )
        return self._isobit_function(
            input,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            output_padding,
            self.groups,
            self.dilation,
        )


class ConvTranspose1d(_Transposed, torch.nn.ConvTranspose1d):
    """torch.nn.ConvTranspose1d."""

    _isobit_function = staticmethod(conv_transpose1d)


class ConvTranspose2d(_Transposed, torch.nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d."""

    _isobit_function = staticmethod(conv_transpose2d)
