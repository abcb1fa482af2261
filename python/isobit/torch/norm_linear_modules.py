# SPDX-License-Identifier: Apache-2.0
"""Modules of a norm and what it feeds. Their parameters have the names that Transformer Engine's
modules give theirs, so that either loads what the other saved."""

import math

import torch
from torch import nn

from isobit.torch import norm_linear_functions, product_functions, recomputing


def _parameter(*shape, device, dtype):
    return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))


def _reset_linear(weight, bias):
    """As torch.nn.Linear does."""
    nn.init.kaiming_uniform_(weight, a=math.sqrt(5))
    if bias is not None:
        bound = 1 / math.sqrt(weight.shape[1]) if weight.shape[1] > 0 else 0
        nn.init.uniform_(bias, -bound, bound)


class _BehindNorm(nn.Module):
    """What the modules share: the norm's parameters, and states of Transformer Engine."""

    def __init__(self, size, eps, centered, zero_centered, device, dtype):
        super().__init__()
        self.eps, self.zero_centered = eps, zero_centered
        self.layer_norm_weight = _parameter(size, device=device, dtype=dtype)
        if centered:
            self.layer_norm_bias = _parameter(size, device=device, dtype=dtype)

    def _reset_norm(self):
        nn.init.constant_(self.layer_norm_weight, 0 if self.zero_centered else 1)
        if hasattr(self, "layer_norm_bias"):
            nn.init.zeros_(self.layer_norm_bias)

    def _load_from_state_dict(self, state_dict, prefix, *more):
        # What Transformer Engine keeps of 8-bit types is no parameter, and means nothing here.
        for name in [key for key in state_dict if key.startswith(f"{prefix}_extra_state")]:
            state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *more)


_USUAL = {"activation": None, "zero_centered": False, "arithmetic": "canonical"}


class _NormLinear(_BehindNorm):
    _centered: bool

    def __init__(
        self,
        in_features,
        out_features,
        bias=True,
        eps=None,
        device=None,
        dtype=None,
        *,
        activation=None,
        zero_centered=False,
        arithmetic="canonical",
        checkpoint=False,
    ):
        product_functions.options(type(self).__name__, activation, arithmetic)
        super().__init__(in_features, eps, self._centered, zero_centered, device, dtype)
        self.in_features, self.out_features = in_features, out_features
        self.activation, self.arithmetic = activation, arithmetic
        self.checkpoint = checkpoint
        self.weight = _parameter(out_features, in_features, device=device, dtype=dtype)
        if bias:
            self.bias = _parameter(out_features, device=device, dtype=dtype)
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self):
        self._reset_norm()
        _reset_linear(self.weight, self.bias)

    def extra_repr(self):
        words = f"in_features={self.in_features}, out_features={self.out_features}"
        words += f", bias={self.bias is not None}, eps={self.eps}"
        given = ((name, getattr(self, name)) for name in _USUAL)
        words += "".join(f", {name}={value!r}" for name, value in given if value != _USUAL[name])
        return words + ", checkpoint=True" * self.checkpoint

    def _options(self):
        return {name: getattr(self, name) for name in _USUAL}


class LayerNormLinear(_NormLinear):
    """A LayerNorm over in_features and the Linear that it feeds, as one function with the bits of
    both; see isobit.torch.layer_norm_linear. Parameters: layer_norm_weight, layer_norm_bias, weight
    and bias. checkpoint: as of isobit.torch.Linear."""

    _centered = True

    def __init__(self, in_features, out_features, bias=True, eps=1e-5, *args, **more):
        super().__init__(in_features, out_features, bias, eps, *args, **more)

    def forward(self, input, residual=None):
        return recomputing.call(
            *(self.checkpoint, norm_linear_functions.layer_norm_linear),
            *(input, (self.in_features,), self.layer_norm_weight, self.layer_norm_bias),
            *(self.weight, self.bias, self.eps),
            residual=residual,
            **self._options(),
        )


class RMSNormLinear(_NormLinear):
    """The same with an RMSNorm, which has no bias."""

    _centered = False

    def forward(self, input, residual=None):
        return recomputing.call(
            *(self.checkpoint, norm_linear_functions.rms_norm_linear),
            *(input, (self.in_features,), self.layer_norm_weight),
            *(self.weight, self.bias, self.eps),
            residual=residual,
            **self._options(),
        )


class LayerNormMLP(_BehindNorm):
    """A norm and the two linear layers behind it, with an activation between them; see
    isobit.torch.layer_norm_mlp. normalization: "LayerNorm" or "RMSNorm". With a gate ("swiglu",
    "geglu", "geglu_tanh") fc1_weight has 2 ffn_hidden_size rows, the gate's first. checkpoint,
    which is recompute: nothing between input and result is kept for backward."""

    def __init__(
        self,
        hidden_size,
        ffn_hidden_size,
        bias=True,
        eps=1e-5,
        device=None,
        dtype=None,
        *,
        activation="gelu",
        normalization="LayerNorm",
        zero_centered=False,
        recompute=False,
        checkpoint=False,
    ):
        if normalization not in ("LayerNorm", "RMSNorm"):
            raise ValueError(
                f"LayerNormMLP: normalization is {normalization!r}; allowed: 'LayerNorm', 'RMSNorm'"
            )
        gated = activation in norm_linear_functions.GATES
        if not gated:
            product_functions.options("LayerNormMLP", activation)
        centered = normalization == "LayerNorm"
        super().__init__(hidden_size, eps, centered, zero_centered, device, dtype)
        self.hidden_size, self.ffn_hidden_size = hidden_size, ffn_hidden_size
        self.activation, self.normalization = activation, normalization
        self.recompute = recompute or checkpoint
        rows = ffn_hidden_size * (2 if gated else 1)
        self.fc1_weight = _parameter(rows, hidden_size, device=device, dtype=dtype)
        self.fc2_weight = _parameter(hidden_size, ffn_hidden_size, device=device, dtype=dtype)
        for name, size in (("fc1_bias", rows), ("fc2_bias", hidden_size)):
            made = _parameter(size, device=device, dtype=dtype) if bias else None
            self.register_parameter(name, made)
        self.reset_parameters()

    def reset_parameters(self):
        self._reset_norm()
        _reset_linear(self.fc1_weight, self.fc1_bias)
        _reset_linear(self.fc2_weight, self.fc2_bias)

    def forward(self, input, residual=None):
        centered = self.normalization == "LayerNorm"
        functions = norm_linear_functions
        function = functions.layer_norm_mlp if centered else functions.rms_norm_mlp
        return function(
            *(input, (self.hidden_size,), self.layer_norm_weight),
            *((self.layer_norm_bias,) if centered else ()),
            *(self.fc1_weight, self.fc1_bias, self.fc2_weight, self.fc2_bias, self.eps),
            activation=self.activation,
            residual=residual,
            zero_centered=self.zero_centered,
            recompute=self.recompute,
        )

    def extra_repr(self):
        return (
            f"hidden_size={self.hidden_size}, ffn_hidden_size={self.ffn_hidden_size}, "
            f"bias={self.fc1_bias is not None}, eps={self.eps}, activation={self.activation!r}, "
            f"normalization={self.normalization!r}, recompute={self.recompute}"
        )
