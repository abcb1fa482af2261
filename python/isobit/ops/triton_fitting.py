# SPDX-License-Identifier: Apache-2.0
"""Whether the arrays of a call fit each other, by the operator's description: of others, kernels
would reach what lies beyond."""

from functools import cache

from isobit import c_abi


@cache
def _passes(op):
    return [each for each in c_abi.operators() if each["op"] == op]


def _described(op, names):
    """The arguments by name, of the pass that has all of these, and its batch."""
    for described in _passes(op):
        arguments = {each["name"]: each for each in described["arguments"]}
        if arguments.keys() >= names:
            return arguments, next(each["name"] for each in described["dims"] if each["batch"])
    raise ValueError(f"{op}: {', '.join(sorted(names))} do not belong to one pass")


def _extents(op, name, shape, dims, batch):
    """(dim, extent); the batch's are those of all dimensions in front of the others."""
    rest = [dim for dim in dims if dim != batch]
    front = len(shape) - len(rest)
    if front < 0 or (front and batch not in dims):
        least = "at least " if batch in dims else ""
        raise ValueError(
            f"{op}: {name} has shape {shape}; must have {least}{len(rest)} dimensions, "
            f"{', '.join(rest)}"
        )
    yield from zip(rest, shape[front:], strict=True)
    if batch in dims:
        yield batch, shape[:front]


def check(op, shapes, batch_rank=None, of_all=()):
    """Raises if extents of one name differ, or an array is missing.

    shapes: by name. batch_rank: how many dimensions the batch has, unless it may be any number.
    of_all: arrays that may lack the batch, and then belong to all of it.
    """
    arguments, batch = _described(op, shapes.keys())
    kinds = {kind for each in arguments.values() for kind in each["kinds"]}
    for name, argument in arguments.items():
        # What some kinds lack says by itself which of them is meant.
        required = argument["presence"] == "required" and {*argument["kinds"]} == kinds
        if required and name not in shapes:
            raise ValueError(f"{op}: {name} is not given; it is required")
    known = {}
    for name in arguments:
        if name not in shapes:
            continue
        for dim, extent in _extents(op, name, shapes[name], arguments[name]["dims"], batch):
            if dim == batch and name in of_all and not extent:
                continue
            if dim == batch and batch_rank not in (None, len(extent)):
                found, rank = len(shapes[name]), len(shapes[name]) - len(extent) + batch_rank
                raise ValueError(f"{op}: {name} has {found} dimensions; must have {rank}")
            expected, other = known.setdefault(dim, (extent, name))
            if extent != expected:
                raise ValueError(
                    f"{op}: {name} has shape {shapes[name]}, of which {dim} is {extent}; "
                    f"must be {expected}, as {other} has it"
                )
