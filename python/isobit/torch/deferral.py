# SPDX-License-Identifier: Apache-2.0
"""Norms whose rows are made where they are needed: a linear layer normalises them while it packs
them, anything else has them computed first. So what was normalised is kept for backward, and what a
linear layer multiplied is not; every result and gradient has the bits of norm and layer apart."""

import weakref
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch.autograd import Function

from isobit.torch import norms, product_functions
from isobit.torch.derived import transforms_active
from isobit.torch.functional import known_eps
from isobit.torch.modules import LayerNorm, RMSNorm
from isobit.torch.norm_linear import LAYER_NORM_LINEAR, RMS_NORM_LINEAR
from isobit.torch.norms import Given, Gradients, Incoming, Options
from isobit.torch.probing import Recipe
from isobit.torch.products import NONE
from isobit.torch.records import NARROW, is_autocast

# What became of the rows of each norm, for patch's report: {norm: {what took them: None}}.
TAKEN = weakref.WeakKeyDictionary()
A_LINEAR_LAYER = "a linear layer"

# What of a tensor is known before its elements are.
_KNOWN = {
    torch.Tensor.dim,
    torch.Tensor.numel,
    torch.Tensor.size,
    *(
        getattr(torch.Tensor, name).__get__
        for name in ("device", "dtype", "grad_fn", "is_leaf", "is_nested", "layout", "ndim")
    ),
    *(getattr(torch.Tensor, name).__get__ for name in ("requires_grad", "shape")),
}


class NormCall(NamedTuple):
    """A call of a norm, but for its tensors."""

    kind: norms.Norm
    options: Options

    @property
    def pair(self):
        """The records of it with a linear layer."""
        return LAYER_NORM_LINEAR if self.kind.centered else RMS_NORM_LINEAR

    def shared_options(self, arithmetic):
        """Those of both records."""
        options = {"eps": self.options.eps, "zero_centered": self.options.zero_centered}
        return options | {"activation": NONE, "arithmetic": arithmetic}

    def given(self, tensors):
        """What it normalises and its weights, by the names that these records have for them."""
        return dict(zip(("input", *self.pair.weights), tensors, strict=True))


def _called(record, **arguments):
    return record(*record.arguments(SimpleNamespace(**arguments)))


class _Normalise(Function):
    """From what is normalised to rows that are not there yet."""

    @staticmethod
    def forward(ctx, norm, *tensors):
        ctx.norm = norm
        ctx.save_for_backward(*tensors)
        return Rows(tensors[0], norm.options.out_dtype)

    @staticmethod
    def backward(ctx, grad):
        norm, tensors = ctx.norm, ctx.saved_tensors
        x, weight, *_ = tensors
        wanted = Gradients(*ctx.needs_input_grad[1:], *(False,) * (5 - len(ctx.needs_input_grad)))
        incoming = Incoming(grad, None, x, weight, None)
        found = norm.kind.backward(incoming, norm.options, wanted, prefix="")
        return None, *found[: len(tensors)]


class _Compute(Function):
    """The rows themselves. Their gradient goes where that of _Normalise's result does."""

    @staticmethod
    def forward(ctx, rows, norm, *tensors):
        return norm.kind.forward(Given(*tensors), norm.options, prefix="")

    @staticmethod
    def backward(ctx, grad):
        return grad, *(None,) * (len(ctx.needs_input_grad) - 1)


class _Multiply(Function):
    """A linear layer of them, which normalises once more for the gradient of its weight."""

    @staticmethod
    def forward(ctx, rows, norm, arithmetic, weight, bias, *tensors):
        ctx.norm, ctx.arithmetic = norm, arithmetic
        ctx.bias_dtype = None if bias is None else bias.dtype
        ctx.save_for_backward(weight, *tensors)
        return _called(
            norm.pair.forward,
            **norm.given(tensors),
            **{"weight": weight, "bias": bias, "residual": None},
            **norm.shared_options(arithmetic),
        )

    @staticmethod
    def backward(ctx, grad):
        norm, (weight, *tensors) = ctx.norm, ctx.saved_tensors
        into_rows, _, _, into_weight, into_bias, *others = ctx.needs_input_grad
        grad_rows = grad_weight = grad_bias = None
        if into_rows:
            grad_rows = product_functions.matmul(
                grad, weight, arithmetic="canonical" if ctx.arithmetic == 0 else "tensor"
            ).to(norm.options.out_dtype)
        if into_weight or into_bias:
            *_, grad_weight, grad_bias = _called(
                norm.pair.backward,
                **norm.given(tensors),
                **{"grad_z": grad, "weight": weight, "pre": None},
                **norm.shared_options(ctx.arithmetic),
                **{f"needs_{name}": False for name in norm.given(tensors)},
                needs_weight=into_weight,
                bias_dtype=ctx.bias_dtype if into_bias else None,
            )
        return (
            *(grad_rows, None, None, grad_weight if into_weight else None),
            *(grad_bias if into_bias else None, *(None for _ in others)),
        )


