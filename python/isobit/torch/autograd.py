# SPDX-License-Identifier: Apache-2.0
"""Derivatives of the norms of every order, and their batching.

First-order gradients come from the kernels, whether or not a graph of them is asked for; only
their derivatives are formulas. Nothing but the input, or the sum, and the weight is kept for
backward: the kernel finds the statistics again.

An eager call takes `Eager`, which PyTorch runs with the least ado. `Forward` says the same in the
form that forward mode needs. It and `Gradient` are the derivatives of the operators without an
underscore, which PyTorch calls for every transform of torch.func by itself.
"""

import torch
from torch.autograd import Function, forward_ad

from isobit.torch import fast, formulas
from isobit.torch.norms import ADD_RMS_NORM, NORMS, Given, Gradients, Incoming, Options


def each_sample(batch_size, in_dims, arguments, call):
    """call for every sample by itself, and the results as one batch."""
    samples = [
        call(
            *(
                value if dim is None else value.select(dim, index)
                for value, dim in zip(arguments, in_dims, strict=True)
            )
        )
        for index in range(batch_size)
    ]
    if torch.is_tensor(samples[0]):
        return torch.stack(samples), 0
    results = tuple(
        None if one[0] is None else torch.stack(one) for one in zip(*samples, strict=True)
    )
    return results, tuple(None if result is None else 0 for result in results)


def batch_of(info, value, dim):
    """value with a sample in each element of its first dimension."""
    if value is None:
        return None
    if dim is None:
        return value.expand(info.batch_size, *value.shape)
    return value.movedim(dim, 0)


def batched_forward(info, in_dims, norm, options, given, call):
    """Rows know nothing of each other, so a batch of them is one call. Where each sample has
    weights of its own, or the row's number says what is dropped, it is a call a sample."""
    dims, given = Given(*in_dims), Given(*given)
    if options.dropout > 0 or dims.weight is not None or dims.bias is not None:
        return each_sample(info.batch_size, dims, given, call)

    given = given._replace(
        input=batch_of(info, given.input, dims.input),
        residual=batch_of(info, given.residual, dims.residual),
    )
    return call(*given), (0, 0) if norm.adds else 0


def drop(v, options, seed):
    """What forward does to its input before it adds the residual."""
    if v is None or options.dropout == 0:
        return v
    plain = Options(eps=1.0, hidden_dims=options.hidden_dims, dropout=options.dropout)
    factor = ADD_RMS_NORM.forward(Given(torch.ones_like(v), seed=seed), plain, prefix="")[1]
    return v * factor


def _sum(*terms):
    given = [term for term in terms if term is not None]
    return sum(given[1:], given[0]) if given else None


def _as(value, like):
    return value.to(like.dtype)


def gradient_cotangents(norm, options, incoming, to):
    """Incoming gradients of the gradients, `to`, as gradients of incoming."""
    to_sum = _sum(drop(to.input, options, incoming.seed), to.residual)
    for_grad_y, for_x, for_weight = formulas.gradient_cotangents(
        norm,
        options,
        *(incoming.grad_y, incoming.input, incoming.weight),
        to_sum,
        to.weight,
        to.bias,
    )
    return Incoming(
        grad_y=_as(for_grad_y, incoming.grad_y),
        grad_sum=None if incoming.grad_sum is None else to_sum,
        input=_as(for_x, incoming.input),
        weight=None if incoming.weight is None else _as(for_weight, incoming.weight),
        seed=None,
    )


class Gradient(Function):
    """backward of a norm as a function that has derivatives itself."""

    @staticmethod
    def forward(below, norm, options, wanted, *incoming):
        return tuple(below())

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, ctx.norm, ctx.options, ctx.wanted, *incoming = inputs
        ctx.dtypes = tuple(result.dtype for result in output)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*incoming)
        ctx.save_for_forward(*incoming)

    @staticmethod
    def backward(ctx, *to):
        incoming = Incoming(*ctx.saved_tensors)
        to = ctx.norm.backward_results(to).where(ctx.wanted)
        cotangents = gradient_cotangents(ctx.norm, ctx.options, incoming, to)
        return (None, None, None, None, *cotangents)

    @staticmethod
    def jvp(ctx, _below, _norm, _options, _wanted, *incoming_t):
        along = Incoming(*incoming_t)
        incoming = Incoming(*ctx.saved_tensors)
        x_t, weight_t, bias_t = formulas.gradient_tangents(ctx.norm, ctx.options, incoming, along)
        sum_t = _sum(_as(x_t, incoming.input), along.grad_sum)
        input_t = drop(sum_t, ctx.options, incoming.seed)
        tangents = Gradients(input_t, weight_t, bias_t, sum_t).where(ctx.wanted)
        nothing = incoming.input.new_empty(0)  # PyTorch wants a tangent of every result
        return tuple(
            (nothing if tangent is None else tangent).to(dtype)
            for tangent, dtype in zip(ctx.norm.results_of(tangents), ctx.dtypes, strict=True)
        )


def _save(ctx, norm, options, given, output):
    """What both forms of the forward pass keep."""
    ctx.norm, ctx.options = norm, options
    ctx.set_materialize_grads(False)
    normalised = output[1] if norm.adds else given.input
    saved = (normalised, given.weight, given.seed)
    ctx.save_for_backward(*saved)
    return saved


def _gradients(norm, options, incoming, wanted, prefix):
    """The wanted gradients, None in the place of others and where no gradient comes in."""
    if incoming.grad_y is None:
        if incoming.grad_sum is None:
            return Gradients(None, None, None, None)
        incoming = incoming._replace(grad_y=torch.zeros_like(incoming.input))
    found = norm.backward(incoming, options, wanted.once(options), prefix)
    return found.twice(options).where(wanted)


def _backward(ctx, first, prefix, grad_y, grad_sum):
    """first: which of the arguments is the first of Given."""
    x, weight, seed = ctx.saved_tensors
    incoming = Incoming(grad_y, grad_sum, x, weight, seed)
    wanted = Gradients(*ctx.needs_input_grad[first : first + 4])
    gradients = _gradients(ctx.norm, ctx.options, incoming, wanted, prefix)
    return (*(None,) * first, *gradients, None)


class Forward(Function):
    """A norm for transforms and forward mode."""

    @staticmethod
    def forward(below, norm, options, *given):
        return below()

    @staticmethod
    def setup_context(ctx, inputs, output):
        _, norm, options, *given = inputs
        ctx.save_for_forward(*_save(ctx, norm, options, Given(*given), output))

    @staticmethod
    def backward(ctx, grad_y, grad_sum=None):
        return _backward(ctx, 3, "", grad_y, grad_sum)

    @staticmethod
    def jvp(ctx, _below, _norm, options, input_t, weight_t, bias_t, residual_t, _seed):
        x, weight, seed = ctx.saved_tensors
        sum_t = _sum(drop(input_t, ctx.options, seed), residual_t)
        y_t = formulas.output_tangent(ctx.norm, ctx.options, x, weight, sum_t, weight_t, bias_t)
        y_t = y_t.to(ctx.options.out_dtype or x.dtype)
        if not ctx.norm.adds:
            return y_t
        return y_t, torch.zeros_like(x) if sum_t is None else sum_t


class Total(Function):
    """x + residual or x + 1."""

    @staticmethod
    def forward(below, *tensors):
        return below()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)
        ctx.terms = len(inputs) - 1

    @staticmethod
    def backward(ctx, grad):
        return None, *(grad,) * ctx.terms

    @staticmethod
    def jvp(ctx, _below, *tangents):
        return _sum(*tangents).clone()


