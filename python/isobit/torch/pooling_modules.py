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
    __doc__ = nn.MaxPool1d.__doc__
    _isobit_function = staticmethod(functions.max_pool1d)


class MaxPool2d(_Max, nn.MaxPool2d):
    __doc__ = nn.MaxPool2d.__doc__
    _isobit_function = staticmethod(functions.max_pool2d)


class AvgPool1d(nn.AvgPool1d):
    __doc__ = nn.AvgPool1d.__doc__

    def forward(self, input):
        more = (self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        return functions.avg_pool1d(input, self.kernel_size, *more)


class AvgPool2d(nn.AvgPool2d):
    __doc__ = nn.AvgPool2d.__doc__

    def forward(self, input):
        more = (self.stride, self.padding, self.ceil_mode, self.count_include_pad)
        return functions.avg_pool2d(input, self.kernel_size, *more, self.divisor_override)


class AdaptiveAvgPool1d(nn.AdaptiveAvgPool1d):
    __doc__ = nn.AdaptiveAvgPool1d.__doc__

    def forward(self, input):
        return functions.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(nn.AdaptiveAvgPool2d):
    __doc__ = nn.AdaptiveAvgPool2d.__doc__

    def forward(self, input):
        return functions.adaptive_avg_pool2d(input, self.output_size)
