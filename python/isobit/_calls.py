# SPDX-License-Identifier: Apache-2.0
"""What every function of isobit.numpy is made of: a call with its arrays, and how many threads."""

import numpy as np

from isobit import _arguments, _arrays, c_abi, dlpack
from isobit._library import remedy

FLOATS = ("float32", "float16", "bfloat16", "float64")

_context = c_abi.Context()


def context():
    """What calls are made with."""
    return _context


def set_num_threads(count):
    """How many threads a call may use; 0, as at first, is one for each processor."""
    global _context
    highest = c_abi.MAX_THREADS
    count = _arguments.integer("set_num_threads", "count", count, 0, highest, f"0 to {highest}")
    _context = c_abi.Context(threads=count)


def get_num_threads():
    return _context.threads


class Call:
    """One call: its name in messages, and x, which its other arrays must be like."""

    allowed, row_dims = tuple(_arrays.DTYPES), 1

    def __init__(self, function, name, x, allowed=None):
        self.function, self.name = function, name
        self.x = _arrays.checked(function, name, x, allowed or self.allowed)
        self.dtype = _arrays.NAMES[self.x.dtype]
        self.like = (name, self.dtype)  # why another array must be of some dtype
        self.result = _arrays.to_numpy if isinstance(x, np.ndarray) else dlpack.exporter(x)

    def like_x(self, name, given):
        return self.of_shape_of_x(name, given, (self.dtype,))

    def of_shape_of_x(self, name, given, dtypes):
        return self.input(name, given, dtypes, self.like, self.x.shape, f"{self.name} has")

    def input(self, name, given, dtypes, like, shape, of):
        array = _arrays.checked(self.function, name, given, dtypes, like)
        if array.shape != shape:
            raise ValueError(f"{self.function}: {name} has shape {array.shape}; {of} {shape}")
        return self.tensor(array)

    def tensor(self, array):
        return _arrays.rows_of(array, self.row_dims)

    def empty(self, shape, dtype):
        """An output, of a kind that can be returned."""
        if dtype == "bfloat16" and self.result is _arrays.to_numpy:
            try:
                import ml_dtypes  # noqa: F401
            except ImportError as error:
                raise ImportError(
                    f"{self.function}: results of bfloat16 need ml_dtypes; {remedy('ml_dtypes')}"
                ) from error
        return _arrays.empty(self.function, shape, dtype)

    def named(self, function_argument, dtype, allowed):
        """The name of a dtype, which may be another library's, such as torch.float32."""
        try:
            said = name = np.dtype(dtype).name
        except Exception:  # whatever NumPy makes of what is no dtype
            name, said = str(dtype).rpartition(".")[2], _arguments.shown(dtype)
        if name not in allowed:
            needed = _arrays.needed(allowed, self.like)
            raise TypeError(f"{self.function}: {function_argument} is {said}; {needed}")
        return name
