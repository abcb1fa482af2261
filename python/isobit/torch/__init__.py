# SPDX-License-Identifier: Apache-2.0
"""Isobit in PyTorch: norms as drop-ins, with the same bits in eager and compiled code."""

from isobit.torch import (
    adapters,  # noqa: F401, first of all: it says what to do where there is no PyTorch
    distributed,  # noqa: F401, whose names are its own
    init,  # noqa: F401, whose names are its own
    optim,  # noqa: F401, whose names are its own
    sharding,
)
from isobit.torch.activation_functions import (
    exp,
    geglu,
    gelu,
    log,
    sigmoid,
    silu,
    swiglu,
    tanh,
)
from isobit.torch.activation_modules import GELU, GeGLU, Sigmoid, SiLU, SwiGLU, Tanh
from isobit.torch.attention_functions import scaled_dot_product_attention
from isobit.torch.attention_modules import MultiheadAttention
from isobit.torch.causal_convolutions import CausalConv1d, causal_conv1d, causal_conv1d_update
from isobit.torch.channel_norm_functions import batch_norm, group_norm, instance_norm
from isobit.torch.channel_norm_modules import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from isobit.torch.clipping import clip_grad_norm_, get_total_norm
from isobit.torch.conversion import Conversion, convert
from isobit.torch.convolutions import (
    Conv1d,
    Conv2d,
    ConvTranspose1d,
    ConvTranspose2d,
    conv1d,
    conv2d,
    conv_transpose1d,
    conv_transpose2d,
)
from isobit.torch.dropout_functions import Dropout, dropout
from isobit.torch.embedding_functions import embedding
from isobit.torch.embedding_modules import Embedding
from isobit.torch.functional import (
    add,
    add_layer_norm,
    add_rms_norm,
    dropout_add_layer_norm,
    dropout_add_rms_norm,
    increment,
    layer_norm,
    rms_norm,
    transpose,
)
from isobit.torch.generators import Generator, manual_seed
from isobit.torch.interception import Override, intercept, override
from isobit.torch.interpolation_functions import interpolate
from isobit.torch.interpolation_modules import Upsample, UpsamplingBilinear2d, UpsamplingNearest2d
from isobit.torch.loss_functions import cross_entropy, linear_cross_entropy
from isobit.torch.loss_modules import CrossEntropyLoss, LinearCrossEntropyLoss
from isobit.torch.memory import cache_limit, cache_use, empty_cache, set_cache_limit
from isobit.torch.modules import LayerNorm, RMSNorm, Transpose
from isobit.torch.norm_linear_functions import (
    layer_norm_linear,
    layer_norm_mlp,
    rms_norm_linear,
    rms_norm_mlp,
)
from isobit.torch.norm_linear_modules import LayerNormLinear, LayerNormMLP, RMSNormLinear
from isobit.torch.packed_modules import PackedLinear
from isobit.torch.paged_functions import paged_attention
from isobit.torch.patching import Report, patch
from isobit.torch.pointwise_loss_functions import (
    binary_cross_entropy_with_logits,
    huber_loss,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from isobit.torch.pointwise_loss_modules import (
    BCEWithLogitsLoss,
    HuberLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    SmoothL1Loss,
)
from isobit.torch.pooling_functions import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    avg_pool1d,
    avg_pool2d,
    max_pool1d,
    max_pool2d,
)
from isobit.torch.pooling_modules import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AvgPool1d,
    AvgPool2d,
    MaxPool1d,
    MaxPool2d,
)
from isobit.torch.product_functions import bmm, linear, matmul, mm
from isobit.torch.product_modules import Linear
from isobit.torch.recording import record
from isobit.torch.reduction_functions import (
    amax,
    amin,
    mean,
    norm,
    std,
    std_mean,
    sum,
    var,
    var_mean,
)
from isobit.torch.rotary import RotaryEmbedding, apply_rotary, rotary_tables
from isobit.torch.scans import Scan, cummax, cummin, cumprod, cumsum, logcumsumexp
from isobit.torch.self_attention import KeyValueCache, SelfAttention
from isobit.torch.settings import settings
from isobit.torch.softmax_functions import log_softmax, softmax
from isobit.torch.softmax_modules import LogSoftmax, Softmax
from isobit.torch.statistics import Statistics, statistics
from isobit.torch.transformers_attention import register_transformers_attention
from isobit.torch.varlen_functions import varlen_attention
from isobit.torch.watching import Unreproducible

sharding.register_when_imported()

__all__ = [
    "GELU",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "CausalConv1d",
    "Conv1d",
    "Conv2d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "Conversion",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "GeGLU",
    "Generator",
    "GroupNorm",
    "HuberLoss",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "KeyValueCache",
    "L1Loss",
    "LayerNorm",
    "LayerNormLinear",
    "LayerNormMLP",
    "Linear",
    "LinearCrossEntropyLoss",
    "LogSoftmax",
    "MSELoss",
    "MaxPool1d",
    "MaxPool2d",
    "MultiheadAttention",
    "NLLLoss",
    "Override",
    "PackedLinear",
    "RMSNorm",
    "RMSNormLinear",
    "Report",
    "RotaryEmbedding",
    "Scan",
    "SelfAttention",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "Softmax",
    "Statistics",
    "SwiGLU",
    "Tanh",
    "Transpose",
    "Unreproducible",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "add",
    "add_layer_norm",
    "add_rms_norm",
    "amax",
    "amin",
    "apply_rotary",
    "avg_pool1d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy_with_logits",
    "bmm",
    "cache_limit",
    "cache_use",
    "causal_conv1d",
    "causal_conv1d_update",
    "clip_grad_norm_",
    "conv1d",
    "conv2d",
    "conv_transpose1d",
    "conv_transpose2d",
    "convert",
    "cross_entropy",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "dropout",
    "dropout_add_layer_norm",
    "dropout_add_rms_norm",
    "embedding",
    "empty_cache",
    "exp",
    "geglu",
    "gelu",
    "get_total_norm",
    "group_norm",
    "huber_loss",
    "increment",
    "instance_norm",
    "intercept",
    "interpolate",
    "l1_loss",
    "layer_norm",
    "layer_norm_linear",
    "layer_norm_mlp",
    "linear",
    "linear_cross_entropy",
    "log",
    "log_softmax",
    "logcumsumexp",
    "manual_seed",
    "matmul",
    "max_pool1d",
    "max_pool2d",
    "mean",
    "mm",
    "mse_loss",
    "nll_loss",
    "norm",
    "override",
    "paged_attention",
    "patch",
    "record",
    "register_transformers_attention",
    "rms_norm",
    "rms_norm_linear",
    "rms_norm_mlp",
    "rotary_tables",
    "scaled_dot_product_attention",
    "set_cache_limit",
    "settings",
    "sigmoid",
    "silu",
    "smooth_l1_loss",
    "softmax",
    "statistics",
    "std",
    "std_mean",
    "sum",
    "swiglu",
    "tanh",
    "transpose",
    "var",
    "var_mean",
    "varlen_attention",
]
