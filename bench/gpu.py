# SPDX-License-Identifier: Apache-2.0
"""Times LayerNorm on a GPU beside its peers, in one run: forward, forward of a sum that is stored
too, and backward, into JSON Lines; and plain copies of all sizes, on the device, to the host and
from it.

Each implementation's calls are captured in a CUDA graph that walks through several sets of arrays,
together more than four times the second cache; the graphs are replayed in turn, there and back, and
an implementation's figure is the median of its rounds. `copy_fraction` is the time of a plain copy
of as many bytes over ours. The lines are those of `isobit bench`, so `isobit report` draws them.
--dry does the same on the processor, with small shapes.
"""

import argparse
import contextlib
import ctypes
import importlib
import json
import os
import platform
import sys
import time
from functools import partial
from pathlib import Path

import torch

from isobit.lab.gpu_timing import Timer, quantiles, time_interleaved

ROOT = Path(__file__).resolve().parents[1]
SHAPES = [  # rows, columns: what should reach memory's speed, then the widths of real models
    *((65536, 768), (65536, 1024), (32768, 2048), (16384, 4096), (16384, 5120), (16384, 8192)),
    *((8192, 12288), (8192, 16384), (4096, 65536), (2048, 262144)),
    *((16384, 768), (16384, 1024), (8192, 1024), (4096, 1280), (2048, 1600), (2048, 2048)),
    *((2048, 4096), (2048, 5120), (2048, 6144), (1024, 8192), (512, 12288)),
]
DRY_SHAPES = [(5, 64), (40, 768)]
EPS = 1e-5
ARRAYS = {
    "fwd": ("x", "weight", "bias", "y", "mean", "rstd"),
    "bwd": ("x", "grad_y", "weight", "grad_x", "grad_weight", "grad_bias"),
    "add": ("x", "residual", "weight", "bias", "y", "sum", "mean", "rstd"),
}
OUTPUTS = {"fwd": ARRAYS["fwd"][3:], "bwd": ARRAYS["bwd"][3:]}
MOVED = {"fwd": 2, "bwd": 3, "add": 4}  # arrays of x's shape
TOLD = {  # as the lab tells of a call
    "fwd": {"pass": "fwd"},
    "add": {"pass": "fwd", "with": "residual+sum"},
    "bwd": {"pass": "bwd"},
}
COPIED = [1 << power for power in range(16, 31, 2)]  # bytes
DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16"}
CODES = {torch.float32: 1, torch.float16: 2, torch.bfloat16: 3, torch.float64: 4}


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_int64),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.c_int64 * 8),
        ("strides", ctypes.c_int64 * 8),
    ]


class Context(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("threads", ctypes.c_int32),
        ("parallel_for", ctypes.c_void_p * 2),
        ("allocator", ctypes.c_void_p * 3),
        ("device", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
    ]


def arguments(*tensors):
    numbers = [
        ("eps", ctypes.c_double),
        ("dropout", ctypes.c_double),
        ("dropout_seed", ctypes.c_uint64),
        ("hidden_dims", ctypes.c_int64),
        ("zero_centered", ctypes.c_int32),
    ]
    pointers = [(name, ctypes.POINTER(Tensor)) for name in tensors]
    fields = [("struct_size", ctypes.c_size_t), *pointers, *numbers]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


FORWARD = arguments("x", "weight", "bias", "residual", "y", "sum", "mean", "rstd")
BACKWARD = arguments(
    *("x", "grad_y", "weight", "mean", "rstd", "grad_sum", "grad_x", "grad_residual"),
    *("grad_weight", "grad_bias"),
)


class Isobit:
    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))
        self.library.isobit_last_error.restype = ctypes.c_char_p
        self.library.isobit_version.restype = ctypes.c_char_p
        self.version = self.library.isobit_version().decode()

    def call(self, entry, struct, **tensors):
        views = {name: self.view(tensor) for name, tensor in tensors.items()}
        args = struct(ctypes.sizeof(struct), eps=EPS, hidden_dims=1)
        for name, view in views.items():
            setattr(args, name, ctypes.pointer(view))
        on_gpu = next(iter(tensors.values())).is_cuda
        stream = torch.cuda.current_stream().cuda_stream if on_gpu else None
        context = Context(ctypes.sizeof(Context), device=int(on_gpu), stream=stream)
        if getattr(self.library, entry)(ctypes.byref(args), ctypes.byref(context)) != 0:
            raise RuntimeError(self.library.isobit_last_error().decode())

    @staticmethod
    def view(tensor):
        view = Tensor(tensor.data_ptr(), tensor.nbytes, CODES[tensor.dtype], tensor.dim())
        for i in range(tensor.dim()):
            view.shape[i], view.strides[i] = tensor.shape[i], tensor.stride(i)
        return view

    def forward(self, s):
        self.call("isobit_layernorm_forward", FORWARD, **arrays_of(s, "fwd"))

    def forward_of_sum(self, s):
        self.call("isobit_layernorm_forward", FORWARD, **arrays_of(s, "add"))

    def backward(self, s):
        self.call("isobit_layernorm_backward", BACKWARD, **arrays_of(s, "bwd"))


