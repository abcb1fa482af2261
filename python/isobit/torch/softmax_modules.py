# SPDX-License-Identifier: Apache-2.0
"""torch.nn.Softmax and torch.nn.LogSoftmax with Isobit's bits."""

from torch import nn

from isobit.torch import softmax_functions


class Softmax(nn.Softmax):
    __doc__ = nn.Softmax.__doc__

    def forward(self, input):
        return softmax_functions.softmax(input, self.dim)


class LogSoftmax(nn.LogSoftmax):
    __doc__ = nn.LogSoftmax.__doc__

    def forward(self, input):
        return softmax_functions.log_softmax(input, self.dim)
