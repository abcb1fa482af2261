# SPDX-License-Identifier: Apache-2.0
"""Rotary embeddings of isobit.numpy: tables, and queries and keys turned by them."""

from collections.abc import Iterable

import numpy as np

from isobit import _arguments, _arrays, c_abi
from isobit._calls import FLOATS, Call, context

STYLES = ("half", "interleaved")
LAYOUTS = ("bshd", "bhsd")
MOST_POSITIONS = 2**27


def rotary_tables(
    length, dim, *, base=10000.0, inv_freq=None, offset=0, positions=None, dtype="float32"
):
    """(cos, sin) of `length` positions, each of shape (length, dim / 2), for `apply_rotary`.

    Position n is offset + n, or offset + positions[n]. Frequency i is base^(-2i / dim), rounded to
    float64, or inv_freq[i], of float32 or float64. The angle is position times frequency, exactly;
    its cosine and sine are computed in float64 and rounded once, to float32 or float64.
    """
    call = "rotary_tables"
    length = _arguments.integer(call, "length", length, 0, MOST_POSITIONS, "0 to 2^27")
    dim = _even(call, "dim", dim)
    name = _arrays.dtype_name(dtype)
    if name not in ("float32", "float64"):
        raise TypeError(f"{call}: dtype is {name}; must be float32 or float64")
    offset, base = _arguments.whole(call, "offset", offset), _arguments.real(call, "base", base)
    cos, sin = (_arrays.empty(call, (length, dim // 2), name) for _ in range(2))
    given = {}
    if inv_freq is not None:
        array = _arrays.checked(call, "inv_freq", inv_freq, ("float64", "float32"))
        if array.shape != (dim // 2,):
            raise ValueError(f"{call}: inv_freq has shape {array.shape}; must be ({dim // 2},)")
        given["inv_freq"] = _arrays.strided(np.ascontiguousarray(array))
    if positions is not None:
        array = _arrays.checked(call, "positions", positions, ("int64",))
        if array.shape != (length,):
            raise ValueError(f"{call}: positions has shape {array.shape}; must be ({length},)")
        given["positions"] = _arrays.strided(np.ascontiguousarray(array))
    c_abi.call(
        *("rope_tables", "fwd", context()),
        **given,
        **{"cos": _arrays.rows_of(cos, 1), "sin": _arrays.rows_of(sin, 1)},
        **{"base": base, "offset_positions": offset},
    )
    return cos, sin


def apply_rotary(
    q,
    k=None,
    *,
    cos=None,
    sin=None,
    position_ids=None,
    cu_seqlens=None,
    style="half",
    layout="bshd",
    base=10000.0,
    offset=0,
    rotary_dim=None,
    out=None,
    backward=False,
):
    """q turned by the angles of its positions, or (q, k) where k is given.

    q and k have the dimensions (batch, seq, heads, dim), or in layout "bhsd" (batch, heads, seq,
    dim); with cu_seqlens, the ends of sequences that stand one after the other, q and k have no
    batch. cos and sin are tables, a row a position; without them those of `base` are computed.
    A position is the offset plus position_ids, (batch, seq) or (seq), or plus the place in the
    sequence. `out` receives the results, as q and k do for (q, k) itself. backward turns by the
    opposite angles.
    """
    name = "apply_rotary"
    require_choice(name, "style", style, STYLES)
    require_choice(name, "layout", layout, LAYOUTS)
    if (cos is None) != (sin is None):
        raise ValueError(f"{name}: cos and sin are given together or not at all")
    offset, base = _arguments.whole(name, "offset", offset), _arguments.real(name, "base", base)
    if rotary_dim is not None:
        rotary_dim = _arguments.whole(name, "rotary_dim", rotary_dim)
    calls = [Call(name, "q", q, FLOATS)]
    if k is not None:
        calls.append(Call(name, "k", k, (calls[0].dtype,)))
    packed = cu_seqlens is not None
    rank = 3 if packed else 4
    for label, call in zip("qk", calls, strict=False):
        if call.x.ndim != rank:
            raise ValueError(f"{name}: {label} has {call.x.ndim} dimensions; must have {rank}")
    if packed and position_ids is not None:
        raise ValueError(f"{name}: position_ids and cu_seqlens are given; one says the positions")

    if out is None:
        outputs = [call.empty(call.x.shape, call.dtype) for call in calls]
    else:
        outputs = [_output(each, calls[0]) for each in (_pair(out) if k is not None else (out,))]

    def view(array):
        array = array[None] if packed else array
        return array.swapaxes(1, 2) if layout == "bhsd" else array

    given = {}
    if packed:
        tokens = view(calls[0].x).shape[1]
        ends = _arrays.checked(name, "cu_seqlens", cu_seqlens, ("int64", "int32"))
        given["positions"] = _arrays.strided(positions_of(name, ends, tokens))
    elif position_ids is not None:
        ids = _arrays.checked(name, "position_ids", position_ids, ("int64",))
        given["positions"] = _arrays.strided(ids)
    if cos is not None:
        real = ("float64",) if calls[0].dtype == "float64" else ("float32",)
        for label, table in (("cos", cos), ("sin", sin)):
            table = _arrays.checked(name, label, table, real, calls[0].like)
            if table.ndim != 2:  # one for each sequence would be read as one after the other
                raise ValueError(
                    f"{name}: {label} has shape {table.shape}; must have two dimensions, a row for "
                    "each position"
                )
            given[label] = _arrays.rows_of(table, 1)
        width = 2 * given["cos"].array.shape[-1]
        rotary_dim = width if rotary_dim is None else rotary_dim
    names = (("grad_y_q", "grad_q"), ("grad_y_k", "grad_k")) if backward else ("q y_q", "k y_k")
    for pair, call, output in zip(names, calls, outputs, strict=False):
        x, y = pair if backward else pair.split()
        to = _arrays.strided(view(output))
        if to.array.ctypes.data != view(output).ctypes.data:
            raise ValueError(f"{name}: out must be aligned, with strides that are not negative")
        given |= {x: _arrays.strided(view(call.x)), y: to}
    c_abi.call(
        *("rope", "bwd" if backward else "fwd", context()),
        **given,
        **{"style": style, "base": base, "offset_positions": offset},
        rotary_dim=0 if rotary_dim is None else rotary_dim,
    )
    if out is not None:
        return out
    results = tuple(call.result(output) for call, output in zip(calls, outputs, strict=True))
    return results if k is not None else results[0]


def _pair(out):
    """The arrays that receive q and k."""
    if not isinstance(out, Iterable):
        said = _arguments.shown(out)
        raise TypeError(f"apply_rotary: out is {said}; must be a tuple of 2 arrays")
    given = tuple(out)
    if len(given) != 2:
        raise ValueError(f"apply_rotary: out has {len(given)} arrays; must have 2, for q and k")
    return given


def _output(given, call):
    array = _arrays.checked(call.function, "out", given, (call.dtype,), call.like)
    if not _arrays.written_through(given, array):
        raise ValueError(
            f"{call.function}: out must be a writable array in this machine's byte order"
        )
    return array


def positions_of(function, ends, tokens):
    """The place of every token in its sequence, of sequences that end where cu_seqlens says."""
    ends = np.asarray(ends).astype(np.int64)
    if ends.ndim != 1 or ends.size == 0 or ends[0] != 0 or ends[-1] != tokens:
        raise ValueError(
            f"{function}: cu_seqlens must be one row of integers from 0 to {tokens}, the tokens"
        )
    lengths = np.diff(ends)
    if (lengths < 0).any():
        at = int(np.argmax(lengths < 0))
        raise ValueError(
            f"{function}: cu_seqlens falls from {ends[at]} to {ends[at + 1]}; may not decrease"
        )
    return np.arange(tokens, dtype=np.int64) - np.repeat(ends[:-1], lengths)


def require_choice(function, name, given, allowed):
    if given not in allowed:
        words = " or ".join(map(repr, allowed))
        raise ValueError(f"{function}: {name} is {given!r}; must be {words}")


def _even(function, name, given):
    value = _arguments.integer(function, name, given, 0, 2**31, "0 to 2^31")
    if value % 2:
        raise ValueError(f"{function}: {name} is {value}; must be even")
    return value