def arrays_of(s, kind):
    return {name: s[name] for name in ARRAYS[kind]}


def make_set(rows, cols, dtype, device, seed):
    generator = torch.Generator(device=device).manual_seed(seed)

    def drawn(*shape):
        return torch.randn(*shape, generator=generator, device=device).to(dtype)

    s = {name: drawn(rows, cols) for name in ("x", "grad_y", "residual")}
    s |= {"weight": drawn(cols), "bias": drawn(cols)}
    s |= {name: torch.full_like(s["x"], float("nan")) for name in ("y", "grad_x", "sum")}
    s |= {name: torch.empty_like(s["weight"]) for name in ("grad_weight", "grad_bias")}
    s |= {name: torch.empty(rows, device=device) for name in ("mean", "rstd")}
    return s


def torch_forward(s):
    torch.ops.aten.native_layer_norm(s["x"], [s["x"].shape[1]], s["weight"], s["bias"], EPS)


def torch_forward_of_sum(s):
    torch.add(s["x"], s["residual"], out=s["sum"])
    torch.ops.aten.native_layer_norm(s["sum"], [s["x"].shape[1]], s["weight"], s["bias"], EPS)


def torch_backward(s):
    torch.ops.aten.native_layer_norm_backward(
        *(s["grad_y"], s["x"], [s["x"].shape[1]], s["mean"][:, None], s["rstd"][:, None]),
        *(s["weight"], s["bias"], [True, True, True]),
    )


def compiled(function):
    """As torch.compile makes it; for tensors of the processor it is traced as for others, and left
    at that: what is timed there is nothing."""
    made = {
        backend: torch.compile(function, dynamic=False, backend=backend)
        for backend in ("inductor", "aot_eager")
    }
    return lambda *tensors: made["inductor" if tensors[0].is_cuda else "aot_eager"](*tensors)


@compiled
def compiled_norm(x, weight, bias):
    return torch.nn.functional.layer_norm(x, [x.shape[1]], weight, bias, EPS)


@compiled
def compiled_norm_of_sum(x, residual, weight, bias):
    total = x + residual
    return torch.nn.functional.layer_norm(total, [x.shape[1]], weight, bias, EPS), total


def compiled_forward_of_sum(s):
    compiled_norm_of_sum(s["x"], s["residual"], s["weight"], s["bias"])


def compiled_forward(s):
    compiled_norm(s["x"], s["weight"], s["bias"])


def compiled_backward(s):
    if "graph" not in s:
        leaves = [s[name].detach().requires_grad_() for name in ("x", "weight", "bias")]
        s["graph"] = leaves, compiled_norm(*leaves)
    leaves, y = s["graph"]
    torch.autograd.grad(y, leaves, s["grad_y"], retain_graph=True)


def triton_variants():
    return importlib.import_module("isobit.ops.layernorm.triton").VARIANTS.values()


def in_triton():
    """{name: {kind: call}}; a variant is for one of them."""

    def call(variant, direction, s):
        variant.run(**arrays_of(s, direction), eps=EPS)

    return {
        f"triton.{variant.name}": {
            kind: partial(call, variant, kind) for kind in ARRAYS if kind in variant.kinds
        }
        for variant in triton_variants()
    }


def compiled_triton(s):
    """Where nothing can be launched, its kernels are compiled for sm_90."""
    try:
        target = importlib.import_module("triton.backends.compiler").GPUTarget("cuda", 90, 32)
        variants = triton_variants()
    except ImportError as error:
        yield {"who": "triton", "absent": str(error)}
        return
    for variant in variants:
        for direction in variant.kinds:
            launches = list(variant.launches(**arrays_of(s, direction), eps=EPS))
            for launch in launches:
                launch.compiled(target)
            line = {"pass": direction, "who": f"triton.{variant.name}"}
            yield line | {"compiled": "sm_90", "kernels": len(launches)}


def in_torch_compile():
    kinds = {"fwd": compiled_forward, "add": compiled_forward_of_sum, "bwd": compiled_backward}
    return {"torch.compile": kinds}


