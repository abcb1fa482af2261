# SPDX-License-Identifier: Apache-2.0
"""Holds C++ to its layers: the name of a file says what it may include."""

import fnmatch
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = {".h", ".hpp", ".cpp", ".cu", ".cuh"}

# A file takes the first row whose pattern it matches; OP is then its own operator, FACE any
# operator's face (ops/NAME/NAME.h), FORMULA any operator's arithmetic, REFERENCE its reference,
# and SHARED what its own backends and its dispatch share (of any operator: PROBLEMS). NORMS is
# what all norms share, but for one backend's code; NORM_LINEAR and OPTIMIZERS are the same of
# norm_linear/ and optimizers/. A folder may always include itself, except in ops/ and these three,
# where each role has a row. Those through whom users call lend operators simd's
# threads.
USERS = "core/* dispatch/* simd/parallel_for.h ops/catalog.h ops/device_catalog.h FACE"
RULES = (
    ("core/*", ""),
    ("simd/*", "core/*"),
    ("simt/*", "core/*"),
    ("functions/*", "core/*"),
    ("executor/*", "core/tensor_core.h"),
    ("dispatch/*", "core/*"),
    ("tile/*", "core/* simt/simt.h simt/warpgroup.h"),
    ("norms/reference*", "core/* norms/reference*"),
    ("norms/definition.h", "core/* dispatch/* NORMS norms/reference.h"),
    ("norms/cpu*", "core/* dispatch/* simd/* norms/cpu* NORMS"),
    ("norms/cuda*", "core/* dispatch/* simt/simt.h tile/* norms/cuda* NORMS"),
    ("norms/*", "core/* dispatch/* NORMS"),
    ("norm_linear/reference*", "core/* norms/reference.h REFERENCE norm_linear/reference*"),
    ("norm_linear/definition.h", "dispatch/* NORM_LINEAR norm_linear/reference.h"),
    (
        "norm_linear/cpu*",
        "core/* dispatch/* simd/* norms/cpu* NORMS ops/matmul/cpu*.h norm_linear/cpu* NORM_LINEAR",
    ),
    (
        "norm_linear/cuda*",
        "core/* dispatch/* simt/simt.h tile/* norms/cuda* NORMS ops/matmul/cuda*.h"
        " ops/matmul/problem.h norm_linear/cuda* NORM_LINEAR",
    ),
    ("norm_linear/*", "core/* dispatch/* NORMS FACE ops/matmul/problem.h NORM_LINEAR"),
    ("optimizers/reference*", "core/* optimizers/views.h"),
    (
        "optimizers/definition.h",
        "core/* dispatch/* simd/float_mode.h optimizers/constants.h OPTIMIZERS",
    ),
    ("optimizers/constants.h", ""),
    ("optimizers/cpu*", "core/* dispatch/* simd/* optimizers/cpu* OPTIMIZERS"),
    ("optimizers/cuda*", "core/* dispatch/* simt/simt.h tile/* optimizers/cuda* OPTIMIZERS"),
    ("optimizers/*", "core/* dispatch/* OPTIMIZERS"),
    ("ops/catalog.*", "core/* dispatch/* FACE ops/catalog.h"),
    ("ops/device_catalog.h", "dispatch/*"),
    (
        "ops/device_catalog.cu",
        "dispatch/* simt/simt.h norms/variants.h norm_linear/variants.h PROBLEMS"
        " ops/device_catalog.h",
    ),
    ("ops/OP/test*", "*"),
    # A norm with its linear layer has its code in norm_linear/.
    ("ops/*norm_linear/fused.h", "FACE ops/*/norm.h"),
    ("ops/*norm_linear/cpu*", "norm_linear/cpu* FORMULA ops/OP/fused.h"),
    ("ops/*norm_linear/cuda*", "norm_linear/cuda* FORMULA ops/OP/fused.h"),
    ("ops/*norm_linear/reference*", "norm_linear/reference* ops/OP/fused.h"),
    ("ops/*norm_linear/*norm_linear.cpp", "FACE norm_linear/definition.h ops/OP/fused.h"),
    # Convolutions are products of windows: they have what products have for their own.
    (
        "ops/convolution/cpu*",
        "core/* dispatch/* simd/* FORMULA PROBLEMS ops/OP/cpu*.h ops/matmul/cpu*.h",
    ),
    (
        "ops/convolution/cuda*",
        "core/* dispatch/* simt/simt.h FORMULA PROBLEMS ops/OP/cuda*.h ops/matmul/cuda*.h",
    ),
    ("ops/convolution/problem.h", "core/* dispatch/* FACE PROBLEMS"),
    ("ops/convolution/definition.h", "dispatch/* SHARED ops/OP/cases.h ops/OP/reference.h"),
    ("ops/conv?d/conv?d.cpp", "core/* dispatch/* FACE ops/convolution/definition.h"),
    # The losses of a linear layer's results are those of the two operators one after the other.
    (
        "ops/linear_cross_entropy/cpu*",
        "core/* simd/* ops/cross_entropy/cpu_totals.h ops/linear_cross_entropy/pieces.h",
    ),
    (
        "ops/linear_cross_entropy/cuda*",
        "core/* simt/simt.h tile/* ops/cross_entropy/cuda_totals.h"
        " ops/linear_cross_entropy/pieces.h",
    ),
    ("ops/linear_cross_entropy/pieces.h", "core/* dispatch/* SHARED"),
    ("ops/linear_cross_entropy/problem.h", "core/* dispatch/* FACE PROBLEMS"),
    (
        "ops/*cross_entropy/*cross_entropy.cpp",
        "core/* dispatch/* FACE SHARED ops/cross_entropy/arguments.h ops/cross_entropy/check.h"
        " ops/OP/cases.h ops/OP/reference.h",
    ),
    ("ops/cross_entropy/arguments.h", "dispatch/description.h"),
    ("ops/cross_entropy/check.h", "core/* SHARED"),
    ("ops/cross_entropy/*_totals.h", "core/* SHARED"),
    ("ops/channel_norm/definition.h", "dispatch/* SHARED ops/OP/cases.h ops/OP/reference.h"),
    (
        "ops/[bg]*_norm/*_norm.cpp",
        "core/* dispatch/* FACE ops/channel_norm/definition.h",
    ),
    (
        "ops/OP/reference*",
        "core/* norms/reference* optimizers/reference* optimizers/views.h FACE REFERENCE"
        " ops/OP/norm.h",
    ),
    ("ops/OP/cases*", "core/* optimizers/cases.h FACE ops/OP/cases*.h"),
    ("ops/attention/formula*", "core/* functions/* norms/philox.h FACE FORMULA"),
    ("ops/dropout/formula*", "core/* norms/philox.h"),
    ("ops/random/formula*", "core/* functions/* norms/philox.h FACE FORMULA"),
    ("ops/OP/formula*", "core/* functions/* norms/statistics.h FACE FORMULA ops/OP/constants.h"),
    (
        "ops/attention/cpu*",
        "core/* dispatch/* simd/* FACE FORMULA SHARED ops/attention/cpu*.h"
        " ops/matmul/cpu_kernels.h ops/matmul/cpu_lanes.h ops/matmul/cpu_panels.h"
        " ops/matmul/cpu_tiles.h",
    ),
    (
        "ops/OP/cpu*",
        "core/* dispatch/* simd/* norms/cpu* optimizers/cpu* FACE FORMULA SHARED ops/OP/cpu*.h",
    ),
    (
        "ops/OP/cuda*",
        "core/* dispatch/* simt/simt.h simt/warpgroup.h simt/current_device.h tile/* norms/cuda*"
        " optimizers/cuda* FACE FORMULA SHARED ops/OP/cuda*.h",
    ),
    ("ops/OP/norm.h", "core/* FACE"),
    ("ops/OP/constants.h", "core/*"),
    (
        "ops/OP/problem.h",
        "core/* dispatch/* NORMS OPTIMIZERS FACE FORMULA SHARED ops/OP/constants.h",
    ),
    ("SHARED", "core/* dispatch/* NORMS FACE SHARED"),
    ("ops/OP/problem.cpp", "core/* dispatch/* FACE SHARED"),
    (
        "ops/OP/OP.cpp",
        "core/* dispatch/* NORMS norms/definition.h OPTIMIZERS optimizers/definition.h FACE SHARED"
        " ops/OP/cases.h ops/OP/reference.h",
    ),
    ("ops/OP/OP.h", "core/* FACE"),
    ("lab/c_abi.cpp", f"{USERS} isobit.h"),
    ("lab/*", f"{USERS} bench/peers/peer.h"),
    ("capi/*", f"{USERS} isobit.h"),
    ("torch/cpu.cpp", "isobit.h simd/pool.h"),  # which it has a copy of
    ("torch/*", "isobit.h"),
    ("isobit.h", "operators.h packed.h"),
    ("isobit.hpp", "isobit.h operators.hpp packed.hpp"),
    ("operators.h", "isobit.h"),
    ("operators.hpp", "isobit.hpp"),
    ("packed.h", "isobit.h"),
    ("packed.hpp", "isobit.hpp"),
)
SYSTEM = (
    r"[a-z_0-9]+|(sys|linux|asm)/\w+\.h|\w*intrin\.h"
    r"|(arm_neon|cpuid|dlfcn|elf|fcntl|pthread|sched|ucontext|unistd)\.h"
)
CUDA = r"cuda\w*\.h(pp)?|(cuda|cooperative_groups)/.*|cooperative_groups\.h"
ANGLED = (  # what <...> may name, beside the standard library and the system
    ("lab/*", ".*"),
    ("isobit.h", r"std(def|int)\.h"),
    ("torch/*", r"torch/.*|ATen/dlpack\.h|Python\.h"),
    ("simt/cuda/*", CUDA),
    ("simt/hip/*", r"hip/.*"),
    ("executor/runtime.cpp", CUDA),
    ("executor/totals.cpp", r"cxxabi\.h"),
    ("ops/*/test*", ".*"),
)


