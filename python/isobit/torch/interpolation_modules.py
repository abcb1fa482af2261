# SPDX-License-Identifier: Apache-2.0
"""torch.nn's modules for images and signals of another size, with Isobit's bits."""

from torch import nn

from isobit.torch.interpolation_functions import interpolate, unsupported


class _Upsample:
    def forward(self, input):
        return interpolate(
            input,
            self.size,
            self.scale_factor,
            self.mode,
            self.align_corners,
            self.recompute_scale_factor,
        )


class Upsample(_Upsample, nn.Upsample):
    """torch.nn.Upsample with Isobit's bits.

    A signal, (batch, channels, length), or an image, (batch, channels, height, width), in another
    size.
    """

    @staticmethod
    def unsuited(module):
        """Why patch leaves one of PyTorch's in its place."""
        return unsupported(None, module.mode, False)


class UpsamplingNearest2d(_Upsample, nn.UpsamplingNearest2d):
    """torch.nn.UpsamplingNearest2d with Isobit's bits.

    Upsample by the nearest elements, of images.
    """


class UpsamplingBilinear2d(_Upsample, nn.UpsamplingBilinear2d):
    """torch.nn.UpsamplingBilinear2d with Isobit's bits.

    Upsample by 2 x 2 elements, of images whose corners are aligned.
    """
