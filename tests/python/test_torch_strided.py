# SPDX-License-Identifier: Apache-2.0
"""What the adapters tell the C ABI of a tensor of any strides: its own memory, nothing copied."""

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from isobit.c_abi import Tensor

ROOT = Path(__file__).resolve().parents[2]
COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
TORCH = Path(torch.__file__).parent
SOURCE = ROOT / "src" / "isobit" / "torch" / "tensor.cpp"

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        not (COMPILER and SOURCE.exists()), reason="needs a compiler and the sources"
    ),
]

PROBE = """
#include "isobit/torch/device.h"
namespace isobit::torch {
Tensor new_output(const Tensor&, Shape, std::int32_t) { return {}; }  // nothing is copied
extern "C" void probe(AtenTensorHandle handle, isobit_tensor* view) {
  Tensor tensor(handle);
  *view = strided(tensor);
  tensor.release();
}
}
"""


@pytest.fixture(scope="module")
def strided(tmp_path_factory):
    folder = tmp_path_factory.mktemp("strided")
    (folder / "probe.cpp").write_text(PROBE)
    command = [COMPILER, "-std=c++20", "-shared", "-fPIC", folder / "probe.cpp", SOURCE]
    command += ["-DTORCH_TARGET_VERSION=0x020b000000000000", f"-I{TORCH / 'include'}"]
    command += [f"-I{ROOT / 'src'}", f"-I{ROOT / 'include'}", TORCH / "lib" / "libtorch_cpu.so"]
    subprocess.run([*command, "-o", folder / "probe.so"], check=True)
    library = ctypes.CDLL(str(folder / "probe.so"))

    def strided(tensor):
        view, handle = Tensor(), ctypes.c_void_p(tensor._cdata)  # at::Tensor is one pointer
        library.probe(ctypes.byref(handle), ctypes.byref(view))
        return view

    return strided


VIEWS = {
    "adjacent": lambda x: x,
    "transposed": lambda x: x.transpose(0, 2),
    "every other": lambda x: x[:, ::2, 1::3],
    "expanded": lambda x: x[:1].expand(7, *x.shape[1:]),
    "windows": lambda x: x[0].unfold(1, 3, 1),
    "no rows": lambda x: x[:0],
    "a number": lambda x: x[1, 1, 1],
    "eight dimensions": lambda x: x.view(2, 2, 1, 5, 2, 1, 2, 2),
    "of 16 bits": lambda x: x.half().T,
}


@pytest.mark.filterwarnings("ignore:The use of `x.T`")
@pytest.mark.parametrize("name", VIEWS)
def test_the_view_is_the_tensors_own(strided, name):
    x = VIEWS[name](torch.arange(160.0).view(4, 5, 8))
    view = strided(x)
    rank = max(1, x.dim())
    assert (view.data or 0) == x.data_ptr() and view.rank == rank
    assert list(view.shape[:rank]) == (list(x.shape) or [1])
    assert list(view.strides[:rank]) == (list(x.stride()) or [1])
    reached = sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True)) + 1
    assert view.bytes == (reached * x.itemsize if x.numel() else 0)
    assert view.dtype == {torch.float32: 1, torch.float16: 2}[x.dtype]
