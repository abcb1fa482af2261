# SPDX-License-Identifier: Apache-2.0
"""torch.nn's modules of losses with Isobit's bits."""

import math

from torch import nn

from isobit.torch import loss_functions


class CrossEntropyLoss(nn.CrossEntropyLoss):
    """torch.nn.CrossEntropyLoss of indices of classes, with z_loss, as cross_entropy has it."""

    def __init__(
        self,
        weight=None,
        size_average=None,
        ignore_index=-100,
        reduce=None,
        reduction="mean",
        label_smoothing=0.0,
        *,
        z_loss=0.0,
    ):
        super().__init__(weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        self.z_loss = z_loss

    def forward(self, input, target):
        return loss_functions.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
        )


class LinearCrossEntropyLoss(nn.CrossEntropyLoss):
    """The cross entropy of a linear layer's results, as linear_cross_entropy has it: the arguments
    (but for options), the parameters and the state of torch.nn.LinearCrossEntropyLoss, which not
    every PyTorch has; and z_loss."""

    def __init__(
        self,
        in_features,
        num_classes,
        *,
        out_features=(),
        bias=False,
        device=None,
        dtype=None,
        reduction="mean",
        weight=None,
        ignore_index=None,
        label_smoothing=0.0,
        z_loss=0.0,
    ):
        super().__init__(weight, reduction=reduction, label_smoothing=label_smoothing)
        self.num_classes, self.out_features = num_classes, tuple(out_features)
        self.ignore_index, self.z_loss = ignore_index, z_loss
        rows = math.prod(self.out_features, start=num_classes)
        self.linear = nn.Linear(in_features, rows, bias=bias, device=device, dtype=dtype)

    def forward(self, input, target):
        shape = (self.num_classes, *self.out_features)
        bias = self.linear.bias
        return loss_functions.linear_cross_entropy(
            input,
            self.linear.weight.reshape(*shape, self.linear.in_features),
            target,
            linear_bias=None if bias is None else bias.reshape(shape),
            weight=self.weight,
            reduction=self.reduction,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            z_loss=self.z_loss,
        )

    def extra_repr(self):
        options = ("num_classes", "out_features", "reduction", "ignore_index", "label_smoothing")
        return ", ".join(f"{name}={getattr(self, name)}" for name in (*options, "z_loss"))
