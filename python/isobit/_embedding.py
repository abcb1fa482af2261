# SPDX-License-Identifier: Apache-2.0
"""embedding of isobit.numpy."""

import numpy as np

from isobit import _arrays, c_abi
from isobit._calls import FLOATS, Call, context


def embedding(input, weight):
    """Rows of weight, of shape (tokens, columns), by their numbers: the very bytes. input has int64
    or int32 of any shape; one that is no token is an error. Indices that are not adjacent are
    copied."""
    function = "embedding"
    call = Call(function, "weight", weight, FLOATS)
    if call.x.ndim != 2:
        raise ValueError(
            f"{function}: weight has shape {call.x.shape}; must have two dimensions, of tokens and "
            "of columns"
        )
    index = _arrays.checked(function, "input", input, ("int64", "int32"))
    y = call.empty((*index.shape, call.x.shape[1]), call.dtype)
    tensors = {"weight": call.tensor(call.x), "index": _adjacent(index), "y": call.tensor(y)}
    c_abi.call("embedding", "fwd", context(), **tensors)
    return call.result(y)


def _adjacent(index):
    """With the dimensions that it has, for messages, where the C ABI has as many."""
    if not 1 <= index.ndim <= c_abi.MAX_RANK:
        index = index.reshape(-1)
    return _arrays.strided(np.ascontiguousarray(index))
