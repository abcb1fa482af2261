# SPDX-License-Identifier: Apache-2.0
"""The modules: torch.nn's, computed by Isobit."""

import torch

from isobit.torch import functional


def _shape(normalized_shape, hidden_size, name):
    if (normalized_shape is None) == (hidden_size is None):
        given = "neither is" if hidden_size is None else "both are"
        raise TypeError(
            f"{name}: normalized_shape or hidden_size, its other name, must be given; {given}"
        )
    return hidden_size if normalized_shape is None else normalized_shape


class _Norm:
    """What both have beside PyTorch's."""

    zero_centered = False
    out_dtype = None
    sequence_parallel = False

    def reset_parameters(self):
        super().reset_parameters()
        if self.elementwise_affine and self.zero_centered:
            torch.nn.init.zeros_(self.weight)
        self._mark()

    # A copy of a parameter, or one that comes from meta, has lost its mark.

    def _apply(self, fn, recurse=True):
        super()._apply(fn, recurse)
        self._mark()
        return self

    def __setstate__(self, state):
        super().__setstate__(state)
        self._mark()

    def _mark(self):
        if self.sequence_parallel:
            for parameter in self.parameters():
                parameter.sequence_parallel = True

    def extra_repr(self):
        names = ("zero_centered", "out_dtype", "sequence_parallel")
        given = {name: value for name in names if (value := getattr(self, name))}
        return super().extra_repr() + "".join(f", {name}={value}" for name, value in given.items())


class LayerNorm(_Norm, torch.nn.LayerNorm):
    """torch.nn.LayerNorm. hidden_size is another name for normalized_shape; zero_centered and
    out_dtype are isobit.torch.layer_norm's. sequence_parallel marks the parameters for Megatron,
    which sums the gradients of those so marked over ranks that have different rows."""

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
        sequence_parallel=False,
    ):
        shape = _shape(normalized_shape, hidden_size, "LayerNorm")
        self.zero_centered = zero_centered
        self.out_dtype = out_dtype
        self.sequence_parallel = sequence_parallel
        super().__init__(shape, eps, elementwise_affine, bias, device, dtype)

    def forward(self, input):
        return functional.layer_norm(
            *(input, self.normalized_shape, self.weight, self.bias, self.eps),
            zero_centered=self.zero_centered,
            out_dtype=self.out_dtype,
        )


class RMSNorm(_Norm, torch.nn.RMSNorm):
    """torch.nn.RMSNorm; see LayerNorm."""

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
        sequence_parallel=False,
    ):
        shape = _shape(normalized_shape, hidden_size, "RMSNorm")
        self.zero_centered = zero_centered
        self.out_dtype = out_dtype
        self.sequence_parallel = sequence_parallel
        super().__init__(shape, eps, elementwise_affine, device, dtype)

    def forward(self, input):
        return functional.rms_norm(
            *(input, self.normalized_shape, self.weight, self.eps),
            zero_centered=self.zero_centered,
            out_dtype=self.out_dtype,
        )


class Transpose(torch.nn.Module):
    """Exchanges two dimensions, as isobit.torch.transpose does."""

    def __init__(self, dim0, dim1, dtype=None):
        super().__init__()
        self.dim0, self.dim1, self.dtype = dim0, dim1, dtype

    def forward(self, x):
        return functional.transpose(x, self.dim0, self.dim1, dtype=self.dtype)

    def extra_repr(self):
        dtype = "" if self.dtype is None else f", dtype={self.dtype}"
        return f"{self.dim0}, {self.dim1}{dtype}"
