# SPDX-License-Identifier: Apache-2.0
"""Attention in PyTorch: what it means, how a textbook writes it, in parts without the whole of its
scores, and the fused operator."""

import math

import torch
from torch.nn import functional as F

CAUSALS = ("no", "top_left", "bottom_right")
PANEL = 128  # keys


def allowed(q, k, mask=None, *, causal="no", window=0, first=0, last=None):
    """Which of some keys a query sees: (seq_q, keys), and beside a mask its shape."""
    if causal not in CAUSALS:
        raise ValueError(f"attention: causal is {causal!r}; allowed: {', '.join(CAUSALS)}")
    queries, keys = q.shape[-2], k.shape[-2]
    last = keys if last is None else min(last, keys)
    offset = keys - queries if causal == "bottom_right" else 0
    position = torch.arange(queries, device=q.device)[:, None] + offset
    distance = position - torch.arange(first, last, device=q.device)
    seen = torch.ones_like(distance, dtype=torch.bool) if causal == "no" else distance >= 0
    if window > 0:
        seen = seen & (distance.abs() < window)
    return seen if mask is None else seen & _part(mask, first, last)


def _part(array, first, last):
    """What an array of scores has of some keys; what is repeated along them stays."""
    return array if array.shape[-1] == 1 else array[..., first:last]


def _base(most):
    """What is taken off scores: their largest, or 0 where there is none."""
    return most.masked_fill(most == -math.inf, 0)


