# SPDX-License-Identifier: Apache-2.0
"""Derivatives that no kernel computes, in PyTorch's own operations, so that any order follows.

For a row of N elements, x̂ = (x - mean) r, where rmsnorm has no mean. P(v) = v - mean(v) -
x̂ mean(v x̂) is symmetric, and rmsnorm's lacks mean(v). Then dx̂ = r P(dx) and dr = -r² mean(x̂ dx),
and all below follows by the product rule. It is computed in double precision: what is rare may
take its time, and rows with a large mean need the digits.
"""

from typing import NamedTuple

import torch


class Given(NamedTuple):
    """What a backward pass is given, or tangents of it."""

    grad_y: torch.Tensor | None
    input: torch.Tensor | None
    weight: torch.Tensor | None


class Rows:
    """Statistics of the rows of x, and P."""

    def __init__(self, norm, options, x, weight):
        self.centered = norm.centered
        self.dims = tuple(range(-options.hidden_dims, 0))
        self.x = x.double()
        deviation = self.x - self.mean(self.x) if self.centered else self.x
        self.r = (self.mean(deviation * deviation) + options.eps).rsqrt()
        self.normalised = deviation * self.r
        if weight is None:
            self.weight = torch.ones((), dtype=torch.float64, device=x.device)
        else:
            self.weight = weight.double() + 1 if options.zero_centered else weight.double()

    def mean(self, v):
        return v.mean(self.dims, keepdim=True)

    def project(self, v):
        projected = v - self.normalised * self.mean(v * self.normalised)
        return projected - self.mean(v) if self.centered else projected

    def columns(self, v):
        """Sums over the rows."""
        return v.sum(tuple(range(v.dim() - len(self.dims)))) if v.dim() > len(self.dims) else v


def _double(v):
    return 0.0 if v is None else v.double()


def output_tangent(norm, options, x, weight, x_t, weight_t, bias_t, kind=Rows):
    """The derivative of y along x_t, weight_t and bias_t."""
    rows = kind(norm, options, x, weight)
    x_t, weight_t, bias_t = map(_double, (x_t, weight_t, bias_t))
    moved = rows.weight * rows.r * rows.project(x_t) if torch.is_tensor(x_t) else 0.0
    return moved + weight_t * rows.normalised + bias_t + torch.zeros_like(rows.x)


def gradient_cotangents(norm, options, grad_y, x, weight, to_x, to_weight, to_bias, kind=Rows):
    """The gradients for grad_y, x and weight of <to_x, dx> + <to_weight, dw> + <to_bias, db>."""
    rows = kind(norm, options, x, weight)
    g = grad_y.double()
    z = rows.weight * g
    u = _double(to_x) + torch.zeros_like(rows.x)
    v, t = _double(to_weight), _double(to_bias)

    step = rows.r * rows.project(u)
    for_grad_y = rows.weight * step + v * rows.normalised + t
    for_weight = rows.columns(g * step)
    u_along, z_along = rows.mean(u * rows.normalised), rows.mean(z * rows.normalised)
    for_normalised = v * g - rows.r * (z_along * u + u_along * z)
    for_r = rows.mean(u * rows.project(z))
    for_x = rows.r * rows.project(for_normalised) - rows.r**2 * rows.normalised * for_r
    return for_grad_y, for_x, for_weight


def gradient_tangents(norm, options, incoming, along, kind=Rows):
    """The derivatives of dx, dw and db along tangents of what backward was given."""
    rows = kind(norm, options, incoming.input, incoming.weight)
    g, g_t = incoming.grad_y.double(), _double(along.grad_y)
    x_t = _double(along.input) + torch.zeros_like(rows.x)
    z = rows.weight * g
    z_t = _double(along.weight) * g + rows.weight * g_t
    normalised_t = rows.r * rows.project(x_t)
    r_t = -(rows.r**2) * rows.mean(rows.normalised * x_t)

    z_along = rows.mean(z * rows.normalised)
    z_along_t = rows.mean(z_t * rows.normalised + z * normalised_t)
    projected_t = z_t - normalised_t * z_along - rows.normalised * z_along_t
    if norm.centered:
        projected_t = projected_t - rows.mean(z_t)
    dx_t = r_t * rows.project(z) + rows.r * projected_t
    dw_t = rows.columns(g_t * rows.normalised + g * normalised_t)
    db_t = rows.columns(g_t + torch.zeros_like(rows.x))
    return dx_t, dw_t, db_t
