# SPDX-License-Identifier: Apache-2.0
"""torch.nn.MSELoss and the like with Isobit's bits."""

from torch import nn

from isobit.torch import pointwise_loss_functions as functions


class MSELoss(nn.MSELoss):
    """torch.nn.MSELoss, with its arguments."""

    def forward(self, input, target):
        return functions.mse_loss(input, target, reduction=self.reduction)


class L1Loss(nn.L1Loss):
    """torch.nn.L1Loss, with its arguments."""

    def forward(self, input, target):
        return functions.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(nn.SmoothL1Loss):
    """torch.nn.SmoothL1Loss, with its arguments."""

    def forward(self, input, target):
        return functions.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(nn.HuberLoss):
    """torch.nn.HuberLoss, with its arguments."""

    def forward(self, input, target):
        return functions.huber_loss(input, target, self.reduction, self.delta)


class BCEWithLogitsLoss(nn.BCEWithLogitsLoss):
    """torch.nn.BCEWithLogitsLoss, with its arguments."""

    def forward(self, input, target):
        return functions.binary_cross_entropy_with_logits(
            *(input, target, self.weight),
            reduction=self.reduction,
            pos_weight=self.pos_weight,
        )


class NLLLoss(nn.NLLLoss):
    """torch.nn.NLLLoss, with its arguments."""

    def forward(self, input, target):
        return functions.nll_loss(
            *(input, target, self.weight),
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )
