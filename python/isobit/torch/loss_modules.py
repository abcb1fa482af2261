# SPDX-License-Identifier: Apache-2.0
"""torch.nn.CrossEntropyLoss with Isobit's bits."""

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
