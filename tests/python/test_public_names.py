# SPDX-License-Identifier: Apache-2.0
"""What the Python package shows: names for users, and nothing that happens to be imported."""

import ast
import graphlib
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import isobit
import isobit.lab
import isobit.numpy

FUNCTIONS = {
    "add",
    "add_layer_norm",
    "add_rms_norm",
    "causal_conv1d",
    "causal_conv1d_update",
    "conv1d",
    "conv2d",
    "dropout_add_layer_norm",
    "dropout_add_rms_norm",
    "increment",
    "layer_norm",
    "layer_norm_linear",
    "linear",
    "matmul",
    "rms_norm",
    "rms_norm_linear",
    "transpose",
}


def modules_of(package):
    names = {module.name for module in pkgutil.iter_modules(package.__path__)}
    return {name for name in names if not name.startswith("_")}


def test_import_of_isobit_shows_its_version_alone():
    script = "import isobit, json; print(json.dumps([isobit.__all__, dir(isobit)]))"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    listed, names = json.loads(said.stdout)
    assert listed == ["__version__"]
    assert [name for name in names if not name.startswith("_")] == []


def test_the_lab_has_a_package_of_its_own():
    expected = {"c_abi", "command", "dlpack", "lab", "numpy", "ops", "torch"}
    assert modules_of(isobit) == expected
    lab = {"callers", "cases", "executor", "functions", "gpu_timing", "plots", "report", "triton"}
    assert modules_of(isobit.lab) == lab
    assert isobit.lab.__all__ == []


def test_no_files_of_the_package_import_each_other_in_a_circle():
    """Those of isobit itself; where they did, functions imported as they were called."""
    folder = Path(isobit.__file__).parent
    imports = {file.stem: set() for file in folder.glob("*.py")}
    for name, found in imports.items():
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "isobit":
                found |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("isobit."):
                found.add(node.module.removeprefix("isobit."))
    known = {name: found & set(imports) for name, found in imports.items()}
    assert "_calls" in known["numpy"]
    assert list(graphlib.TopologicalSorter(known).static_order())  # fails on a circle


ACTIVATIONS = {"exp", "geglu", "gelu", "log", "sigmoid", "silu", "swiglu", "tanh"}
ACTIVATIONS |= {"cross_entropy", "linear_cross_entropy", "log_softmax", "softmax"}
ACTIVATIONS |= {"cross_entropy", "embedding", "log_softmax", "softmax"}
ACTIVATIONS |= {"cross_entropy", "log_softmax", "softmax"}
ACTIVATIONS |= {"batch_norm", "group_norm"}
NUMBERS = {"dropout"}
NUMBERS |= {"binary_cross_entropy_with_logits", "huber_loss", "l1_loss", "mse_loss"}
NUMBERS |= {"nll_loss", "smooth_l1_loss"}
STEPS = {"adam", "lion", "sgd", "vector_norm"}
ACTIVATIONS |= {"interpolate"}
REDUCTIONS = {"amax", "amin", "mean", "norm", "std", "sum", "var"}


POOLS = {"adaptive_avg_pool2d", "avg_pool2d", "max_pool2d"}
SCANS = {"cummax", "cummin", "cumprod", "cumsum", "logcumsumexp"}


def test_isobit_numpy_shows_functions_and_packed_matrices():
    backward = {"layer_norm_backward", "rms_norm_backward"}
    assert {
        *isobit.numpy.__all__
    } == FUNCTIONS | ACTIVATIONS | POOLS | SCANS | STEPS | NUMBERS | REDUCTIONS | backward | {
        "PackedMatrix",
        "apply_rotary",
        "get_num_threads",
        "rotary_tables",
        "scaled_dot_product_attention",
        "set_num_threads",
        "transpose",
    }


def test_isobit_torch_shows_functions_modules_and_settings():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    import isobit.torch

    classes = {"LayerNorm", "Override", "RMSNorm", "Report", "Transpose"}
    classes |= {"GELU", "GeGLU", "SiLU", "Sigmoid", "SwiGLU", "Tanh"}
    memory = {"cache_limit", "cache_use", "empty_cache", "set_cache_limit"}
    classes |= {"Linear", "PackedLinear", "RotaryEmbedding", "Scan", "bmm", "mm"}
    classes |= {"LayerNormLinear", "LayerNormMLP", "RMSNormLinear"}
    classes |= {"CausalConv1d", "Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d"}
    classes |= {"layer_norm_mlp", "rms_norm_mlp"}
    classes |= {"KeyValueCache", "MultiheadAttention", "SelfAttention"}
    classes |= {"CrossEntropyLoss", "LinearCrossEntropyLoss", "LogSoftmax", "Softmax"}
    classes |= {"CrossEntropyLoss", "Embedding", "LogSoftmax", "Softmax"}
    classes |= {"CrossEntropyLoss", "LogSoftmax", "Softmax"}
    classes |= {"BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "instance_norm"}
    classes |= {"InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d"}
    classes |= {"AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AvgPool1d", "AvgPool2d"}
    classes |= {"MaxPool1d", "MaxPool2d", "adaptive_avg_pool1d", "avg_pool1d", "max_pool1d"}
    classes |= {"Conversion", "Statistics", "Unreproducible"}
    classes |= {"Upsample", "UpsamplingBilinear2d", "UpsamplingNearest2d"}
    classes |= {*REDUCTIONS, "std_mean", "var_mean"}
    classes |= {"BCEWithLogitsLoss", "HuberLoss", "L1Loss", "MSELoss", "NLLLoss", "SmoothL1Loss"}
    classes |= {"binary_cross_entropy_with_logits", "huber_loss", "l1_loss", "mse_loss"}
    classes |= {"nll_loss", "smooth_l1_loss"}
    classes |= {"Dropout", "Generator", "dropout", "manual_seed"}
    rest = {
        "apply_rotary",
        "clip_grad_norm_",
        "conv_transpose1d",
        "conv_transpose2d",
        "get_total_norm",
        "convert",
        "intercept",
        "override",
        "paged_attention",
        "patch",
        "record",
        "register_transformers_attention",
        "rotary_tables",
        "scaled_dot_product_attention",
        "settings",
        "statistics",
        "varlen_attention",
    }
    assert {
        *isobit.torch.__all__
    } == FUNCTIONS | ACTIVATIONS | POOLS | SCANS | classes | memory | rest


@pytest.mark.parametrize("name", ["isobit.numpy", "isobit.torch"])
def test_every_name_that_is_shown_is_there(name):
    if name == "isobit.torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    module = importlib.import_module(name)
    assert all(hasattr(module, each) for each in module.__all__)
