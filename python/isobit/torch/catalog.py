# SPDX-License-Identifier: Apache-2.0
"""The one list of the operators that PyTorch is told of. What is in it is registered."""

from isobit.torch import (
    activations,
    attending,
    channel_norms,
    convolving,
    cross_entropies,
    elementwise,
    embeddings,
    interpolating,
    linear_cross_entropies,
    norm_linear,
    norms,
    pooling,
    products,
    rotation,
    scanning,
    softmaxes,
    transposition,
    varlen_attending,
)

RECORDS = (
    *norms.RECORDS,
    *elementwise.RECORDS,
    *transposition.RECORDS,
    *activations.RECORDS,
    *rotation.RECORDS,
    *scanning.RECORDS,
    *products.RECORDS,
    *norm_linear.RECORDS,
    *convolving.RECORDS,
    *pooling.RECORDS,
    *attending.RECORDS,
    *varlen_attending.RECORDS,
    *softmaxes.RECORDS,
    *cross_entropies.RECORDS,
    *linear_cross_entropies.RECORDS,
    *embeddings.RECORDS,
    *channel_norms.RECORDS,
    *interpolating.RECORDS,
)
