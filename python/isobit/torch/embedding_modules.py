# SPDX-License-Identifier: Apache-2.0
"""torch.nn.Embedding with Isobit's bits."""

from torch import nn

from isobit.torch import embedding_functions


class Embedding(nn.Embedding):
    """torch.nn.Embedding, as embedding has it: max_norm and sparse are PyTorch's alone."""

    def forward(self, input):
        return embedding_functions.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )
