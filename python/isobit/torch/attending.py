# SPDX-License-Identifier: Apache-2.0
"""The records of attention and of its backward, whose own derivatives are formulas in PyTorch."""

import torch

from isobit.torch.records import Axis, Operator, is_autocast, narrow_inputs, total_of

# As isobit_attention_forward_args numbers them.
CAUSALS = ("no", "top_left", "bottom_right")
ARITHMETICS = ("canonical", "tensor")
_MOST_DIM = 512  # of a head
# Tensors that follow the options in the schema, and those that forward alone has.
_BEHIND = ("slopes", "key_begin", "key_end", "query_starts", "key_starts")
_FORWARD_ALONE = ("blocks",)


def real(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def causal_number(op, is_causal, causal):
    """The number of what the arguments say."""
    if causal is None:
        causal = "top_left" if is_causal else "no"
    elif is_causal and causal != "top_left":
        raise ValueError(f"{op}: is_causal means causal='top_left'; causal is {causal!r}")
    if causal not in CAUSALS:
        allowed = ", ".join(map(repr, CAUSALS))
        raise ValueError(f"{op}: causal is {causal!r}; allowed: None, {allowed}")
    return CAUSALS.index(causal)


def arithmetic_number(op, arithmetic):
    """The number of what the argument says."""
    if arithmetic not in ARITHMETICS:
        allowed = ", ".join(map(repr, ARITHMETICS))
        raise ValueError(f"{op}: arithmetic is {arithmetic!r}; allowed: {allowed}")
    return ARITHMETICS.index(arithmetic)


def of_gradients(call):
    """The arithmetic that they are asked for in: a processor has them in canonical alone, whatever
    forward was computed in."""
    canonical = ARITHMETICS.index("canonical")
    return canonical if call.q.device.type == "cpu" else call.arithmetic


def autocasts(tensor):
    """Whether types are made one later."""
    return is_autocast(tensor.device)


def _new(like, shape):
    """Tokens by tokens where those of `like` lie so, as PyTorch's attention has it: who splits rows
    into heads and joins them again copies nothing."""
    (_, heads, tokens, _), (_, of_head, of_token, _) = like.shape, like.stride()
    if heads > 1 and tokens > 1 and of_head < of_token:
        batch, heads, tokens, elements = shape
        return like.new_empty((batch, tokens, heads, elements)).transpose(1, 2)
    return like.new_empty(shape)


def _results(call):
    shape = (*call.q.shape[:-1], call.v.shape[-1])
    rows = [call.q.new_empty(shape[:-1], dtype=real(call.q.dtype)) for _ in range(3)]
    return _new(call.q, shape), *rows


def _cut(call, names, dim):
    return {name: dim for name in names if getattr(call, name, None) is not None}


def _of_batch(dim):
    """What has no dimension but the batch."""
    return ("key_begin", "key_end") if dim == 0 else ()


def _axes(call):
    """Batches; and heads, where each has its own of k. What is dropped depends on both."""
    if call.dropout == 0 and not _of_sequences(call):
        for dim in (0, 1) if call.q.shape[1] == call.k.shape[1] else (0,):
            names = ("q", "k", "v", "bias", "mask", "slopes", *_of_batch(dim))
            yield Axis(_cut(call, names, dim), (dim,) * 4)


def _of_sequences(call):
    """Whether sequences are packed, or their keys lie in blocks."""
    given = (getattr(call, name, None) for name in ("query_starts", "key_starts", "blocks"))
    return any(each is not None for each in given)


def _require_one_batch(call):
    """Formulas know neither packed sequences nor blocks."""
    if _of_sequences(call):
        raise NotImplementedError(
            "attention: packed sequences have no derivatives but the first, by backward, and keys "
            "in blocks none; isobit.torch.varlen_attention has those of packed sequences"
        )


def _options(call):
    return call.seed, call.causal, call.window, call.scale, call.softcap, call.dropout


def bias_of_slopes(slopes, queries, keys, dtype):
    """What slopes (..., heads) add to scores, (..., heads, queries, keys). A product of two
    numbers, one of them whole, is rounded once."""
    place = torch.arange(keys - queries, keys, device=slopes.device)
    apart = (place[:, None] - torch.arange(keys, device=slopes.device)).abs()
    return slopes.to(dtype)[..., None, None] * -apart.to(dtype)


def _require_constant(of):
    """Slopes are numbers of a model, and not learned."""
    slopes = getattr(of, "slopes", None)
    if slopes is not None and slopes is not False:
        raise NotImplementedError("attention: slopes has no derivative; detach it")


def _backward(call, wanted, grad_y, grad_lse, _max, _sum):
    _require_constant(wanted)
    if call.blocks is not None:
        _require_one_batch(call)
    if grad_y is None:
        grad_y = torch.zeros_like(call.y)
    needs = (wanted.q, wanted.k, wanted.v, wanted.bias)
    tensors = (call.q, call.k, call.v, call.bias, call.mask, call.y, call.max, call.sum)
    behind = (getattr(call, name) for name in _BEHIND)
    found = ATTENTION_BACKWARD(
        *(grad_y, grad_lse, *tensors, *_options(call), *needs, *behind, of_gradients(call))
    )
    names = ("q", "k", "v", "bias")
    each = zip(names, found, needs, strict=True)
    return {name: gradient for name, gradient, needed in each if needed}


def _allowed(call):
    """Which keys are there, but for those of a bias."""
    queries, keys, device = call.q.shape[-2], call.k.shape[-2], call.q.device
    offset = keys - queries if CAUSALS[call.causal] == "bottom_right" else 0
    position = torch.arange(queries, device=device)[:, None] + offset
    key = torch.arange(keys, device=device)
    allowed = torch.ones(queries, keys, dtype=torch.bool, device=device)
    if CAUSALS[call.causal] != "no":
        allowed = allowed & (key <= position)
    if call.window > 0:
        allowed = allowed & ((key - position).abs() < call.window)
    for bound, inside in ((call.key_begin, torch.ge), (call.key_end, torch.lt)):
        if bound is not None:
            allowed = allowed & inside(key, bound[:, None, None, None])
    return allowed if call.mask is None else allowed & call.mask


def kept(q, k, seed, dropout, *held, before=0):
    """What dropout multiplies weights by: that of equal weights says which are kept. held: slopes,
    which are none, key_begin and key_end. before: sequences that stand before those of the batch,
    as dropout counts."""
    shape = (*q.shape[:-1], k.shape[-2])
    if before > 0:
        return _kept_behind(shape, seed, dropout, before, q.device).to(real(q.dtype))
    zeros_q = torch.zeros((*shape[:-1], 1), dtype=torch.float32, device=q.device)
    zeros_k = torch.zeros((*shape[:2], shape[-1], 1), dtype=torch.float32, device=q.device)
    columns = torch.eye(shape[-1], dtype=torch.float32, device=q.device).split(_MOST_DIM, 1)
    parts = [
        ATTENTION(
            zeros_q,
            zeros_k,
            each.expand(*shape[:2], *each.shape),
            None,
            None,
            seed,
            0,
            0,
            0.0,
            0.0,
            dropout,
            *held,
        )[0]
        for each in columns
    ]
    return (torch.cat(parts, -1) > 0).to(real(q.dtype)) / (1 - dropout)


def _kept_behind(shape, seed, dropout, before, device):
    """The same of sequences that are packed behind empty ones."""
    count, heads, queries, keys = shape
    numbers = torch.arange(-before, count + 1, device=device).clamp(min=0)
    starts = (None, None, None, numbers * queries, numbers * keys)
    zeros_q, zeros_k = (
        torch.zeros((1, heads, count * rows, 1), dtype=torch.float32, device=device)
        for rows in (queries, keys)
    )
    columns = torch.eye(keys, dtype=torch.float32, device=device).split(_MOST_DIM, 1)
    parts = [
        ATTENTION(
            *(zeros_q, zeros_k, each.repeat(count, 1).expand(1, heads, -1, -1), None, None),
            *(seed, 0, 0, 0.0, 0.0, dropout, *starts),
        )[0][0]
        for each in columns
    ]
    rows = torch.cat(parts, -1).unflatten(1, (count, queries)).transpose(0, 1)
    return (rows > 0) / (1 - dropout)


def _kept(call):
    held = (None, call.key_begin, call.key_end)
    before = getattr(call, "before", 0)  # of packed sequences
    return kept(call.q, call.k, call.seed, call.dropout, *held, before=before)


def _each_head(call, tensor):
    """Of k or v, one for each head of q, in the type that is computed in. What no query may see is
    not there: a NaN in it would come through products with 0."""
    if tensor is None:
        return None
    group = call.q.shape[1] // max(1, call.k.shape[1])
    tensor = tensor.to(real(tensor.dtype))
    tensor = tensor if group == 1 else tensor.repeat_interleave(group, 1)
    return tensor.masked_fill(~_allowed(call).any(-2).unsqueeze(-1), 0)


def _of_its_heads(call, tensor):
    """The sum over heads of q that share a head of k or v."""
    group = call.q.shape[1] // max(1, call.k.shape[1])
    return tensor if group == 1 else tensor.unflatten(1, (-1, group)).sum(2)


def _scale(call):
    return call.scale if call.scale != 0 else 1 / max(1, call.q.shape[-1]) ** 0.5


def _capped(call, scores):
    """(scores, their derivative, the derivative of that)"""
    if call.softcap == 0:
        return scores, 1, 0
    bent = torch.tanh(scores / call.softcap)
    slope = 1 - bent * bent
    return call.softcap * bent, slope, -2 / call.softcap * bent * slope


def _weighed(call, scores, bias):
    """(weights, lse, which keys are there), of scores that are capped already."""
    if bias is not None:
        scores = scores + bias
    if call.slopes is not None:
        scores = scores + bias_of_slopes(call.slopes, *scores.shape[-2:], scores.dtype)
    scores = scores.masked_fill(~_allowed(call), -torch.inf)
    there = scores != -torch.inf
    some = there.any(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(~some, 0), -1) * some
    lse = torch.logsumexp(scores.masked_fill(~some, 0), -1)
    return weights, lse.masked_fill(~some.squeeze(-1), -torch.inf), there


def formula(call, q, k, v, bias):
    """(y, lse) by PyTorch's own functions, which have all derivatives."""
    k, v = _each_head(call, k), _each_head(call, v)
    scores, _, _ = _capped(call, (q.to(k.dtype) @ k.mT) * _scale(call))
    weights, lse, _ = _weighed(call, scores, bias)
    if call.dropout > 0:
        weights = weights * _kept(call)
    return (weights @ v).to(q.dtype), lse


class _Moved:
    """Scores and weights of a call, and their tangents along those of q, k and bias."""

    def __init__(self, call, along):
        wide = real(call.q.dtype)
        self.q, self.k, self.v = call.q.to(wide), _each_head(call, call.k), _each_head(call, call.v)
        self.q_t = None if along.q is None else along.q.to(wide)
        self.k_t, self.v_t = _each_head(call, along.k), _each_head(call, along.v)
        raw = (self.q @ self.k.mT) * _scale(call)
        self.scores, self.slope, bend = _capped(call, raw)
        self.weights, self.lse, self.there = _weighed(call, self.scores, call.bias)
        raw_t = total_of(
            None if self.q_t is None else (self.q_t @ self.k.mT) * _scale(call),
            None if self.k_t is None else (self.q @ self.k_t.mT) * _scale(call),
            torch.zeros_like(raw),
        )
        self.slope_t = bend * raw_t
        scores_t = total_of(self.slope * raw_t, along.bias).masked_fill(~self.there, 0)
        self.lse_t = (self.weights * scores_t).sum(-1)
        self.weights_t = self.weights * (scores_t - self.lse_t.unsqueeze(-1))
        self.kept = _kept(call) if call.dropout > 0 else 1


_NAMES = ("q", "k", "v", "bias")


def _present(call):
    return [name for name in _NAMES if getattr(call, name) is not None]


def _of(call, names, values):
    """The formula as a function of those named; the others are the call's."""
    given = {name: getattr(call, name) for name in _NAMES} | dict(zip(names, values, strict=True))
    return formula(call, *(given[name] for name in _NAMES))


def _tangents(call, along):
    _require_constant(along)
    _require_one_batch(call)
    moved = _Moved(call, along)
    y = total_of(
        (moved.weights_t * moved.kept) @ moved.v,
        None if moved.v_t is None else (moved.weights * moved.kept) @ moved.v_t,
    )
    zeros = torch.zeros_like(moved.lse_t)
    return y.to(call.q.dtype), moved.lse_t, zeros, zeros.clone()


ATTENTION = Operator(
    "attention",
    _results,
    outputs=("y", "lse", "max", "sum"),
    host=("seed",),
    axes=_axes,
    keeps=("q", "k", "v", "bias", "mask", "seed", *_BEHIND, *_FORWARD_ALONE, "y", "max", "sum"),
    gradients=_backward,
    tangents=_tangents,
    autocast=narrow_inputs("q", "k", "v", "bias"),
)


def _gradients_of(call):
    needs = (call.needs_q, call.needs_k, call.needs_v)
    found = [
        _new(each, each.shape) if needed else each.new_empty((0,))
        for each, needed in zip((call.q, call.k, call.v), needs, strict=True)
    ]
    of_bias = call.bias.shape if call.needs_bias and call.bias is not None else (0,)
    return *found, call.q.new_empty(of_bias)


def _backward_axes(call):
    if call.dropout == 0 and not _of_sequences(call):
        names = ("grad_y", "grad_lse", "q", "k", "v", "bias", "mask", "y", "max", "sum", "slopes")
        wanted = (call.needs_q, call.needs_k, call.needs_v, call.needs_bias)
        for dim in (0, 1) if call.q.shape[1] == call.k.shape[1] else (0,):
            cut = _cut(call, (*names, *_of_batch(dim)), dim)
            yield Axis(cut, tuple(dim if each else None for each in wanted))


def _pulled(call, grad_y, grad_lse, names, values):
    """The gradients by the formula, of those that the call wants."""
    wanted = [name for name in _present(call) if getattr(call, f"needs_{name}")]
    rest = dict(zip(names, values, strict=True))
    inner = tuple(rest.get(name, getattr(call, name)) for name in wanted)

    def of_wanted(*each):
        given = rest | dict(zip(wanted, each, strict=True))
        return _of(call, list(given), list(given.values()))

    (y, lse), pull = torch.func.vjp(of_wanted, *inner)
    if grad_lse is None:
        grad_lse = torch.zeros_like(lse)
    return pull((grad_y.to(y.dtype), grad_lse.to(lse.dtype)))


def _second(call, given):
    """The gradients as a function of `given`: y, max and sum are functions of those themselves."""
    names = [name for name in given if name in _NAMES]

    def function(*values):
        known = dict(zip(given, values, strict=True))
        return _pulled(
            call,
            known.get("grad_y", call.grad_y),
            known.get("grad_lse", call.grad_lse),
            names,
            [known[name] for name in names],
        )

    return function


def _backward_gradients(call, wanted, *into):
    _require_constant(wanted)
    _require_one_batch(call)
    given = [
        name
        for name in ("grad_y", "grad_lse", *_NAMES)
        if getattr(wanted, name) and getattr(call, name) is not None
    ]
    values = tuple(getattr(call, name) for name in given)
    results, pull = torch.func.vjp(_second(call, given), *values)
    names = [name for name in _present(call) if getattr(call, f"needs_{name}")]
    by_name = dict(zip(_NAMES, into, strict=True))
    cotangents = tuple(
        torch.zeros_like(result) if by_name[name] is None else by_name[name].to(result.dtype)
        for name, result in zip(names, results, strict=True)
    )
    return dict(zip(given, pull(cotangents), strict=True))


def _backward_tangents(call, along):
    """Of each step of backward, by the rule of products."""
    _require_constant(along)
    _require_one_batch(call)
    moved = _Moved(call, along)
    wide, kept = moved.q.dtype, moved.kept
    grad, zeros = call.grad_y.to(wide), torch.zeros_like(call.grad_y, dtype=wide)
    grad_t = zeros if along.grad_y is None else along.grad_y.to(wide)
    into = (grad @ moved.v.mT) * kept
    into_t = grad_t @ moved.v.mT
    if moved.v_t is not None:
        into_t = into_t + grad @ moved.v_t.mT
    into_t = into_t * kept
    mean = (moved.weights * into).sum(-1, keepdim=True)
    mean_t = (moved.weights_t * into + moved.weights * into_t).sum(-1, keepdim=True)
    apart, apart_t = into - mean, into_t - mean_t
    if call.grad_lse is not None:
        apart = apart + call.grad_lse.unsqueeze(-1)
    if along.grad_lse is not None:
        apart_t = apart_t + along.grad_lse.unsqueeze(-1)
    apart, apart_t = (each.masked_fill(~moved.there, 0) for each in (apart, apart_t))
    of_bias = moved.weights * apart
    of_bias_t = moved.weights_t * apart + moved.weights * apart_t
    of_scores = of_bias * moved.slope * _scale(call)
    of_scores_t = (of_bias_t * moved.slope + of_bias * moved.slope_t) * _scale(call)
    dropped, dropped_t = moved.weights * kept, moved.weights_t * kept
    found = {
        "q": total_of(of_scores_t @ moved.k, None if moved.k_t is None else of_scores @ moved.k_t),
        "k": _of_its_heads(
            call,
            total_of(
                of_scores_t.mT @ moved.q,
                None if moved.q_t is None else of_scores.mT @ moved.q_t,
            ),
        ),
        "v": _of_its_heads(call, dropped_t.mT @ grad + dropped.mT @ grad_t),
        "bias": of_bias_t,
    }
    results = zip(_NAMES, _gradients_of(call), strict=True)
    return tuple(
        like if like.shape == (0,) else found[name].to(like.dtype) for name, like in results
    )


ATTENTION_BACKWARD = Operator(
    "attention_backward",
    _gradients_of,
    outputs=("grad_q", "grad_k", "grad_v", "grad_bias"),
    like="q",
    host=("seed",),
    axes=_backward_axes,
    keeps=("grad_y", "grad_lse", "q", "k", "v", "bias", "mask", "seed", *_BEHIND),
    knows=("y", "max", "sum"),
    gradients=_backward_gradients,
    tangents=_backward_tangents,
)
RECORDS = (ATTENTION, ATTENTION_BACKWARD)
