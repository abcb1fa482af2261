# SPDX-License-Identifier: Apache-2.0
"""dropout of isobit.numpy."""

from isobit import _arguments, c_abi
from isobit._calls import FLOATS, Call, context


def dropout(x, p=0.5, training=True, *, seed=None):
    """x with elements dropped with probability p, the others divided by 1 - p. What is dropped
    depends on the seed, and on an element's row and column alone, as in dropout_add_layer_norm;
    None draws a seed. Where it is not training, a copy."""
    call = Call("dropout", "x", x, FLOATS)
    p = _arguments.number("dropout", "p", p, lambda p: 0 <= p <= 1, "a number from 0 to 1")
    seed = _arguments.seed(call.function, seed)
    y = call.empty(call.x.shape, call.dtype)
    if not training or p == 0:
        y[...] = call.x
        return call.result(y)
    matrix = (call.x if call.x.ndim else call.x.reshape(1), y if y.ndim else y.reshape(1))
    tensors = dict(zip(("x", "y"), map(call.tensor, matrix), strict=True))
    c_abi.call("dropout", "fwd", context(), **tensors, p=p, dropout_seed=seed)
    return call.result(y)
