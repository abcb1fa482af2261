# SPDX-License-Identifier: Apache-2.0
"""The records of the elementwise operators."""

from isobit.torch.records import SUM, Axis, Operator


def _record(name, *terms, linear):
    def axes(call):
        for dim in range(call.x.ndim):
            yield Axis(dict.fromkeys(terms, dim), (dim,))
        if linear:
            yield Axis(dict.fromkeys(terms, SUM), (SUM,))

    def tangents(_call, along):
        first, *others = (each for each in map(vars(along).get, terms) if each is not None)
        return sum(others, first).clone()

    return Operator(
        name,
        lambda call: call.x.new_empty(call.x.shape),
        rows=terms,
        axes=axes,
        gradients=lambda _call, _wanted, grad_y: dict.fromkeys(terms, grad_y),
        tangents=tangents,
    )


ADD = _record("add", "x", "residual", linear=True)
INCREMENT = _record("increment", "x", linear=False)
RECORDS = (ADD, INCREMENT)
