# SPDX-License-Identifier: Apache-2.0
"""Which modules of a model are embeddings, and whether Isobit's class computes them."""

from inspect import getattr_static

from torch import nn
from torch.nn.utils import parametrize

from isobit.torch.embedding_functions import unsupported
from isobit.torch.embedding_modules import Embedding
from isobit.torch.probing import Unsuited

# As PyTorch has it; others may exchange it later.
_FORWARD = getattr_static(nn.Embedding, "forward")


def is_embedding(module):
    """By its class, whatever its name is."""
    return isinstance(module, nn.Embedding)


def replacement(module):
    """The class of Isobit's that takes the place of PyTorch's."""
    original = parametrize.type_before_parametrizations(module)
    if getattr_static(original, "forward") is not _FORWARD:
        raise Unsuited(f"{original.__name__} has a forward of its own")
    reason = unsupported(module.max_norm, module.sparse)
    if reason is not None:
        raise Unsuited(f"its {reason}; Isobit has no such embedding")
    return Embedding
