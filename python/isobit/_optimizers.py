# SPDX-License-Identifier: Apache-2.0
"""The steps of optimisers of isobit.numpy, and the norms of vectors."""

from collections.abc import Hashable

import numpy as np

from isobit import _arguments, _arrays, c_abi
from isobit._calls import FLOATS, Call, context

_ORDERS = {2: "l2", 1: "l1", np.inf: "max"}


class _Step(Call):
    """A call, whose states are like param. Results are new."""

    def __init__(self, function, param, grad, narrow):
        super().__init__(function, "param", param, FLOATS)
        beside = ("float16", "bfloat16") if self.dtype == "float32" else ()
        self.tensors = {"param": self.tensor(self.x)}
        self.tensors["grad"] = self.of_shape_of_x("grad", grad, (self.dtype, *beside))
        self.results = {}
        self.output("new_param", self.dtype)
        if narrow:
            checked = _arrays.checked(function, "grad", grad, (self.dtype, *beside))
            self.narrow_dtype = _arrays.NAMES[checked.dtype]

    def state(self, name, array):
        self.tensors[name] = self.like_x(name, array)
        self.new_state(name)

    def new_state(self, name):
        self.output(f"new_{name}", self.dtype)

    def output(self, name, dtype):
        self.results[name] = self.empty(self.x.shape, dtype)
        self.tensors[name] = self.tensor(self.results[name])

    def run(self, narrow, **options):
        if narrow:
            self.output("narrow", self.narrow_dtype)
        c_abi.call(self.function, "fwd", context(), **self.tensors, **options)
        found = tuple(map(self.result, self.results.values()))
        return found[0] if len(found) == 1 else found


def sgd(
    param,
    grad,
    momentum_buffer=None,
    *,
    lr=1e-3,
    momentum=0.0,
    dampening=0.0,
    weight_decay=0.0,
    nesterov=False,
    maximize=False,
    narrow=False,
):
    """A step of SGD, with the bits of isobit.torch.optim.SGD: the new param and, with momentum, the
    new momentum_buffer, which is None before the first step. grad may be of 16 bits beside float32;
    with narrow the new param in its type is a last result."""
    call = _Step("sgd", param, grad, narrow)
    numbers = _arguments.reals(
        "sgd", lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay
    )
    if momentum_buffer is not None:
        call.state("momentum_buffer", momentum_buffer)
    elif numbers["momentum"] != 0:
        call.new_state("momentum_buffer")
    return call.run(narrow, nesterov=nesterov, maximize=maximize, **numbers)


def adam(
    param,
    grad,
    exp_avg,
    exp_avg_sq,
    max_exp_avg_sq=None,
    *,
    step,
    lr=1e-3,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.0,
    decoupled=False,
    maximize=False,
    narrow=False,
):
    """The step-th step, counted from 1, of Adam or, with decoupled, AdamW, with the bits of
    isobit.torch.optim: the new param, exp_avg, exp_avg_sq and, where it is given (AMSGrad),
    max_exp_avg_sq. grad and narrow as in sgd."""
    call = _Step("adam", param, grad, narrow)
    call.state("exp_avg", exp_avg)
    call.state("exp_avg_sq", exp_avg_sq)
    if max_exp_avg_sq is not None:
        call.state("max_exp_avg_sq", max_exp_avg_sq)
    numbers = _arguments.reals("adam", lr=lr, eps=eps, weight_decay=weight_decay)
    numbers |= _betas("adam", betas)
    numbers["step"] = _arguments.whole("adam", "step", step)
    return call.run(narrow, decoupled=decoupled, maximize=maximize, **numbers)


def lion(
    param,
    grad,
    exp_avg,
    *,
    lr=1e-4,
    betas=(0.9, 0.99),
    weight_decay=0.0,
    maximize=False,
    narrow=False,
):
    """A step of Lion, with the bits of isobit.torch.optim.Lion: the new param and exp_avg. grad and
    narrow as in sgd."""
    call = _Step("lion", param, grad, narrow)
    call.state("exp_avg", exp_avg)
    numbers = _arguments.reals("lion", lr=lr, weight_decay=weight_decay) | _betas("lion", betas)
    return call.run(narrow, maximize=maximize, **numbers)


def _betas(function, betas):
    try:
        beta1, beta2 = betas
    except (TypeError, ValueError):
        said = _arguments.shown(betas)
        raise TypeError(f"{function}: betas is {said}; must be two numbers") from None
    return _arguments.reals(function, beta1=beta1, beta2=beta2)


def vector_norm(x, ord=2):
    """The lengths of the vectors along the last axis, in float32, or float64 beside float64: the
    root of the sum of squares (ord 2), the sum of magnitudes (1) or the largest (inf)."""
    if getattr(ord, "ndim", None) == 0:
        ord = ord.item()
    if not isinstance(ord, Hashable) or ord not in _ORDERS:
        raise NotImplementedError(
            f"vector_norm: ord is {_arguments.shown(ord)}; allowed: 1, 2 and inf; numpy.linalg has "
            "others"
        )
    call = Call("vector_norm", "x", x, FLOATS)
    rows = call.x.reshape(1) if call.x.ndim == 0 else call.x
    norm = np.empty(rows.shape[:-1], np.float64 if call.dtype == "float64" else np.float32)
    flat = norm.reshape(-1)
    tensors = {"x": call.tensor(rows), "norm": call.tensor(flat)}
    c_abi.call("vector_norm", "fwd", context(), **tensors, order=_ORDERS[ord])
    return call.result(norm)
