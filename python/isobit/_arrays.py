# SPDX-License-Identifier: Apache-2.0
"""What is given to isobit.numpy as ndarrays, and ndarrays as the C ABI sees them."""

import math

import numpy as np

from isobit import _arguments, c_abi, dlpack

DTYPES = {name: dlpack.BFLOAT16 if name == "bfloat16" else np.dtype(name) for name in c_abi.DTYPES}
CODES = {DTYPES[name]: code for name, code in c_abi.DTYPES.items()}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def checked(function, name, given, dtypes, like=None):
    """What is given as an ndarray of one of the dtypes, copied only if its bytes are in another
    machine's order."""
    if isinstance(given, np.ma.MaskedArray):
        raise TypeError(f"{function}: {name} is a masked array; fill it first")
    if isinstance(given, np.ndarray):
        array = np.asarray(given)
    elif hasattr(given, "__dlpack__"):
        array = _imported(function, name, given, dtypes, like)
    else:
        raise TypeError(f"{function}: {name} is {_no_array(name, given)}")
    if NAMES.get(array.dtype) in dtypes:
        return array
    if array.dtype.name == "bfloat16" in dtypes:
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="), order="C")
        return array.view(dlpack.BFLOAT16)
    native = array.dtype.newbyteorder("=")
    if NAMES.get(native) in dtypes:
        return array.astype(native, order="C")
    dtype = NAMES.get(native, array.dtype)
    raise TypeError(f"{function}: {name} has dtype {dtype}; {needed(dtypes, like)}")


def written_through(given, array):
    """Whether what is written to the array, into which `checked` made what is given, is written to
    that: not where bytes were exchanged in a copy."""
    lent = not isinstance(given, np.ndarray) or np.may_share_memory(array, given)
    return array.flags.writeable and (lent or not array.size)


def dtype_name(given):
    """Of a dtype, which may be another library's, such as torch.float32; of what is none, what
    messages show. None is none, though NumPy takes it for float64."""
    try:
        return "None" if given is None else np.dtype(given).name
    except Exception:  # whatever NumPy makes of what is no dtype
        name = str(given).rpartition(".")[2]
        known = name in DTYPES or isinstance(given, str)
        return name if known else _arguments.shown(given)


def empty(function, shape, dtype):
    """An output of a dtype's name."""
    try:
        return np.empty(shape, DTYPES[dtype])
    except (MemoryError, ValueError):
        raise MemoryError(
            f"{function}: cannot allocate a result of shape {shape} and dtype {dtype}"
        ) from None


def _imported(function, name, given, dtypes, like):
    try:
        if dlpack.in_host_memory(given):
            return dlpack.imported(given)
    except (BufferError, RuntimeError, ValueError) as error:
        if "Unsupported dtype" in str(error):  # NumPy has none such
            dtype = getattr(given, "dtype", "unknown to NumPy")
            words = f"{function}: {name} has dtype {dtype}; {needed(dtypes, like)}"
            raise TypeError(words) from None
        raise BufferError(f"{function}: {name} cannot be read: {error}") from error
    raise ValueError(f"{function}: {name} is not in CPU memory, as isobit.numpy requires")


def _no_array(name, given):
    """What something is that is neither an ndarray nor has `__dlpack__`, and what to do."""
    if given is None:
        return "None; must be an array"
    kind = type(given).__name__
    for dense in ("toarray", "todense"):  # of scipy.sparse, of others
        if hasattr(given, dense):
            return f"sparse, of type {kind}; convert it with {name}.{dense}()"
    return f"of type {kind}; convert it with np.asarray"


def needed(dtypes, like):
    """like: the name and dtype of what asks for them."""
    *others, last = dtypes
    choice = f"{', '.join(others)} or {last}" if others else last
    return f"must be {choice}" + (f", since {like[0]} has dtype {like[1]}" if like else "")


def rows_of(array, row_dims):
    """The array as rows of its last dimensions, copied if these are not evenly spaced."""
    leading, row = array.shape[:-row_dims], array.shape[-row_dims:]
    matrix = array.reshape(math.prod(leading), math.prod(row))
    rows, cols = matrix.shape
    size = matrix.itemsize
    pitch, step = matrix.strides
    if pitch < 0 or (step != size and cols > 1) or not matrix.flags.aligned:
        matrix = matrix.copy()
        pitch, _ = matrix.strides
    reach = (rows - 1) * pitch + cols * size if matrix.size else 0
    tensor = c_abi.Tensor(
        matrix.ctypes.data, reach, CODES[matrix.dtype], 2, (rows, cols), (pitch // size, 1)
    )
    tensor.array = matrix  # lives as long as the tensor
    return tensor


def strided(array):
    """The array with the strides that it has, copied if the library takes none such."""
    size = array.itemsize
    if not array.flags.aligned or any(
        stride < 0 or stride % size
        for count, stride in zip(array.shape, array.strides, strict=True)
        if count > 1
    ):
        array = array.copy()
    steps = tuple(
        stride // size if count > 1 else 1
        for count, stride in zip(array.shape, array.strides, strict=True)
    )
    last = sum((count - 1) * step for count, step in zip(array.shape, steps, strict=True))
    tensor = c_abi.Tensor(
        array.ctypes.data,
        (last + 1) * size if array.size else 0,
        CODES[array.dtype],
        array.ndim,
        array.shape,
        steps,
    )
    tensor.array = array  # lives as long as the tensor
    return tensor


def to_numpy(array):
    if array.dtype != dlpack.BFLOAT16:
        return array
    from ml_dtypes import bfloat16

    return array.view(bfloat16)