def matches(path, patterns, op):
    def regex(pattern):
        return {
            "FACE": r"ops/(\w+)/\1\.h\Z",
            "FORMULA": r"ops/\w+/formula\w*\.h\Z",
            "PROBLEMS": r"ops/\w+/(fused|norm|problem)\.h\Z",
            "NORM_LINEAR": r"norm_linear/(cases|check|options|problem|unfused|variants)\.h\Z",
            "NORMS": r"norms/(cases|check|options|philox|problem|statistics|variants)\.h\Z",
            "OPTIMIZERS": r"optimizers/(cases|problem|views)\.h\Z",
            "REFERENCE": r"ops/\w+/reference\w*\.h\Z",
            "SHARED": rf"ops/{op}/(norm|problem|backends)\.h\Z",
        }.get(pattern) or fnmatch.translate(pattern.replace("OP", op))

    return any(re.match(regex(pattern), path) for pattern in patterns.split())


def operator(path):
    return path.split("/")[1] if path.startswith("ops/") and path.count("/") > 1 else ""


def complaint(path, bracket, name):
    if bracket == "<":
        allowed = [SYSTEM, *(names for pattern, names in ANGLED if matches(path, pattern, ""))]
        return (
            None if re.fullmatch("|".join(allowed), name) else "no third-party header in this layer"
        )
    if not name.startswith(("isobit/", "bench/peers/")):
        return "write it in full: isobit/..."
    target = name.removeprefix("isobit/")
    row = next((row for row in RULES if matches(path, row[0], operator(path))), None)
    if row is None:
        return "the layers know no such file"
    apart = ("ops/", "norms/", "norm_linear/", "optimizers/")
    own = "" if path.startswith(apart) else f" {path.split('/')[0]}/*"
    if not matches(target, row[1] + own, operator(path)):
        return f"{row[0]} may include only: {row[1] + own}"
    return None


