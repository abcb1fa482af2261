# SPDX-License-Identifier: Apache-2.0
"""softmax and log_softmax of isobit.numpy."""

import numpy as np

from isobit import _arguments, _arrays, c_abi
from isobit._calls import FLOATS, Call, context


def softmax(x, axis=-1, *, mask=None, scale=1.0):
    """exp(scale x) over its sum along an axis. mask: bool, and expands to x; where it is False,
    there is no element: the result is 0, whatever x holds. An axis that is not the last is copied.
    """
    return _softmax("softmax", x, axis, mask, scale, False)


def log_softmax(x, axis=-1, *, mask=None, scale=1.0):
    """The logarithm of softmax, -inf where mask is False."""
    return _softmax("log_softmax", x, axis, mask, scale, True)


def _softmax(function, x, axis, mask, scale, log):
    call = Call(function, "x", x, FLOATS)
    shape = call.x.shape
    axis = _arguments.dim(function, "axis", axis, max(len(shape), 1))
    scale = _arguments.real(function, "scale", scale)
    arrays = {"x": call.x}
    if mask is not None:
        given = _arrays.checked(function, "mask", mask, ("bool",))
        try:
            arrays["mask"] = np.broadcast_to(given, shape)
        except ValueError:
            raise ValueError(
                f"{function}: mask has shape {given.shape}, which does not expand to that of x, "
                f"{shape}"
            ) from None
    arrays = {name: _last(array, axis) for name, array in arrays.items()}
    y = call.empty(arrays["x"].shape, call.dtype)
    tensors = {name: call.tensor(array) for name, array in (*arrays.items(), ("y", y))}
    c_abi.call("softmax", "fwd", context(), **tensors, scale=scale, log=log)
    y = y.reshape(()) if not shape else np.ascontiguousarray(np.moveaxis(y, -1, axis))
    return call.result(y)


def _last(array, axis):
    return array.reshape(1) if array.ndim == 0 else np.moveaxis(array, axis, -1)
