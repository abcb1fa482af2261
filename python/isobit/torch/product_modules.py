# SPDX-License-Identifier: Apache-2.0
"""Linear, torch.nn's with Isobit's bits."""

import torch

from isobit.torch import product_functions, recomputing


class Linear(torch.nn.Linear):
    """torch.nn.Linear, and an activation with one rounding of both. arithmetic: as of
    isobit.torch.matmul. checkpoint: for backward it keeps its input alone, and what comes before an
    activation is computed again, with the same bits."""

    # Of modules that were there before their class too.
    checkpoint, activation, arithmetic = False, None, "canonical"

    def __init__(
        self,
        in_features,
        out_features,
        bias=True,
        device=None,
        dtype=None,
        *,
        activation=None,
        arithmetic="canonical",
        checkpoint=False,
    ):
        super().__init__(in_features, out_features, bias, device, dtype)
        product_functions.options("Linear", activation, arithmetic)
        self.activation, self.arithmetic = activation, arithmetic
        self.checkpoint = checkpoint

    def _options(self):
        """Those of linear."""
        return {"activation": self.activation, "arithmetic": self.arithmetic}

    def forward(self, input):
        given = (input, self.weight, self.bias)
        function = product_functions.linear
        return recomputing.call(self.checkpoint, function, *given, **self._options())

    def extra_repr(self):
        given = (*self._options().items(), ("checkpoint", self.checkpoint))
        return super().extra_repr() + "".join(
            f", {name}={value!r}" for name, value in given if value != getattr(Linear, name)
        )