def in_liger():
    liger = importlib.import_module("liger_kernel.ops.layer_norm")

    def forward(s):
        liger.layer_norm_forward(s["x"], s["weight"], s["bias"], EPS)

    def backward(s):
        liger.layer_norm_backward(
            *(s["grad_y"], s["x"], s["weight"], s["bias"], s["mean"], s["rstd"])
        )

    return {"liger": {"fwd": forward, "bwd": backward}}


def in_quack():
    """It takes weights of f32 alone, and has no backward before 0.6.2."""
    quack = importlib.import_module("quack.rmsnorm")

    def wide(s, name):
        if f"wide_{name}" not in s:
            s[f"wide_{name}"] = s[name].float()
        return s[f"wide_{name}"]

    def forward(s):
        weights = wide(s, "weight"), wide(s, "bias")
        quack.layernorm_fwd(s["x"], *weights, EPS, return_rstd=True, return_mean=True)

    def backward(s):
        quack.layernorm_bwd(s["x"], wide(s, "weight"), s["grad_y"], s["rstd"], s["mean"])

    return {
        "quack": {"fwd": forward} | ({"bwd": backward} if hasattr(quack, "layernorm_bwd") else {})
    }


PEERS = {
    "triton": in_triton,
    "torch.compile": in_torch_compile,
    "liger": in_liger,
    "quack": in_quack,
}


def implementations(isobit, dry):
    """{name: {kind: call}}, and why others are not there."""
    ours = {"fwd": isobit.forward, "add": isobit.forward_of_sum, "bwd": isobit.backward}
    theirs = {"fwd": torch_forward, "add": torch_forward_of_sum, "bwd": torch_backward}
    found, absent = {"isobit": ours, "torch": theirs}, {}
    for name, find in PEERS.items():
        if dry:
            absent[name] = "dry"
            continue
        try:
            found |= find()
        except ImportError as error:
            absent[name] = str(error)
    return found, absent


def same_bits(isobit, s, dry):
    """Whether the processor gives the bits that the GPU left in a set's rows."""
    if dry:
        return None
    rows = min(64, s["x"].shape[0])
    mine = {name: tensor.cpu() for name, tensor in s.items() if name != "graph"}
    for name in ("x", "grad_y", "y", "grad_x", "mean", "rstd"):
        mine[name] = mine[name][:rows].clone()
    theirs = {name: mine[name].clone() for name in ("y", "mean", "rstd", "grad_x")}
    isobit.forward(mine)
    isobit.backward(mine)
    return equal(mine, theirs)


def equal(arrays, expected):
    """Whether arrays have the bits expected."""
    kinds = {2: torch.int16, 4: torch.int32}
    return all(
        torch.equal(*(t.view(kinds[t.element_size()]) for t in (arrays[name], expected[name])))
        for name in expected
    )


def triton_bits(peers, s):
    """Whether Triton's variants give the bits of our kernels."""
    for name, calls in peers.items():
        for direction, theirs in calls.items():
            if not name.startswith("triton."):
                continue
            peers["isobit"][direction](s)
            expected = {output: s[output].clone() for output in OUTPUTS[direction]}
            for output in expected:
                s[output].fill_(float("nan"))
            line = {"pass": direction, "rows": s["x"].shape[0], "cols": s["x"].shape[1]}
            try:
                theirs(s)
            except Exception as error:
                yield line | {"who": name, "absent": first_line(error)}
            else:
                yield line | {"who": name, "same_bits": equal(s, expected)}


def first_line(error):
    return str(error).partition("\n")[0][:200]


def measured(timer, time_of):
    return {"how": timer.how} | {f"{key}_us": seconds * 1e6 for key, seconds in time_of.items()}


def copy_timer(size, count, device, to=None):
    """Of a copy of so many bytes, from one of `count` buffers to another, there or elsewhere."""
    pin = {"pin_memory": True} if device == "host" or to == "host" else {}

    def buffer(where):
        if where == "host":
            return torch.empty(size, dtype=torch.uint8, **pin)
        return torch.empty(size, dtype=torch.uint8, device=where).random_()

    pairs = [(buffer(device), buffer(to or device)) for _ in range(count)]
    on = "cuda" if "host" in (device, to) else device
    return Timer(lambda pair: pair[1].copy_(pair[0], non_blocking=True), pairs, on)


