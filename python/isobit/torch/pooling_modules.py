# SPDX-License-Identifier: Apache-2.0
"""torch.nn's modules for pooling with Isobit's bits."""

from torch import nn

from isobit.torch import pooling_functions as functions


class _Max:
    def forward(self, input):
        return self._isobit_function(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )


class MaxPool1d(_Max, nn.MaxPool1d):
    """torch.nn.MaxPool1d with Isobit's bits.

    The largest element of each window of a signal, (channels, length) or with batches before.
    """

    _isobit_function = staticmethod(functions.max_pool1d)


class MaxPool2d(_Max, nn.MaxPool2d):
    """torch.nn.MaxPool2d with Isobit's bits.

    The largest element of each window of an image, (channels, height, width) or with batches
    before.
    """

    _isobit_function = staticmethod(functions.max_pool2d)


class AvgPool1d(nn.AvgPool1d):
    """torch.nn.AvgPool1d with Isobit's bits.

    The mean of each window of a signal, (channels, length) or with batches before.
    """

    def forward(self, input):
        more = (self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        return functions.avg_pool1d(input, self.kernel_size, *more)


class AvgPool2d(nn.AvgPool2d):
    """torch.nn.AvgPool2d with Isobit's bits.

    The mean of each window of an image, (channels, height, width) or with batches before.
    """

    def forward(self, input):
        more = (self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        return functions.avg_pool2d(input, self.kernel_size, *more, self.divisor_override)


class AdaptiveAvgPool1d(nn.AdaptiveAvgPool1d):
    """torch.nn.AdaptiveAvgPool1d with Isobit's bits.

    The means of `output_size` parts of a signal, (channels, length) or with batches before.
    """

    def forward(self, input):
        return functions.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(nn.AdaptiveAvgPool2d):
    """torch.nn.AdaptiveAvgPool2d with Isobit's bits.

    The means of `output_size` parts of an image, (channels, height, width) or with batches
    before.
    """

    def forward(self, input):
        return functions.adaptive_avg_pool2d(input, self.output_size)