def repeated(q, k):
    """k, or v, once for every head of q."""
    heads, kv_heads = q.shape[1], k.shape[1]
    return k if heads == kv_heads else k.repeat_interleave(heads // kv_heads, 1)


def scale_of(q, scale):
    return scale if scale != 0 or q.shape[-1] == 0 else 1 / math.sqrt(q.shape[-1])


def scores_of(q, k, bias=None, *, scale=0, softcap=0):
    """Of every query and key."""
    scores = q @ repeated(q, k).mT * scale_of(q, scale)
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    return scores if bias is None else scores + bias


def _weights(q, k, bias, mask, causal, window, scale, softcap):
    """e^s over their sum, and its logarithm: zeros and -infinity where there are no keys."""
    scores = scores_of(q, k, bias, scale=scale, softcap=softcap)
    scores = scores.masked_fill(~allowed(q, k, mask, causal=causal, window=window), -math.inf)
    lse = scores.logsumexp(-1)
    return (scores - _base(lse).unsqueeze(-1)).exp(), lse


def bias_and_mask(q, k, bias=None, mask=None, *, slopes=None, key_begin=None, key_end=None):
    """A bias and a mask that say what slopes and ranges of keys do; the functions here take those.
    Slopes of (batch, heads) count from the last query, which stands at the last key."""
    queries, keys = q.shape[-2], k.shape[-2]
    place = torch.arange(keys, device=q.device)
    if slopes is not None:
        distance = torch.arange(keys - queries, keys, device=q.device)[:, None] - place
        sloped = slopes[..., None, None] * -distance.abs().to(slopes.dtype)
        bias = sloped if bias is None else bias + sloped
    for bound, inside in ((key_begin, torch.ge), (key_end, torch.lt)):
        if bound is not None:
            held = inside(place, bound[:, None, None, None])
            mask = held if mask is None else mask & held
    return bias, mask


def _wide(*tensors):
    return (None if each is None else each.double() for each in tensors)


def reference(q, k, v, bias=None, mask=None, *, causal="no", window=0, scale=0, softcap=0):
    """y and lse in double, by README.md's formulas."""
    q, k, v, bias = _wide(q, k, v, bias)
    weights, lse = _weights(q, k, bias, mask, causal, window, scale, softcap)
    return weights @ repeated(q, v), lse


def _gathered(k, grad):
    """Of heads that share one of k the sum."""
    return grad.unflatten(1, (k.shape[1], -1)).sum(2)


def reference_backward(
    grad_y,
    q,
    k,
    v,
    bias=None,
    mask=None,
    grad_lse=None,
    *,
    causal="no",
    window=0,
    scale=0,
    softcap=0,
):
    """grad_q, grad_k, grad_v and grad_bias in double, by README.md's formulas."""
    grad_y, q, k, v, bias, grad_lse = _wide(grad_y, q, k, v, bias, grad_lse)
    weights, _ = _weights(q, k, bias, mask, causal, window, scale, softcap)
    keys, values = repeated(q, k), repeated(q, v)
    mean = (grad_y * (weights @ values)).sum(-1, keepdim=True)
    if grad_lse is not None:
        mean = mean - grad_lse.unsqueeze(-1)
    of_bias = weights * (grad_y @ values.mT - mean)
    of_score = of_bias
    if softcap > 0:
        of_score = of_bias * (1 - torch.tanh(scores_of(q, k, scale=scale) / softcap).square())
    of_score = of_score * scale_of(q, scale)
    grad_k, grad_v = of_score.mT @ q, weights.mT @ grad_y
    return of_score @ keys, _gathered(k, grad_k), _gathered(v, grad_v), of_bias


def standard(q, k, v, bias=None, mask=None, *, causal="no", window=0, scale=0, softcap=0):
    """As a textbook writes it, in the type of q: product, softmax, product. A query without keys
    gives NaN."""
    scores = scores_of(q, k, bias, scale=scale, softcap=softcap)
    scores = scores.masked_fill(~allowed(q, k, mask, causal=causal, window=window), -math.inf)
    return torch.softmax(scores, -1) @ repeated(q, v)


class Tiled(torch.autograd.Function):
    """Panels of keys one after the other, in float beside 16 bits, with a running maximum; what
    backward needs of the scores, it computes again. Returns y and lse."""

    @staticmethod
    def forward(ctx, q, k, v, bias, mask, options):
        real = torch.promote_types(q.dtype, torch.float32)
        queries, total = q.to(real), q.new_zeros((*q.shape[:-1], 1), dtype=real)
        most = torch.full_like(total, -math.inf)
        y = q.new_zeros((*q.shape[:-1], v.shape[-1]), dtype=real)
        for first in range(0, k.shape[-2], PANEL):
            scores, _ = Tiled.scores(queries, k, bias, mask, first, options)
            above = torch.maximum(most, scores.amax(-1, keepdim=True))
            weights, kept = (scores - _base(above)).exp(), (most - _base(above)).exp()
            total = total * kept + weights.sum(-1, keepdim=True)
            values = repeated(q, v[:, :, first : first + PANEL]).to(real)
            y, most = y * kept + weights @ values, above
        lse = (most + total.log()).squeeze(-1)
        y = (y / torch.where(total == 0, 1, total)).to(q.dtype)
        ctx.save_for_backward(q, k, v, bias, mask, y, lse)  # results, which second derivatives pass
        ctx.options = options
        return y, lse

    @staticmethod
    def scores(queries, k, bias, mask, first, options):
        """Of a panel, and their derivative by what the cap takes."""
        last, softcap = first + PANEL, options["softcap"]
        keys = k[:, :, first:last].to(queries.dtype)
        scores, slope = scores_of(queries, keys, scale=options["scale"]), None
        if softcap > 0:
            bent = torch.tanh(scores / softcap)
            scores, slope = softcap * bent, 1 - bent.square()
        if bias is not None:
            scores = scores + _part(bias, first, last)
        band = {name: options[name] for name in ("causal", "window")}
        seen = allowed(queries, k, mask, **band, first=first, last=last)
        return scores.masked_fill(~seen, -math.inf), slope

    @staticmethod
    def backward(ctx, grad_y, grad_lse):
        q, k, v, bias, mask, y, lse = ctx.saved_tensors
        lse = lse.unsqueeze(-1)
        queries, grad_y = q.to(lse.dtype), grad_y.to(lse.dtype)
        mean = (grad_y * y).sum(-1, keepdim=True) - grad_lse.unsqueeze(-1)
        grad_q, of_bias = torch.zeros_like(queries), [mean[..., :0]]
        grad_k, grad_v = torch.empty_like(k), torch.empty_like(v)
        for first in range(0, k.shape[-2], PANEL):
            panel = slice(first, first + PANEL)
            keys, values = (repeated(q, each[:, :, panel]).to(lse.dtype) for each in (k, v))
            scores, slope = Tiled.scores(queries, k, bias, mask, first, ctx.options)
            weights = (scores - _base(lse)).exp()
            ds = weights * (grad_y @ values.mT - mean)
            if ctx.needs_input_grad[3]:
                of_bias.append(ds)
            ds = (ds if slope is None else ds * slope) * scale_of(q, ctx.options["scale"])
            grad_q = grad_q + ds @ keys
            grad_k[:, :, panel] = _gathered(k, ds.mT @ queries)
            grad_v[:, :, panel] = _gathered(v, weights.mT @ grad_y)
        grad_bias = None
        if ctx.needs_input_grad[3]:
            grad_bias = torch.cat(of_bias, -1).sum_to_size(bias.shape).to(bias.dtype)
        return grad_q.to(q.dtype), grad_k, grad_v, grad_bias, None, None


def tiled(q, k, v, bias=None, mask=None, *, causal="no", window=0, scale=0, softcap=0):
    """y and lse, with gradients. But for a gradient of the bias, no more scores at a time than
    those of a panel of keys."""
    options = {"causal": causal, "window": window, "scale": scale, "softcap": softcap}
    return Tiled.apply(q, k, v, bias, mask, options)


def fused(q, k, v, bias=None, mask=None, *, causal="no", window=0, scale=0):
    """PyTorch's own, which has no softcap: one kernel, without the whole of the scores where it
    masks by itself. Of what it does not know it is told by an array of all scores."""
    grouped = {"scale": scale_of(q, scale), "enable_gqa": q.shape[1] != k.shape[1]}
    seen = allowed(q, k, mask, causal=causal, window=window)
    if bias is None and mask is None and window == 0 and causal in ("no", "top_left"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal == "top_left", **grouped)
    if bias is not None:
        seen = bias.masked_fill(~seen, -math.inf)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen, **grouped)