class Eager(Function):
    """A norm outside of all that."""

    @staticmethod
    def forward(ctx, norm, options, *given):
        given = Given(*given)
        output = norm.forward(given, options)
        _save(ctx, norm, options, given, output)
        return output

    @staticmethod
    def backward(ctx, grad_y, grad_sum=None):
        return _backward(ctx, 2, "" if torch.is_grad_enabled() else "_", grad_y, grad_sum)


def _unwrapped_apply(function):
    """Function.apply without its wrapper in Python, which only looks for transforms."""
    return super(Function, function).apply


_apply_eager = _unwrapped_apply(Eager)


def _operators(norm):
    """The operators of a norm, called as the short way's functions are."""
    forward, backward = norm.operator()._op, norm.operator("_backward")._op
    if not norm.adds:
        return forward, backward
    every = (True,) * (2 + norm.centred)

    def added(*arguments):
        *plain, residual = arguments
        return forward(*plain, 1, False, None, residual)

    def added_backward(grad_y, total, weight, eps, grad_sum):
        return backward(grad_y, total, weight, eps, 1, False, *every, grad_sum)

    return added, added_backward


def _recorded(norm, run, run_backward):
    """Eager for calls whose only option is eps: (input, weight, [bias,] eps[, residual]). `run` and
    `run_backward`, for all gradients, may decline by None. Between PyTorch and the kernel stands as
    little as can be; small calls take no longer than that."""
    adds, tensors = norm.adds, 2 + norm.centred
    everything = (*(True,) * tensors, False, *(True,) * adds)

    def given_of(arguments):
        x, weight, *bias, eps, residual = arguments if adds else (*arguments, None)
        return Given(x, weight, *(bias or (None,)), residual), Options(eps)

    class Recorded(Function):
        @staticmethod
        def forward(ctx, *arguments):
            output = run(*arguments)
            if output is None:
                output = norm.forward(*given_of(arguments))
            if adds:
                ctx.set_materialize_grads(False)
                ctx.save_for_backward(output[1], arguments[1])
            else:
                ctx.save_for_backward(arguments[0], arguments[1])
            ctx.eps = arguments[tensors]
            return output

        @staticmethod
        def backward(ctx, *grads):
            x, weight = ctx.saved_tensors
            needs = ctx.needs_input_grad
            wide = torch.is_grad_enabled() or torch.compiler.is_compiling()  # compiled autograd
            if needs == everything and not wide and grads[0] is not None:
                found = run_backward(grads[0], x, weight, ctx.eps, *grads[1:])
                if found is not None:
                    return (*found[:tensors], None, *found[:adds])
            wanted = Gradients(*map(bool, given_of(needs)[0][:4]))
            incoming = Incoming(grads[0], grads[1] if adds else None, x, weight, None)
            prefix = "" if torch.is_grad_enabled() else "_"
            found = _gradients(norm, Options(ctx.eps), incoming, wanted, prefix)
            return (*found[:tensors], None, *found[3 : 3 + adds])

    return _unwrapped_apply(Recorded)


def _ways(norm):
    """What fast.connect wants of a norm."""
    forward, backward = _operators(norm)
    small = _recorded(norm, fast.forward_of(norm), fast.backward_of(norm))
    return small, _recorded(norm, forward, backward), forward


fast.connect(_ways(norm) for norm in NORMS)


def transforms_active():
    """Whether a transform of torch.func or forward mode is under way."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def derivatives_wanted(arguments):
    """Whether an operator called with these has derivatives to think of."""
    return (
        transforms_active()
        or type(arguments[0]) is not torch.Tensor  # in a trace, forward mode leaves no other sign
        or (torch.is_grad_enabled() and torch._C._any_requires_grad(*arguments))
    )


def call(norm, options, given):
    """A norm with its derivatives, outside of compiled code."""
    if transforms_active() or torch._C._is_tracing():
        return norm.forward(given, options, prefix="")
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in given):
        return _apply_eager(norm, options, *given)
    return norm.forward(given, options)
