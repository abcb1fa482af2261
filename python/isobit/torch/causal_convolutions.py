# SPDX-License-Identifier: Apache-2.0
"""Convolutions along time, in which nothing sees what comes after it: of whole signals, and of
signals that come piece by piece, whose results have the bits of the whole's."""

import torch
from torch.nn import functional as F

from isobit.torch.activation_functions import silu
from isobit.torch.convolutions import Conv1d, check_dims
from isobit.torch.convolving import CONVOLUTION
from isobit.torch.functional import check_tensors, overridable, run
from isobit.torch.records import is_autocast

ACTIVATIONS = (None, "silu", "swish")


def _results(x, weight, bias, zeros, dilation, groups):
    """Of x, before whose first element there are so many zeros."""
    if x.shape[-1] + zeros == dilation * (weight.shape[-1] - 1):  # results without extent
        return _results(F.pad(x, (0, 1)), weight, bias, zeros, dilation, groups)[..., :0]
    return run(
        CONVOLUTION,
        {"x": x, "weight": weight, "bias": bias},
        stride=(1,),
        padding=(zeros,),
        extra_padding=(-zeros,),
        dilation=(dilation,),
        groups=groups,
    )


def _following(state, x):
    return torch.cat((state.to(x.dtype), x), -1)


def _continued(x, state, weight, bias, dilation, groups):
    """The results of x behind the state, which becomes the end of both."""
    joined, reach = _following(state, x), dilation * (weight.shape[-1] - 1)
    seen = joined[..., state.shape[-1] - reach :]
    y = _results(seen, weight, bias, 0, dilation, groups)
    state.copy_(joined[..., x.shape[-1] :])
    return y


def _check_state(op, name, state, x, reach, least=""):
    """least: what is said where the state may be longer than it is looked at."""
    length = state.shape[-1] if state.ndim == x.ndim else -1
    fits = length >= reach if least else length == reach
    if state.shape[:-1] != x.shape[:-1] or not fits:
        batch = "".join(f"{extent}, " for extent in x.shape[:-1])
        raise ValueError(
            f"{op}: {name} has shape {tuple(state.shape)}; must be ({batch}{least}{reach})"
        )
    # What autocast makes of both has lost nothing that it would not lose later.
    if state.dtype != x.dtype and not is_autocast(x.device):
        raise ValueError(f"{op}: {name} is of {state.dtype}; must be of {x.dtype}, as the input is")


def _check(op, dims, activation, x, weight, bias, **state):
    if weight is None:
        raise TypeError(f"{op}: weight must be a Tensor; it is NoneType")
    if check_tensors(op, x=x, weight=weight, bias=bias, **state):
        raise NotImplementedError(f"{op}: a tensor is nested; all must be strided")
    if activation not in ACTIVATIONS:
        words = ", ".join(map(repr, ACTIVATIONS))
        raise ValueError(f"{op}: activation is {activation!r}; allowed: {words}")
    if x.ndim not in dims:
        needed = " or ".join(map(str, dims))
        raise ValueError(f"{op}: x has {x.ndim} dimensions; must have {needed}")
    channels = x.shape[1]
    if weight.ndim != 2 or weight.shape[0] != channels or weight.shape[1] < 1:
        raise ValueError(
            f"{op}: weight has shape {tuple(weight.shape)}; must be ({channels}, width of at least "
            f"1), since x has {channels} channels"
        )
    if bias is not None and bias.shape != (channels,):
        raise ValueError(f"{op}: bias has shape {tuple(bias.shape)}; must be ({channels},)")


def _activated(y, activation):
    return y if activation is None else silu(y)


