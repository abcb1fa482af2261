# SPDX-License-Identifier: Apache-2.0
"""The records of a norm with the linear layer that it feeds: their derivatives are those of one
after the other, by the records of these."""

from types import SimpleNamespace

from isobit.torch import norms, products
from isobit.torch.products import MATMUL_BACKWARD, NONE
from isobit.torch.records import SUM, Axis, Operator, changed, narrow_inputs, total_of

_NORMS = {each.name: each for each in norms.RECORDS}


def _flat(tensor):
    return None if tensor is None else tensor.reshape(-1, tensor.shape[-1])


class Pair:
    """The records of one norm's pair with a linear layer."""

    def __init__(self, norm, centered):
        self.norm, self.norm_backward = _NORMS[norm], _NORMS[norm + "_backward"]
        # By their names here, and in the norm's own schema.
        self.weights = {"norm_weight": "weight"} | ({"norm_bias": "bias"} if centered else {})
        kept = ("input", *self.weights, "weight", "bias")
        common = {
            "rows": ("input", "residual"),
            "autocast": narrow_inputs("weight", "bias", "residual"),
        }
        self.forward = Operator(
            f"{norm}_linear",
            self._result,
            outputs=("z",),
            axes=self._axes,
            keeps=kept,
            gradients=lambda call, wanted, grad: self._gradients(
                call, wanted, grad, self._pre(call)
            ),
            tangents=lambda call, along: self._tangents(call, along, self._pre(call))[0],
            **common,
        )
        # With pre, which backward needs: so nothing is computed twice.
        self.activated = Operator(
            f"activated_{norm}_linear",
            lambda call: (self._result(call), self._result(call)),
            outputs=("z", "pre"),
            axes=lambda call: self._axes(call, 2),
            keeps=(*kept, "pre"),
            gradients=self._activated_gradients,
            tangents=lambda call, along: self._tangents(call, along, call.pre),
            **common,
        )
        self.backward = Operator(
            f"{norm}_linear_backward",
            self._gradients_of,
            outputs=(
                "grad_input",
                *(f"grad_{n}" for n in self.weights),
                "grad_weight",
                "grad_bias",
            ),
            like="input",
            axes=self._backward_axes,
            keeps=("grad_z", "input", *self.weights, "weight", "pre"),
            gradients=self._backward_gradients,
            tangents=self._backward_tangents,
        )
        self.records = (self.forward, self.activated, self.backward)

    def _result(self, call):
        cols, of_weight = call.input.shape[-1], call.weight.shape[1]
        if cols != of_weight:
            raise ValueError(
                f"{self.forward.name}: weight has {of_weight} columns; input has {cols}"
            )
        shape = (*call.input.shape[:-1], call.weight.shape[0])
        return call.input.new_empty(shape, dtype=call.weight.dtype)

    @staticmethod
    def _axes(call, results=1):
        last = call.input.ndim - 1

        def axis(dim, **arguments):
            given = {name: at for name, at in arguments.items() if getattr(call, name) is not None}
            return Axis(given, (dim,) * results)

        for dim in range(last):
            yield axis(dim, input=dim, residual=dim)
        yield axis(last, weight=0, bias=0, residual=last)

    # The two operations of a call, as calls of their own.

    def _norm_call(self, call, **others):
        given = {name: getattr(call, here) for here, name in self.weights.items()}
        given |= {"eps": call.eps, "hidden_dims": 1, "zero_centered": call.zero_centered}
        return SimpleNamespace(
            **{"input": call.input, "out_dtype": call.weight.dtype} | given | others
        )

    def _normalised(self, call):
        return self.norm(*self.norm.arguments(self._norm_call(call)))

    @staticmethod
    def _product_call(call, y, **others):
        return SimpleNamespace(
            **{"a": _flat(y), "b": call.weight.mT, "bias": None, "out_dtype": None}
            | {"activation": call.activation, "arithmetic": call.arithmetic}
            | others
        )

    # Of forward.

    def _pre(self, call):
        """What the activation was applied to, made anew."""
        if call.activation == NONE:
            return None
        plain = changed(call, residual=None, activation=NONE)
        return self.forward(*self.forward.arguments(plain))

    def _gradients(self, call, wanted, grad, pre):
        """All but that of the residual, which is grad itself, by one call."""
        names = ("input", *self.weights, "weight")
        found = self.backward(
            *(grad, call.input, *(getattr(call, name) for name in self.weights)),
            *(call.weight, pre, call.eps, call.zero_centered, call.activation),
            *(getattr(wanted, name) for name in names),
            call.bias.dtype if wanted.bias else None,
            call.arithmetic,
        )
        named = {"residual": grad} | dict(zip((*names, "bias"), found, strict=True))
        return {name: each for name, each in named.items() if getattr(wanted, name)}

    def _activated_gradients(self, call, wanted, into_z, into_pre):
        if into_pre is None:
            return self._gradients(call, wanted, into_z, call.pre)
        total = into_pre
        if into_z is not None:
            total = total + products.slope(into_z, call.pre, call.activation)
        found = self._gradients(changed(call, activation=NONE), wanted, total, None)
        if wanted.residual:
            found["residual"] = into_z  # which is added after the activation
        return found

    def _normalised_tangent(self, call, along, y):
        there = {name: getattr(along, here) for here, name in self.weights.items()}
        if along.input is None and all(each is None for each in there.values()):
            return None
        own = SimpleNamespace(input=along.input, **there)
        return self.norm.tangents(self._norm_call(call, y=y), own)

    def _tangents(self, call, along, pre):
        y = self._normalised(call)
        along_y = self._normalised_tangent(call, along, y)
        plain = self._product_call(call, y, activation=NONE)
        shape = (*call.input.shape[:-1], call.weight.shape[0])
        total = total_of(
            None if along_y is None else products.times(plain, _flat(along_y), plain.b),
            None if along.weight is None else products.times(plain, plain.a, along.weight.mT),
            None if along.bias is None else along.bias.to(call.weight.dtype),
        )
        into_pre = y.new_zeros(shape) if total is None else total.expand(plain.a.shape[0], -1)
        into_pre = into_pre.reshape(shape).to(call.weight.dtype)
        bent = into_pre
        if call.activation != NONE:
            bent = products.slope(into_pre, pre, call.activation)
        return (bent if along.residual is None else bent + along.residual), into_pre

    # Of backward: s = grad_z activation'(pre), grad_y = s weight, and so on.

    def _gradients_of(self, call):
        def of(wanted, shape, dtype):
            return call.input.new_empty(shape if wanted else (0,), dtype=dtype)

        cols, features = call.input.shape[-1:], call.weight.shape[:1]
        given = [each for name in self.weights if (each := getattr(call, name)) is not None]
        norm_dtype = (given or [call.input])[0].dtype
        return (
            of(call.needs_input, call.input.shape, call.input.dtype),
            *(of(getattr(call, f"needs_{n}"), cols, norm_dtype) for n in self.weights),
            of(call.needs_weight, call.weight.shape, call.weight.dtype),
            of(call.bias_dtype is not None, features, call.bias_dtype or call.weight.dtype),
        )

    def _backward_axes(self, call):
        last = call.input.ndim - 1
        wanted = (
            *(call.needs_input, *(getattr(call, f"needs_{name}") for name in self.weights)),
            *(call.needs_weight, call.bias_dtype is not None),
        )
        sums = (SUM,) * len(self.weights)

        def axis(results, **arguments):
            given = {name: at for name, at in arguments.items() if getattr(call, name) is not None}
            found = zip(results, wanted, strict=True)
            return Axis(given, tuple(each if want else None for each, want in found))

        for dim in range(last):
            yield axis((dim, *sums, SUM, SUM), grad_z=dim, input=dim, pre=dim)
        yield axis((SUM, *sums, 0, 0), grad_z=last, weight=0, pre=last)

    def _inner(self, call):
        """The product's backward call."""
        return self._product_call(
            *(call, self._normalised(call)),
            grad_y=_flat(call.grad_z),
            pre=_flat(call.pre),
            needs_a=True,
            needs_b=True,
            bias_dtype=call.bias_dtype,
        )

    def _norm_backward_call(self, call, grad_y):
        given = {f"needs_{name}": True for name in ("input", *self.weights.values())}
        inner = self._norm_call(call, grad_y=grad_y.reshape(call.input.shape), **given)
        found = zip(self.norm_backward.outputs, self.norm_backward.results(inner), strict=True)
        return changed(inner, **dict(found))

    def _through_norm(self, call, grad_y):
        inner = self._norm_backward_call(call, grad_y)
        return self.norm_backward(*self.norm_backward.arguments(inner))

    def _backward_gradients(self, call, wanted, into_input, *into):
        *into_weights, into_weight, into_bias = into
        asked = (call.needs_input, *(getattr(call, f"needs_{name}") for name in self.weights))
        into_norm = [
            each if wants else None
            for each, wants in zip((into_input, *into_weights), asked, strict=True)
        ]
        inner, found = self._inner(call), {}
        along_y = None  # what comes into the gradient of y
        if any(each is not None for each in into_norm):
            (grad_y, *_) = MATMUL_BACKWARD(*MATMUL_BACKWARD.arguments(inner))
            of_norm = self.norm_backward.gradients(
                self._norm_backward_call(call, grad_y),
                SimpleNamespace(grad_y=True, input=wanted.input, weight=wanted.norm_weight),
                *into_norm,
            )
            along_y = _flat(of_norm.get("grad_y"))
            found = {"input": of_norm.get("input"), "norm_weight": of_norm.get("weight")}
        of_product = MATMUL_BACKWARD.gradients(
            inner,
            SimpleNamespace(grad_y=wanted.grad_z, a=True, b=wanted.weight, pre=wanted.pre),
            *(along_y, into_weight.mT if call.needs_weight and into_weight is not None else None),
            into_bias,
        )
        for name, here in (("grad_y", "grad_z"), ("pre", "pre")):
            if (each := of_product.get(name)) is not None:
                found[here] = each.reshape(call.grad_z.shape)
        if (each := of_product.get("b")) is not None:
            found["weight"] = each.mT
        if (grad_y := of_product.get("a")) is not None:  # the weight's gradient is made of y
            through = self._through_norm(call, grad_y.to(call.weight.dtype))
            for name, each in zip(("input", *self.weights), through, strict=True):
                found[name] = total_of(found.get(name), each)
        return {name: each for name, each in found.items() if getattr(wanted, name)}

    def _backward_tangents(self, call, along):
        inner = self._inner(call)
        y = inner.a.reshape(call.input.shape)
        along_y = self._normalised_tangent(call, along, y)
        turned = None if along.weight is None else along.weight.mT
        grad_y, _, _ = MATMUL_BACKWARD(*MATMUL_BACKWARD.arguments(inner))
        into_y, into_weight, into_bias = MATMUL_BACKWARD.tangents(
            inner,
            SimpleNamespace(
                grad_y=_flat(along.grad_z), a=_flat(along_y), b=turned, pre=_flat(along.pre)
            ),
        )
        own = SimpleNamespace(
            grad_y=into_y.reshape(call.input.shape), input=along.input, weight=along.norm_weight
        )
        into_norm = self.norm_backward.tangents(self._norm_backward_call(call, grad_y), own)
        every = (*into_norm, into_weight.mT, into_bias)
        return tuple(
            each if like.shape == each.shape else like.zero_()
            for each, like in zip(every, self._gradients_of(call), strict=True)
        )


LAYER_NORM_LINEAR = Pair("layer_norm", centered=True)
RMS_NORM_LINEAR = Pair("rms_norm", centered=False)
RECORDS = (*LAYER_NORM_LINEAR.records, *RMS_NORM_LINEAR.records)
