# SPDX-License-Identifier: Apache-2.0
"""Which of PyTorch's operators have the same bits wherever they are computed: those that move
elements, and those that round each element of their result once. Nothing is known of the others."""

import re

import torch

# The names of overloads, without the underscore of those in place. What was tried on ATen's three
# kinds of kernels for x86-64 is in tests/python/torch_promises.py.
_MOVING = """
    alias arange cat channel_shuffle clone col2im_copy concatenate constant_pad_nd contiguous copy
    detach diag_embed diagonal_backward diagonal_copy embedding empty empty_like empty_permuted
    empty_strided expand_copy eye fill flip full full_like gather hstack im2col index index_fill
    index_select item lift lift_fresh lift_fresh_copy masked_fill masked_scatter masked_select
    movedim new_empty new_empty_strided new_full new_ones new_zeros nonzero ones ones_like
    permute_copy pixel_shuffle pixel_unshuffle repeat repeat_interleave reshape resize roll rot90
    scalar_tensor select_backward select_copy select_scatter set slice_backward slice_scatter split
    split_with_sizes_copy stack t_copy take take_along_dim to transpose_copy tril triu
    unsqueeze_copy view_copy vstack where zero zeros zeros_like
    _conj_physical _local_scalar_dense _reshape_alias _reshape_copy _to_copy _unsafe_view
"""
_ROUNDING = """
    abs all any argmax argmin bitwise_and bitwise_not bitwise_or bitwise_xor bucketize ceil clamp
    clamp_max clamp_min copysign div divide eq equal floor ge gt hardtanh hardtanh_backward isfinite
    isinf isnan isneginf isposinf le leaky_relu leaky_relu_backward logical_and logical_not
    logical_or logical_xor lt mul multiply nan_to_num ne neg reciprocal relu round searchsorted sgn
    sign signbit sqrt square threshold threshold_backward true_divide trunc is_nonzero
"""
_EXACT = frozenset(_MOVING.split() + _ROUNDING.split())
_OF_COMPLEX = frozenset(_MOVING.split())
_SCALED = ("add", "sub", "rsub")  # x + alpha * y: alpha other than 1 is multiplied by fma, or not
_POWERS = (-2, -1, 0, 0.5, 1, 2, 3)  # by products, quotients and roots
_SUMS = ("sum", "mean", "amax", "amin", "prod", "nansum")  # of one element each it is that
_INTEGERS = ("randint", "random")  # on the CPU: bits of the generator, whose numbers are known

# What the others are called, by their names.
_KINDS = tuple(
    (re.compile(pattern, re.VERBOSE), kind)
    for pattern, kind in (
        ("^rand | ^normal | ^uniform | dropout | bernoulli | multinomial", "random numbers"),
        ("upsample | grid_sampler", "an upsampling"),
        ("embedding.*backward | scatter | index_(add|put|reduce) | ^put | _bag", "a scatter"),
        ("conv", "a convolution"),
        ("attention | mm$ | mm_ | ^v?dot | ^(add)?mv | matmul | ^linear$ | addr$", "a product"),
        ("linalg_(?!vector_norm) | cholesky | ^lu_ | triangular", "linear algebra"),
        ("_norm($|_backward|_legit|_no_training)", "a norm"),
        ("pool", "a pooling"),
        ("^cum | logcumsumexp", "running sums"),
        ("^_?fft | stft", "a Fourier transform"),
        ("sort | topk | kthvalue | median | mode | unique", "a sort"),
        ("softmax | loss | logsumexp", "a reduction"),
        (
            "^a?(sin|cos|tan|sinc)h? | exp | ^x?log | erf | gamma | ^pow | ^rsqrt | hypot | polar"
            "| gelu | silu | mish | sigmoid | elu(_backward)?$ | softplus | hardswish | tanh",
            "a transcendental function",
        ),
        (
            "^(var|std|mean|sum|norm|prod|amax|amin|max|min|aminmax|nansum|nanmean|cdist|dist|trace"
            "|linalg_vector_norm)(_|$)",
            "a reduction",
        ),
        ("^_?fused_ | ^_foreach", "many operations at once"),
    )
)


def _name(function):
    return function._schema.name.split("::")[1].removesuffix("_")


def _tensors(value):
    """Those of the arguments or results of an operator, which lie in lists at most."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors(each)


def _copies_once(args, kwargs):
    """Of index_put and scatter: whether no place can take two different elements, or a sum."""
    names = ("self", "indices", "values", "accumulate")
    given = dict(zip(names, args, strict=False)) | kwargs
    if given.get("accumulate"):
        return False
    masks = all(each is None or each.dtype == torch.bool for each in given["indices"])
    return masks or given["values"].numel() == 1


def _is_exact(function, name, args, kwargs, given, results):
    if function.is_view:
        return True
    real = [each for each in (*given, *results) if each.is_floating_point() or each.is_complex()]
    if any(each.is_complex() for each in real):
        return name in _OF_COMPLEX
    if name == "arange":  # start + i * step is rounded twice
        return not real or all(float(each).is_integer() for each in args if _is_number(each))
    if name in _EXACT or not real:
        return True
    if name in _SCALED:
        alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
        return alpha == 1
    if name == "pow":
        return _is_number(args[1]) and args[1] in _POWERS
    if name in _SUMS:
        return all(each.numel() == given[0].numel() for each in results)
    if name in ("index_put", "_index_put_impl", "_unsafe_index_put"):
        return _copies_once(args, kwargs)
    return name == "scatter" and not isinstance(kwargs.get("src", args[-1]), torch.Tensor)


def _is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def doubt(function, args, kwargs, results):
    """What kind of operation it is, of whose bits PyTorch promises nothing; empty where they are
    the same everywhere."""
    if function.namespace == "isobit":
        return ""
    given, results = (
        [*_tensors(args), *_tensors(list(kwargs.values()))],
        [*_tensors(results)],
    )
    every = [*given, *results]
    if all(each.is_meta or each.numel() == 0 for each in every):
        return ""
    name = _name(function)
    if function.namespace not in ("aten", "prim", "prims"):
        return f"an operator of {function.namespace}"
    seeded = torch.Tag.nondeterministic_seeded in function.tags
    if name in _INTEGERS and all(each.is_cpu and not each.is_floating_point() for each in results):
        return ""
    if not seeded and _is_exact(function, name, args, kwargs, given, results):
        return ""
    if seeded:
        return "random numbers"
    return next((kind for pattern, kind in _KINDS if pattern.search(name)), "not known to be exact")
