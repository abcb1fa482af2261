# SPDX-License-Identifier: Apache-2.0
"""torch.nn's modules that normalise channels, with Isobit's bits."""

from torch import nn

from isobit.torch import channel_norm_functions as functions


class _Batch:
    def forward(self, input):
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the mean of all batches so far
                momentum = 1.0 / float(self.num_batches_tracked)
        kept = not self.training or self.track_running_stats
        running_mean = self.running_mean if kept else None
        running_var = self.running_var if kept else None
        training = self.training or (self.running_mean is None and self.running_var is None)
        more = (self.weight, self.bias, training, momentum, self.eps)
        return functions.batch_norm(input, running_mean, running_var, *more)


class BatchNorm1d(_Batch, nn.BatchNorm1d):
    """torch.nn.BatchNorm1d with Isobit's bits.

    Normalises each channel of signals, (batch, channels) or (batch, channels, length), over the
    batch.
    """


class BatchNorm2d(_Batch, nn.BatchNorm2d):
    """torch.nn.BatchNorm2d with Isobit's bits.

    Normalises each channel of images, (batch, channels, height, width), over the batch.
    """


class BatchNorm3d(_Batch, nn.BatchNorm3d):
    """torch.nn.BatchNorm3d with Isobit's bits.

    Normalises each channel of volumes, (batch, channels, depth, height, width), over the batch.
    """


class GroupNorm(nn.GroupNorm):
    """torch.nn.GroupNorm with Isobit's bits.

    Normalises groups of channels of (batch, channels, ...), each image by itself.
    """

    def forward(self, input):
        more = (self.weight, self.bias, self.eps)
        return functions.group_norm(input, self.num_groups, *more)


class _Instance:
    def _apply_instance_norm(self, input):
        return functions.instance_norm(
            input,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training or not self.track_running_stats,
            self.momentum if self.momentum is not None else 0.0,
            self.eps,
        )


class InstanceNorm1d(_Instance, nn.InstanceNorm1d):
    """torch.nn.InstanceNorm1d with Isobit's bits.

    Normalises each channel of each signal, (channels, length) or with a batch before.
    """


class InstanceNorm2d(_Instance, nn.InstanceNorm2d):
    """torch.nn.InstanceNorm2d with Isobit's bits.

    Normalises each channel of each image, (channels, height, width) or with a batch before.
    """


class InstanceNorm3d(_Instance, nn.InstanceNorm3d):
    """torch.nn.InstanceNorm3d with Isobit's bits.

    Normalises each channel of each volume, (channels, depth, height, width) or with a batch before.
    """
