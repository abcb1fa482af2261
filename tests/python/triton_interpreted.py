# SPDX-License-Identifier: Apache-2.0
"""Calls that Triton's interpreter makes and the library repeats, with the same bits.

Triton chooses between interpreter and compiler as it is imported. So a file of tests lists its
calls as CALLS and runs itself as a program, in which they are interpreted: the fixture
`interpreted` of conftest.py.
"""

import contextlib
import ctypes
import importlib
import sys

import pytest
import torch

from isobit import c_abi


class Call:
    """One call of a variant. `of_library` are options that the library has and the variant lacks,
    or takes for granted. What is `full` takes so long that `make test-full` alone interprets it."""

    def __init__(self, op, way, variant, arrays, options=None, plan=None, of_library=None):
        self.op, self.way, self.variant, self.arrays = op, way, variant, arrays
        self.options, self.plan = options or {}, plan or {}
        self.of_library = of_library or {}
        self.full = False

    def run(self):
        variants = importlib.import_module(f"isobit.ops.{self.op}.triton").VARIANTS
        variants[self.variant].run(self.plan, **self.arrays, **self.options)

    def canonical(self):
        """The same arrays as the library leaves them."""
        copies = {id(array): array.clone() for array in self.arrays.values()}
        arrays = {name: copies[id(array)] for name, array in self.arrays.items()}
        tensors = {name: c_tensor(array) for name, array in arrays.items()}
        c_abi.call(self.op, self.way, **tensors, **self.of_library | self.options)
        return arrays


def c_tensor(array):
    shape, strides = ((ctypes.c_int64 * 8)(*each) for each in (array.shape, array.stride()))
    code = c_abi.DTYPES[str(array.dtype).removeprefix("torch.")]
    return c_abi.Tensor(array.data_ptr(), array.nbytes, code, array.dim(), shape, strides)


def named(calls):
    """A test for each of the calls, whose `name` the fixture looks for."""
    marks = {True: (pytest.mark.full,), False: ()}
    names = [
        pytest.param(name, marks=marks[getattr(call, "full", False)])
        for name, call in calls.items()
    ]
    return pytest.mark.parametrize("name", names)


def bits(array):
    return array.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def require_the_librarys_bits(call, interpreted):
    for array, expected in call.canonical().items():
        assert bits(interpreted[array]) == bits(expected), array


# Instead of 512 terms and of 16 times as many: to interpret whole runs takes minutes.
PANEL, RUN = 2, 4


@contextlib.contextmanager
def shortened(*modules):
    """Sums of few terms have several panels and runs."""
    whole = [
        (module, name, getattr(module, name)) for module in modules for name in ("PANEL", "RUN")
    ]
    for module, name, number in whole:
        setattr(module, name, type(number)({"PANEL": PANEL, "RUN": RUN}[name]))
    yield
    for saved in whole:
        setattr(*saved)


def in_order(terms):
    """Their sum, as they are added where panels and runs are so short; of eleven runs, which are
    three nodes of a tree that lacks one between them."""
    panels = [sum(terms[k : k + PANEL], 0.0) for k in range(0, len(terms), PANEL)]
    several = RUN // PANEL
    r = [sum(panels[at : at + several], 0.0) for at in range(0, len(panels), several)]
    eight = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]))
    return eight + ((r[8] + r[9]) + r[10])


def interpret(calls):
    """As a program: the calls that one file names, whose arrays go into the other."""
    wanted, results = sys.argv[1:]
    chosen = {name: calls[name] for name in torch.load(wanted)}
    for call in chosen.values():
        call.run()
    torch.save({name: call.arrays for name, call in chosen.items()}, results)
