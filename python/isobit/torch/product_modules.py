# SPDX-License-Identifier: Apache-2.0
"""Linear, torch.nn's with Isobit's bits."""

import torch

from isobit.torch import product_functions


class Linear(torch.nn.Linear):
    """torch.nn.Linear, and an activation with one rounding of both."""

    def __init__(
        self, in_features, out_features, bias=True, device=None, dtype=None, *, activation=None
    ):
        super().__init__(in_features, out_features, bias, device, dtype)
        product_functions._code("Linear", activation)
        self.activation = activation

    def forward(self, input):
        activation = getattr(self, "activation", None)  # where the class came after the module
        return product_functions.linear(input, self.weight, self.bias, activation=activation)

    def extra_repr(self):
        activation = getattr(self, "activation", None)
        said = super().extra_repr()
        return said if activation is None else f"{said}, activation={activation!r}"
