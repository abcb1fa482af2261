# SPDX-License-Identifier: Apache-2.0
"""The calls of layer_norm and rms_norm of isobit.numpy, and of what is made of them."""

import numpy as np

from isobit import _arguments, _arrays, c_abi
from isobit._calls import FLOATS, Call, context

_NARROW = FLOATS[:3]  # computed in float32, and so each other's results


class Norm(Call):
    allowed, has_eps = FLOATS, False  # one of its own, where None is given

    def __init__(self, function, name, x, normalized_shape, eps, zero_centered):
        super().__init__(function, name, x)
        self.row = _arguments.row(function, normalized_shape, name, self.x.shape)
        self.row_dims = len(self.row)
        self.of_y = ("float64",) if self.dtype == "float64" else _NARROW
        self.first_weight = None  # its name and dtype; the others share it
        if eps is None and self.has_eps:
            eps = np.finfo(np.float64 if self.dtype == "float64" else np.float32).eps
        self.options = {
            "eps": _arguments.eps(function, eps),
            "zero_centered": _flag(function, "zero_centered", zero_centered),
        }

    def forward(self, out_dtype, **weights):
        return self.result(self.y(out_dtype, weights))

    def forward_of_sum(self, out_dtype, residual, p=0, seed=0, **weights):
        total = self.empty(self.x.shape, self.dtype)
        dropout = {"dropout": p, "dropout_seed": seed}
        y = self.y(out_dtype, weights, residual=residual, sum=self.tensor(total), **dropout)
        return self.result(y), self.result(total)

    def forward_of_dropout(self, out_dtype, residual, p, training, seed, **weights):
        p = _arguments.probability(self.function, p)
        if not _flag(self.function, "training", training):
            p = 0
        seed = _arguments.seed(self.function, seed)
        if residual is not None:
            residual = self.like_x("residual", residual)
        elif p == 0:  # the library would refuse to write a copy of x
            total = self.empty(self.x.shape, self.dtype)
            total[...] = self.x
            return self.forward(out_dtype, **weights), self.result(total)
        return self.forward_of_sum(out_dtype, residual, p, seed, **weights)

    def y(self, out_dtype, weights, **given):
        dtype = self.dtype
        if out_dtype is not None:
            dtype = self.named("out_dtype", out_dtype, self.of_y)
        y = self.empty(self.x.shape, dtype)
        columns = {name: self.per_column(name, weight) for name, weight in weights.items()}
        self.run("fwd", y=self.tensor(y), **columns, **given)
        return y

    def backward(self, grad_y, weight):
        grad_y = self.of_shape_of_x("grad_y", grad_y, self.of_y)
        weight = self.per_column("weight", weight)
        dtype = self.dtype if weight is None else self.first_weight[1]
        grads = {"grad_x": self.empty(self.x.shape, self.dtype)}
        grads |= {name: self.empty(self.row, dtype) for name in self.weight_grads}
        outputs = {name: self.tensor(grad) for name, grad in grads.items()}
        self.run("bwd", grad_y=grad_y, weight=weight, **outputs)
        return tuple(map(self.result, grads.values()))

    def per_column(self, name, given):
        if given is None:
            return None
        dtypes, like = tuple(dict.fromkeys((self.dtype, "float32"))), self.like
        if self.first_weight:
            dtypes, like = self.first_weight[1:], self.first_weight
        tensor = self.input(name, given, dtypes, like, self.row, "normalized_shape is")
        self.first_weight = self.first_weight or (name, _arrays.NAMES[tensor.array.dtype])
        return tensor

    def run(self, pass_, **given):
        x = self.tensor(self.x)
        c_abi.call(self.op, pass_, context(), x=x, **given, **self.options)


class LayerNorm(Norm):
    op, weight_grads = "layernorm", ("grad_weight", "grad_bias")


class RMSNorm(Norm):
    op, weight_grads, has_eps = "rmsnorm", ("grad_weight",), True


def _flag(function, name, given):
    """As in C any number but 0 is a yes."""
    if not isinstance(given, (bool, np.bool_, int)):
        said = _arguments.shown(given)
        raise TypeError(f"{function}: {name} is {said}; must be True or False")
    return bool(given)
