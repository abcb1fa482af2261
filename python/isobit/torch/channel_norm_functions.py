# SPDX-License-Identifier: Apache-2.0
"""batch_norm, group_norm and instance_norm: torch.nn.functional's, with the same bits wherever they
are computed."""

from math import prod

import torch

from isobit.torch.channel_norms import BATCH_NORM, GROUP_NORM
from isobit.torch.functional import overridable, run


def _check(op, least, input, **others):
    if not isinstance(input, torch.Tensor):
        raise TypeError(f"{op}: input must be a Tensor; it is {type(input).__name__}")
    for name, tensor in {"input": input, **others}.items():
        if tensor is not None and not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{op}: {name} must be a Tensor; it is {type(tensor).__name__}")
        if tensor is not None and tensor.is_nested:
            raise NotImplementedError(f"{op}: {name} is nested; must be strided")
    if input.ndim < least:
        raise ValueError(f"{op}: input has {input.ndim} dimensions; must have at least {least}")


def _more_than_one(op, input, values, of):
    if values == 1:
        raise ValueError(
            f"{op}: input of shape {tuple(input.shape)} has one value of each {of}; there must be "
            "more, or all are equal to their mean"
        )


def _of_real(input, tensor):
    """Running statistics in the type that is computed in."""
    if tensor is not None and input.dtype is tensor.dtype is torch.float32:
        return tensor
    return None if tensor is None else tensor.to(torch.promote_types(input.dtype, torch.float32))


@overridable
def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5):
    """torch.nn.functional.group_norm. Where input has its channels last in memory, so has the
    result."""
    _check("group_norm", 2, input, weight=weight, bias=bias)
    if num_groups < 1 or input.shape[1] % num_groups:
        raise ValueError(
            f"group_norm: input has {input.shape[1]} channels, which {num_groups} groups cannot "
            "share"
        )
    values = input.shape[0] * input.shape[1] * prod(input.shape[2:])
    _more_than_one("group_norm", input, values // num_groups, "group")
    tensors = {"x": input, "weight": weight, "bias": bias}
    return run(GROUP_NORM, tensors, groups=num_groups, eps=eps)[0]


def _move(*pairs):
    """Writes what became of running statistics, without a derivative."""
    for running, next_one in pairs:
        if running is not None and next_one.numel() == running.numel():
            running.detach().copy_(next_one.detach())


def _batch_norm(x, running, weight, bias, training, momentum, eps):
    """y, and what becomes of the running statistics, which have no derivative in training."""
    mean, var = (_of_real(x, each) for each in running)
    if training:
        mean, var = (None if each is None else each.detach() for each in (mean, var))
    tensors = {"x": x, "weight": weight, "bias": bias, "running_mean": mean, "running_var": var}
    return run(BATCH_NORM, tensors, training=training, momentum=momentum, eps=eps)[:3]


@overridable
def batch_norm(
    input,
    running_mean,
    running_var,
    weight=None,
    bias=None,
    training=False,
    momentum=0.1,
    eps=1e-5,
):
    """torch.nn.functional.batch_norm. Where input has its channels last in memory, so has the
    result. In training running_mean and running_var are changed in place."""
    running = {"running_mean": running_mean, "running_var": running_var}
    if isinstance(input, torch.Tensor) and input.shape == (0,):
        return input.clone()  # as PyTorch does, though it has no channels
    _check("batch_norm", 2, input, **running, weight=weight, bias=bias)
    training = bool(training)
    if training:
        values = input.shape[0] * prod(input.shape[2:])
        _more_than_one("batch_norm", input, values, "channel")
    elif running_mean is None or running_var is None:
        missing = "running_mean" if running_mean is None else "running_var"
        raise ValueError(f"batch_norm: {missing} is None; must be given without training")
    more = (weight, bias, training, momentum, eps)
    y, mean, var = _batch_norm(input, running.values(), *more)
    if training:
        _move((running_mean, mean), (running_var, var))
    return y


def _mean_of_images(values, channels):
    """Of each channel, added by adjacent pairs: the same bits on every device."""
    rows = values.view(-1, channels)
    count = rows.shape[0]
    while rows.shape[0] > 1:
        pairs = rows.shape[0] // 2 * 2
        rows = torch.cat((rows[0:pairs:2] + rows[1:pairs:2], rows[pairs:]))
    return rows[0] / count


@overridable
def instance_norm(
    input,
    running_mean=None,
    running_var=None,
    weight=None,
    bias=None,
    use_input_stats=True,
    momentum=0.1,
    eps=1e-5,
):
    """torch.nn.functional.instance_norm: group_norm with a group for each channel. In training, as
    use_input_stats says, running_mean and running_var become the means over the images of what
    batch_norm would make of each alone."""
    if not use_input_stats:
        return batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    running = {"running_mean": running_mean, "running_var": running_var}
    _check("instance_norm", 3, input, **running, weight=weight, bias=bias)
    _more_than_one("instance_norm", input, prod(input.shape[2:]), "channel of an image")
    images, channels = input.shape[:2]
    if running_mean is None and running_var is None:
        tensors = {"x": input, "weight": weight, "bias": bias}
        return run(GROUP_NORM, tensors, groups=max(channels, 1), eps=eps)[0]
    if images == 0:
        return torch.empty_like(input)
    repeated = [
        None if each is None else each.repeat(images)
        for each in (running_mean, running_var, weight, bias)
    ]
    more = (*repeated[2:], True, momentum, eps)
    y, mean, var = _batch_norm(input.reshape(1, images * channels, -1), repeated[:2], *more)
    if running_mean is not None:
        _move((running_mean, _mean_of_images(mean.detach(), channels)))
    if running_var is not None:
        _move((running_var, _mean_of_images(var.detach(), channels)))
    return y.reshape(input.shape)