# What only simt may say: all else must mean the same to nvcc and to the emulator.
BACKEND = re.compile(
    r"\basm\b|__CUDA\w*|__HIP\w*|__builtin_amdgcn\w*|\b(thread|block)Idx\b|\b(block|grid)Dim\b|<<<"
    r"|\b__(global|device|host|shared|constant|syncthreads|syncwarp|shfl|ballot|ldg|stcs)\w*"
)


def backend_words(path, text):
    """Where kernels, or what they are made of, name one back end."""
    if not matches(
        path, "functions/* tile/* ops/*.cu ops/*/cuda* norms/* norm_linear/* optimizers/*", ""
    ):
        return []
    lines = (re.sub(r"//.*", "", line) for line in text.splitlines())
    found = ((number, BACKEND.search(line)) for number, line in enumerate(lines, 1))
    return [
        f"src/isobit/{path}:{number}: says {word[0]}; that belongs to simt"
        for number, word in found
        if word
    ]


def circle(edges):
    """One circle among operators, as a list of their names, or None."""

    def walk(trail):
        for following in sorted(edges.get(trail[-1], ())):
            found = (
                [*trail[trail.index(following) :], following]
                if following in trail
                else walk([*trail, following])
            )
            if found:
                return found
        return None

    return next(filter(None, (walk([op]) for op in sorted(edges))), None)