class Rows(torch.Tensor):
    """A norm's result whose elements are computed when somebody asks for them."""

    @staticmethod
    def __new__(cls, input, dtype):
        return torch.Tensor._make_wrapper_subclass(
            cls, input.shape, dtype=dtype, device=input.device
        )

    def of(self, norm, tensors, module):
        """Their call, and the module that they are of."""
        self._norm, self._tensors, self._module = norm, tensors, weakref.ref(module)
        self._was, self._computed = tensors[0]._version, None
        return self

    def _note(self, taker):
        module = self._module()
        if module is not None:
            TAKEN.setdefault(module, {})[taker] = None

    def _check(self):
        if self._tensors[0]._version != self._was:
            raise RuntimeError(
                f"{type(self._module()).__name__}: what it normalised was changed in place before "
                "its result was used; without fuse=True patch gives a norm that computes at once"
            )

    def computed(self, taker):
        if self._computed is None:
            self._check()
            self._note(taker)
            self._computed = _Compute.apply(self, self._norm, *self._tensors)
        return self._computed

    def multiplied(self, weight, bias, arithmetic):
        """What a linear layer makes of them, or nothing where they must be computed first."""
        cast = _autocast_dtype(self.device)
        if cast is not None and weight.dtype != torch.float64:
            weight, bias = weight.to(cast), None if bias is None else bias.to(cast)
        # The layer rounds what it normalises to the type of its weight: from float32, which it
        # computes in, or to what the norm would have given.
        rounds_so = self.dtype == weight.dtype or (cast is not None and self.dtype == torch.float32)
        if self._computed is not None or not rounds_so or weight.device != self.device:
            return None
        if (weight.dtype == torch.float64) != (self._tensors[0].dtype == torch.float64):
            return None
        self._check()
        self._note(A_LINEAR_LAYER)
        return _Multiply.apply(self, self._norm, arithmetic, weight, bias, *self._tensors)

    @classmethod
    def __torch_function__(cls, function, types, args=(), more=None):
        more = more or {}
        with torch._C.DisableTorchFunctionSubclass():
            if function in _KNOWN:
                return function(*args, **more)
            if (found := _linear(function, args, more)) is not None:
                return found
            taker = getattr(function, "__name__", str(function))
            args, more = torch.utils._pytree.tree_map_only(
                Rows, lambda rows: rows.computed(taker), (args, more)
            )
            return function(*args, **more)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), more=None):
        """For what asks no __torch_function__; autograd has recorded the call by then."""
        args, more = torch.utils._pytree.tree_map_only(
            Rows, lambda rows: rows.computed(function.__name__).detach(), (args, more or {})
        )
        return function(*args, **more)


def _autocast_dtype(device):
    if not is_autocast(device):
        return None
    return torch.get_autocast_dtype(device.type)


def _is_plain(tensor):
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def _linear(function, args, more):
    """What isobit.torch.linear, or matmul of a transposed weight, is asked to make of rows."""
    if function is product_functions.linear:
        call = _linear_arguments(*args, **more)
    elif function is product_functions.matmul:
        call = _matmul_arguments(*args, **more)
    else:
        return None
    rows, weight, bias, activation, arithmetic = call
    if not isinstance(rows, Rows) or not _is_plain(weight) or weight.ndim != 2:
        return None
    if not (bias is None or (_is_plain(bias) and bias.shape == weight.shape[:1])):
        return None
    if activation is not None or weight.shape[1] != rows.shape[-1]:
        return None
    chosen = product_functions.options("linear", activation, arithmetic)
    return rows.multiplied(weight, bias, chosen["arithmetic"])


def _linear_arguments(input, weight, bias=None, *, activation=None, arithmetic="canonical"):
    return input, weight, bias, activation, arithmetic


def _matmul_arguments(input, other, *, bias=None, arithmetic="canonical", **more):
    plain = not any(more.values()) and isinstance(other, torch.Tensor) and other.ndim == 2
    return input, other.t() if plain else None, bias, None, arithmetic


def _defer(module, kind, options, plain, *tensors):
    """Rows of a norm of these tensors, or what plain() gives where there is nothing to gain or
    nothing is known: without gradients, under a transform, a mode or a compiler, of tensors of
    somebody else's class."""
    x, given = tensors[0], [each for each in tensors if each is not None]
    if torch.compiler.is_compiling() or not torch.is_grad_enabled() or transforms_active():
        return plain()
    if torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack():
        return plain()
    if not all(map(_is_plain, given)) or not any(each.requires_grad for each in given):
        return plain()
    if x.ndim == 0 or any(each.device != x.device for each in given):
        return plain()
    if any(each.shape != x.shape[-1:] for each in given[1:]):
        return plain()
    if x.dtype in NARROW and _autocast_dtype(x.device) is not None:
        return plain()
    norm = NormCall(kind, options._replace(out_dtype=options.out_dtype or x.dtype))
    return _Normalise.apply(norm, *tensors).of(norm, tensors, module)


class DeferredLayerNorm(LayerNorm):
    """LayerNorm as patch(model, fuse=True) leaves it."""

    def forward(self, input):
        plain = super().forward
        if len(self.normalized_shape) != 1 or input.shape[-1:] != self.normalized_shape:
            return plain(input)
        options = Options(self.eps, 1, self.zero_centered, self.out_dtype)
        tensors = input, self.weight, self.bias
        return _defer(self, norms.LAYER_NORM, options, lambda: plain(input), *tensors)


class DeferredRMSNorm(RMSNorm):
    """RMSNorm as patch(model, fuse=True) leaves it."""

    def forward(self, input):
        plain = super().forward
        if len(self.normalized_shape) != 1 or input.shape[-1:] != self.normalized_shape:
            return plain(input)
        eps = known_eps(self.eps, input)
        options = Options(eps, 1, self.zero_centered, self.out_dtype)
        return _defer(self, norms.RMS_NORM, options, lambda: plain(input), input, self.weight)


@dataclass(frozen=True)
class DeferredRecipe:
    """How a norm of somebody else's class is computed, as patch(model, fuse=True) leaves it."""

    recipe: Recipe

    def forward(self, module, input):
        recipe = self.recipe
        kind = norms.LAYER_NORM if recipe.centered else norms.RMS_NORM
        options = Options(
            *(getattr(module, recipe.eps), 1, recipe.zero_centered),
            recipe.result_dtype(module, input),
        )
        tensors = input, *recipe.weights(module, input)
        return _defer(module, kind, options, lambda: recipe.forward(module, input), *tensors)