@overridable
def causal_conv1d(
    x, weight, bias=None, *, initial_state=None, return_final_state=False, activation=None
):
    """activation(y), y[t] being the sum of x[t - width + 1 + j] * weight[j] over j, and bias: of
    each channel of x, (batch, channels, length), with its row of weight, (channels, width).

    initial_state: the width - 1 elements before the first, (batch, channels, width - 1); without
    it, zeros. return_final_state: (y, those before what would come next). activation: None, or
    "silu", also called "swish", which is applied to the rounded sums.
    """
    op = "causal_conv1d"
    _check(op, (3,), activation, x, weight, bias, initial_state=initial_state)
    (channels, width), length = weight.shape, x.shape[-1]
    zeros = width - 1
    if initial_state is None:
        final = F.pad(x, (width - 1 - length, 0)) if return_final_state else None
    else:
        _check_state(op, "initial_state", initial_state, x, width - 1)
        x, zeros = _following(initial_state, x), 0
        # Of its own memory, so that it does not keep the signal's.
        final = x[..., length:].clone() if return_final_state else None
    y = _results(x, weight.unsqueeze(1), bias, zeros, 1, channels)
    y = _activated(y, activation)
    return (y, final) if return_final_state else y


@overridable
def causal_conv1d_update(x, conv_state, weight, bias=None, activation=None):
    """causal_conv1d of what comes next: x is one element of each signal, (batch, channels), or
    several, (batch, channels, length). conv_state, (batch, channels, state_len), holds those
    before, at least width - 1, of which the last are looked at; it is changed in place, and then
    ends with x."""
    op = "causal_conv1d_update"
    if conv_state is None:
        raise TypeError(f"{op}: conv_state must be a Tensor; it is NoneType")
    _check(op, (2, 3), activation, x, weight, bias, conv_state=conv_state)
    piece = x.unsqueeze(-1) if x.ndim == 2 else x
    channels, width = weight.shape
    _check_state(op, "conv_state", conv_state, piece, width - 1, "at least ")
    y = _continued(piece, conv_state, weight.unsqueeze(1), bias, 1, channels)
    y = _activated(y, activation)
    return y.squeeze(-1) if x.ndim == 2 else y


class CausalConv1d(Conv1d):
    """Conv1d with dilation * (kernel_size - 1) zeros before the first element and none behind the
    last: as many results as elements, none of which sees what comes after its own.

    Of a signal in pieces, layer(piece, state) has the bits that the whole has there. The state, at
    first layer.new_state(batch), holds what the next results see of the pieces so far, and is
    changed in place."""

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        dilation=1,
        groups=1,
        bias=True,
        device=None,
        dtype=None,
    ):
        more = {"dilation": dilation, "groups": groups, "bias": bias}
        super().__init__(in_channels, out_channels, kernel_size, **more, device=device, dtype=dtype)

    @property
    def state_len(self):
        return self.dilation[0] * (self.kernel_size[0] - 1)

    def new_state(self, batch=None):
        """Zeros: (batch, in_channels, state_len), or without a batch, as inputs may be."""
        leading = () if batch is None else (batch,)
        return self.weight.new_zeros(*leading, self.in_channels, self.state_len)

    def forward(self, input, state=None):
        op = "CausalConv1d"
        check_dims(op, 1, input, self.weight, self.bias)
        (dilation,) = self.dilation
        more = {"bias": self.bias, "dilation": dilation, "groups": self.groups}
        alone = input.ndim == 2
        x = input.unsqueeze(0) if alone else input
        if x.shape[1] != self.in_channels:
            raise ValueError(f"{op}: input has {x.shape[1]} channels; must have {self.in_channels}")
        if state is None:
            y = _results(x, self.weight, zeros=self.state_len, **more)
            return y.squeeze(0) if alone else y
        if not isinstance(state, torch.Tensor):
            raise TypeError(f"{op}: state must be a Tensor; it is {type(state).__name__}")
        check_tensors(op, input=input, state=state)
        _check_state(op, "state", state, input, self.state_len)
        y = _continued(x, state.unsqueeze(0) if alone else state, self.weight, **more)
        return y.squeeze(0) if alone else y