def check(files):
    """The complaints about {path below src/isobit: text}."""
    problems, edges = [], {}
    for path, text in sorted(files.items()):
        problems += backend_words(path, text)
        for number, line in enumerate(text.splitlines(), 1):
            include = re.match(r'\s*#\s*include\s*([<"])([^>"]+)', line)
            if not include:
                continue
            bracket, name = include.groups()
            if why := complaint(path, bracket, name):
                problems.append(f"src/isobit/{path}:{number}: includes {name}: {why}")
            op, other = operator(path), operator(name.removeprefix("isobit/"))
            if op and other and op != other and not Path(path).name.startswith("test"):
                edges.setdefault(op, set()).add(other)
    if ring := circle(edges):
        problems.append(f"src/isobit/ops: the operators include each other: {' -> '.join(ring)}")
    return problems


# path, its include, and whether the rules allow it
PLANTED = (
    ("core/error.h", '"isobit/core/dtype.h"', True),
    ("core/error.h", '"isobit/simd/vector.h"', False),
    ("core/error.h", "<string_view>", True),
    ("core/error.h", "<fmt/format.h>", False),
    ("core/error.h", '"dtype.h"', False),
    ("simd/rows.h", '"isobit/dispatch/plan.h"', False),
    ("simd/avx2.h", "<immintrin.h>", True),
    ("dispatch/choose.cpp", '"isobit/ops/layernorm/layernorm.h"', False),
    ("tile/reduce.h", '"isobit/simt/simt.h"', True),
    ("tile/reduce.h", '"isobit/simt/cuda/device.h"', False),
    ("executor/tensor.cpp", '"isobit/core/tensor_core.h"', True),
    ("executor/tensor.cpp", '"isobit/core/dtype.h"', False),
    ("norms/check.h", '"isobit/norms/problem.h"', True),
    ("norms/check.h", '"isobit/norms/cpu_row.h"', False),
    ("norms/cpu_row.h", '"isobit/simd/vec.h"', True),
    ("norms/reference_rows.h", '"isobit/norms/philox.h"', False),
    ("norm_linear/cpu_rows.h", '"isobit/norms/cpu_workspace.h"', True),
    ("norm_linear/reference_rows.h", '"isobit/norm_linear/problem.h"', False),
    ("norm_linear/check.h", '"isobit/norm_linear/cpu_rows.h"', False),
    ("ops/rmsnorm_linear/cuda.cu", '"isobit/norm_linear/cpu_rows.h"', False),
    ("ops/layernorm/formula.h", '"isobit/norms/statistics.h"', True),
    ("ops/layernorm/formula.h", '"isobit/functions/normal.h"', True),
    ("ops/layernorm/reference.cpp", '"isobit/functions/normal.h"', False),
    ("functions/normal.h", '"isobit/simd/vec.h"', False),
    ("ops/layernorm/reference.cpp", '"isobit/norms/statistics.h"', False),
    ("ops/layernorm/reference.cpp", '"isobit/ops/layernorm/layernorm.h"', True),
    ("ops/layernorm/reference.cpp", '"isobit/ops/layernorm/formula.h"', False),
    ("ops/layernorm/cpu.cpp", '"isobit/ops/layernorm/formula.h"', True),
    ("ops/layernorm/cpu.cpp", '"isobit/ops/rmsnorm/formula.h"', True),
    ("ops/layernorm/cpu.cpp", '"isobit/ops/rmsnorm/cpu.h"', False),
    ("ops/layernorm/cpu.cpp", '"isobit/simt/launch.h"', False),
    ("ops/layernorm/cuda.cu", '"isobit/simd/vector.h"', False),
    ("ops/layernorm/cuda.cu", '"isobit/simt/simt.h"', True),
    ("ops/layernorm/cuda.cu", '"isobit/simt/host/emulator.h"', False),
    ("ops/layernorm/cuda.cu", "<cuda_runtime.h>", False),
    ("simt/cuda/launch.h", "<cuda_runtime.h>", True),
    ("simt/hip/launch.h", "<hip/hip_runtime_api.h>", True),
    ("simt/hip/launch.h", "<cuda_runtime.h>", False),
    ("ops/layernorm/cuda.cu", "<hip/hip_runtime_api.h>", False),
    ("ops/layernorm/norm.h", '"isobit/ops/layernorm/layernorm.h"', True),
    ("ops/layernorm/norm.h", '"isobit/norms/problem.h"', False),
    ("ops/layernorm/reference.cpp", '"isobit/ops/layernorm/norm.h"', True),
    ("ops/layernorm/layernorm.cpp", '"isobit/norms/definition.h"', True),
    ("ops/layernorm/cpu.cpp", '"isobit/norms/definition.h"', False),
    ("ops/device_catalog.cu", '"isobit/ops/rmsnorm/norm.h"', True),
    ("ops/device_catalog.cu", '"isobit/ops/rmsnorm/formula.h"', False),
    ("ops/layernorm/layernorm.cpp", '"isobit/ops/layernorm/cpu.h"', False),
    ("ops/layernorm/layernorm.cpp", '"isobit/ops/layernorm/backends.h"', True),
    ("ops/layernorm/helpers.h", '"isobit/core/dtype.h"', False),
    ("ops/layernorm/test.cpp", "<gtest/gtest.h>", True),
    ("ops/catalog.cpp", '"isobit/ops/layernorm/cpu.h"', False),
    ("lab/main.cpp", "<CLI/CLI.hpp>", True),
    ("lab/main.cpp", '"isobit/ops/layernorm/formula.h"', False),
    ("lab/peers.cpp", '"bench/peers/peer.h"', True),
    ("lab/c_abi.cpp", '"isobit/isobit.h"', True),
    ("lab/main.cpp", '"isobit/isobit.h"', False),
    ("dispatch/choose.cpp", '"bench/peers/peer.h"', False),
    ("capi/isobit.cpp", "<nlohmann/json.hpp>", False),
    ("isobit.hpp", '"isobit/isobit.h"', True),
    ("isobit.hpp", '"isobit/core/error.h"', False),
    ("operators.h", '"isobit/isobit.h"', True),
    ("operators.hpp", '"isobit/ops/layernorm/layernorm.h"', False),
    ("packed.h", '"isobit/isobit.h"', True),
    ("packed.hpp", '"isobit/ops/matmul/matmul.h"', False),
)


def self_test():
    wrong = [
        f"{'allowed' if expected else 'forbidden'} by intent: {path} includes {name}"
        for path, name, expected in PLANTED
        if expected != (not check({path: f"#include {name}\n"}))
    ]
    kernel = {"ops/a/cuda.cu": "x = threadIdx.x;  // blockIdx\n", "simt/cuda/a.h": "asm volatile"}
    if len(check(kernel)) != 1:
        wrong.append("a CUDA built-in in a kernel went unseen, or one in simt was not")
    face = '#include "isobit/ops/{0}/{0}.h"\n'.format
    ring = {"ops/a/a.h": face("b"), "ops/b/b.h": face("c"), "ops/c/c.h": face("a")}
    if not any("a -> b -> c -> a" in problem for problem in check(ring)):
        wrong.append("a circle of three operators went unseen")
    return wrong


def main():
    if "--self-test" in sys.argv:
        problems = self_test()
    else:
        src = ROOT / "src" / "isobit"
        public = ROOT / "include" / "isobit"
        problems = check(
            {
                path.relative_to(root).as_posix(): path.read_text()
                for root in (src, public)
                for path in root.rglob("*")
                if path.suffix in SOURCES
            }
        )
    print(*problems, sep="\n", end="\n" if problems else "")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
