# SPDX-License-Identifier: Apache-2.0
"""The modules: torch.nn's, computed by Isobit."""

import torch

from isobit.torch import functional


def _shape(normalized_shape, hidden_size, name):
    if (normalized_shape is None) == (hidden_size is None):
        raise TypeError(f"{name}: normalized_shape or hidden_size, its other name, must be given")
    return hidden_size if normalized_shape is None else normalized_shape


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm. hidden_size is another name for normalized_shape; the last two arguments
    are isobit.torch.layer_norm's."""

    zero_centered = False
    out_dtype = None

    def __init__(
        self,
        normalized_shape=None,
        eps=1e-5,
        elementwise_affine=True,
        bias=True,
        device=None,
        dtype=None,
        *,
        hidden_size=None,
        zero_centered=False,
        out_dtype=None,
    ):
        shape = _shape(normalized_shape, hidden_size, "LayerNorm")
        self.zero_centered = zero_centered
        self.out_dtype = out_dtype
        super().__init__(shape, eps, elementwise_affine, bias, device, dtype)

    def reset_parameters(self):
        super().reset_parameters()
        _reset_zero_centered(self)

    def forward(self, input):
        return functional.layer_norm(
            *(input, self.normalized_shape, self.weight, self.bias, self.eps),
            zero_centered=self.zero_centered,
            out_dtype=self.out_dtype,
        )

    def extra_repr(self):
        return super().extra_repr() + _extra_repr(self)


class RMSNorm(torch.nn.RMSNorm):
    """torch.nn.RMSNorm; see LayerNorm."""

    zero_centered = False
    out_dtype = None

    def __init__(
        self,
        normalized_shape=None,
        eps=None,
        elementwise_affine=True,
        device=None,
        dtype=None,
        *,
        hidden_size=None,
        zero_centered=False,
        out_dtype=None,
    ):
        shape = _shape(normalized_shape, hidden_size, "RMSNorm")
        self.zero_centered = zero_centered
        self.out_dtype = out_dtype
        super().__init__(shape, eps, elementwise_affine, device, dtype)

    def reset_parameters(self):
        super().reset_parameters()
        _reset_zero_centered(self)

    def forward(self, input):
        return functional.rms_norm(
            *(input, self.normalized_shape, self.weight, self.eps),
            zero_centered=self.zero_centered,
            out_dtype=self.out_dtype,
        )

    def extra_repr(self):
        return super().extra_repr() + _extra_repr(self)


def _reset_zero_centered(module):
    if module.elementwise_affine and module.zero_centered:
        torch.nn.init.zeros_(module.weight)


def _extra_repr(module):
    """What PyTorch's own module does not have, where it is not the default."""
    options = {"zero_centered": module.zero_centered, "out_dtype": module.out_dtype}
    return "".join(f", {name}={value}" for name, value in options.items() if value)
