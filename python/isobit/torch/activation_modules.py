# SPDX-License-Identifier: Apache-2.0
"""The activations as modules: torch.nn's, and gates, which take the gate first."""

import torch

from isobit.torch import activation_functions


class Sigmoid(torch.nn.Sigmoid):
    """torch.nn.Sigmoid."""

    def forward(self, input):
        return activation_functions.sigmoid(input)


class Tanh(torch.nn.Tanh):
    """torch.nn.Tanh."""

    def forward(self, input):
        return activation_functions.tanh(input)


class GELU(torch.nn.GELU):
    """torch.nn.GELU."""

    def forward(self, input):
        return activation_functions.gelu(input, approximate=self.approximate)


class SiLU(torch.nn.SiLU):
    """torch.nn.SiLU."""

    def forward(self, input):
        return activation_functions.silu(input, inplace=self.inplace)


class SwiGLU(torch.nn.Module):
    """silu(gate) * up."""

    def forward(self, gate, up):
        return activation_functions.swiglu(gate, up)


class GeGLU(torch.nn.Module):
    """gelu(gate) * up."""

    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, gate, up):
        return activation_functions.geglu(gate, up, approximate=self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"