def copies(device, rounds, dry):
    """GB/s of plain copies: read and written on the device, moved to the host and from it."""
    l2 = 0 if dry else torch.cuda.get_device_properties(0).L2_cache_size
    ways = {"device": (device, None, 2)}
    if not dry:
        ways |= {"from host": ("host", device, 1), "to host": (device, "host", 1)}
    for size in COPIED[:2] if dry else COPIED:
        count = min(500, max(3, -(-4 * l2 // (2 * size))))
        for way, (source, to, moved) in ways.items():
            timer = copy_timer(size, count if to is None else 3, source, to)
            seconds = quantiles(time_interleaved({way: timer}, rounds)[way])
            gbps = moved * size / seconds["median"] / 1e9
            yield {"copy": way, "bytes": size, **measured(timer, seconds), "gbps": gbps}


def measure(isobit, peers, shape, dtype, device, dry, rounds):
    rows, cols = shape
    size = rows * cols * torch.finfo(dtype).bits // 8
    l2 = 0 if dry else torch.cuda.get_device_properties(0).L2_cache_size
    count = 2 if dry else max(3, -(-4 * l2 // (2 * size)))
    sets = [make_set(rows, cols, dtype, device, seed) for seed in range(count)]
    for s in sets:
        isobit.forward(s)  # the statistics that backward is given
    for kind, arrays in MOVED.items():
        timers = {"copy": copy_timer(arrays * size // 2, count, device)}
        absent = {}
        for name, calls in peers.items():
            try:
                if kind in calls:
                    timers[name] = Timer(calls[kind], sets, device)
            except Exception as error:
                absent[name] = first_line(error)
        seconds = time_interleaved(timers, rounds)
        times = {name: quantiles(samples) for name, samples in seconds.items()}
        ours = times["isobit"]["median"]
        yield {
            "op": "layernorm",
            **TOLD[kind],
            "rows": rows,
            "cols": cols,
            "dtype": DTYPES[dtype],
            "weight_dtype": DTYPES[dtype],
            "device": device,
            **measured(timers["isobit"], times["isobit"]),
            "gbps": arrays * size / ours / 1e9,
            "copy_fraction": times["copy"]["median"] / ours,
            "peers": [
                {"name": name, **measured(timers[name], time_of)}
                | {"ratio": time_of["median"] / ours}
                for name, time_of in times.items()
                if name not in ("isobit", "copy")
            ],
        }
        for name, reason in absent.items():
            told = TOLD[kind] | {"rows": rows, "cols": cols}
            yield told | {"who": name, "absent": reason}
    if dry:
        yield from compiled_triton(sets[0])
    else:
        yield from triton_bits(peers, sets[0])
        isobit.forward(sets[0])
        isobit.backward(sets[0])
    yield {
        "rows": rows,
        "cols": cols,
        "who": "isobit",
        "same_bits": same_bits(isobit, sets[0], dry),
    }


def header(isobit, absent, device):
    packed = ROOT / "build" / "gpu" / "commit"
    commit = packed.read_text() if packed.exists() else ""
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda}
    for package in ("triton", "liger_kernel", "quack"):
        with contextlib.suppress(ImportError, AttributeError):
            versions[package] = importlib.import_module(package).__version__
    return {
        "device": torch.cuda.get_device_name(0) if device == "cuda" else platform.processor(),
        "cpus": os.cpu_count(),
        "isobit": isobit.version,
        "versions": versions | {"python": platform.python_version()},
        "commit": commit.rstrip("+"),
        "uncommitted_changes": commit.endswith("+"),
        "command": " ".join(["python", "bench/gpu.py", *sys.argv[1:]]),
        "absent": absent,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--library", type=Path, required=True, help="libisobit.so")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dry", action="store_true", help="on the CPU, with small shapes")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument(
        "--seconds", type=float, default=420, help="start no new shape after so many seconds"
    )
    args = parser.parse_args()

    begin = time.monotonic()
    device = "cpu" if args.dry else "cuda"
    isobit = Isobit(args.library)
    peers, absent = implementations(isobit, args.dry)
    with args.out.open("w") as out:
        print(json.dumps(header(isobit, absent, device)), file=out, flush=True)
        for line in copies(device, args.rounds, args.dry):
            print(json.dumps(line), file=out, flush=True)
        for dtype in (torch.bfloat16, torch.float32):
            for shape in DRY_SHAPES if args.dry else SHAPES:
                late = time.monotonic() - begin > args.seconds
                lines = (
                    [{"rows": shape[0], "cols": shape[1], "absent": "no time was left"}]
                    if late
                    else measure(isobit, peers, shape, dtype, device, args.dry, args.rounds)
                )
                for line in lines:
                    print(json.dumps(line), file=out, flush=True)
    print(f"{args.out}: {time.monotonic() - begin:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
