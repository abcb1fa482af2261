# SPDX-License-Identifier: Apache-2.0
"""Runs the phases that need a GPU: test, sanitize, bench.

A machine with a GPU may have no network and no compiler: --pack puts all that travels beside the
tree into build/gpu.tar.xz, which a phase unpacks into build/gpu. There each phase ends in less than
eight minutes; each of its steps has a limit of its own, and its result is written before the next
one begins. --dry packs, and goes through all phases with the emulator in the place of a GPU, in a
copy of what travels. It shows that the commands are right, and takes few calls: what kernels
compute is known from other tests.
"""

import argparse
import importlib.util
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RELEASE = ROOT / "build" / "release"
PACK = ROOT / "build" / "gpu"
ARCHIVE = ROOT / "build" / "gpu.tar.xz"
SONAME = "libisobit.so." + ".".join((ROOT / "VERSION").read_text().split(".")[:2])
OPERATORS = (
    "activation,adam,attention,batch_norm,conv1d,conv2d,cross_entropy,dropout,elementwise,"
    "embedding,group_norm,interpolate,layernorm,layernorm_linear,linear_cross_entropy,lion,matmul,"
    "pointwise_loss,pool2d,random,reduce,rmsnorm,rmsnorm_linear,rope,rope_tables,scan,sgd,softmax,"
    "transpose,vector_norm"
)
IN_TRITON = (
    "activation,adam,batch_norm,cross_entropy,elementwise,embedding,group_norm,layernorm,lion,"
    "matmul,pool2d,rmsnorm,rope,scan,sgd,softmax,transpose,vector_norm"
)
LONG_IN_TRITON = (  # when interpreted
    "attention,conv1d,conv2d,layernorm_linear,linear_cross_entropy,rmsnorm_linear"
)
DRY_CASES = ("--rows", "3", "--cols", "70", "--dtype", "f32", "--input", "randn")
DRY_PARITY = "elementwise,rmsnorm"  # of which all plans are tried
TRITON_CASES = (  # each width and dtype is compiled
    *("--rows", "1,37", "--cols", "1,600,4096", "--dtype", "f32,bf16"),
    *("--input", "randn,mean1e6,huge1e20,const_grad"),
)
PHASE_SECONDS = 460
TRAVELS = 64 << 20  # bytes, with the tree
RETURNS = {"files": 8, "bytes": 16 << 20}
SANITIZERS = ["memcheck", "racecheck", "synccheck", "initcheck"]


def run(command, **kwargs):
    return subprocess.run(command, check=True, text=True, **kwargs)


def pack(quickly=False):
    """Programs without debug information, and the libraries that another machine may lack. What is
    packed quickly is larger."""
    run(["cmake", "--build", "--preset", "release", "--target", "isobit_gpu_tests"], cwd=ROOT)
    shutil.rmtree(PACK, ignore_errors=True)
    PACK.mkdir(parents=True)
    programs = ["isobit", "isobit_gpu_tests"]
    libraries = [SONAME, "libisobit_cuda.so"]
    found = [RELEASE / name for name in (*programs, *libraries)]
    for pattern in ("isobit_torch_*.so", "_isobit_fast*.so"):  # where they could be built
        found += sorted(RELEASE.glob(pattern))
    linked = run(["ldd", *(RELEASE / name for name in programs)], stdout=subprocess.PIPE).stdout
    found += sorted({Path(file) for file in re.findall(r"=> (\S*lib(?:fmt|stdc\+\+)\S*)", linked)})
    for file in found:
        if not file.exists() and file.name == "libisobit_cuda.so":
            print("omitted: libisobit_cuda.so; run tools/kernels.py to build it")
            continue
        run(["strip", "-o", PACK / file.name, file.resolve()])
    (PACK / "libisobit.so").symlink_to(SONAME)
    commit = run(["git", "rev-parse", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE).stdout.strip()
    changed = run(["git", "status", "--porcelain"], cwd=ROOT, stdout=subprocess.PIPE).stdout
    (PACK / "commit").write_text(commit + ("+" if changed else ""))
    # Programs and libraries hold much that is the same, farther apart than a preset looks back.
    closely = {"preset": 5, "dict_size": 128 << 20}
    filters = [{"id": lzma.FILTER_LZMA2, **({"preset": 0} if quickly else closely)}]
    with (
        lzma.open(ARCHIVE, "wb", filters=filters) as file,
        tarfile.open(None, "w", file) as archive,
    ):
        archive.add(PACK, ".")


def tree():
    """What travels beside the archive: tracked files, and others that git does not ignore."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    listed = run(command, cwd=ROOT, stdout=subprocess.PIPE).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def unpack():
    """What travelled, unless an earlier phase has unpacked it."""
    if not ARCHIVE.exists():
        return
    state = ARCHIVE.stat()
    from_archive = f"{state.st_size} bytes of {state.st_mtime_ns}"
    known = PACK / "unpacked"
    if not known.exists() or known.read_text() != from_archive:
        shutil.unpack_archive(ARCHIVE, PACK)
        known.write_text(from_archive)


class Phase:
    """Runs steps, and writes what each said as soon as it ends."""

    def __init__(self, name, out, dry):
        self.name, self.out, self.dry = name, out, dry
        self.started = time.monotonic()
        self.steps = []
        self.device = "emu" if dry else "cuda"
        # Without a GPU the limits guard against steps that hang: a loaded machine may be slow.
        self.patience = 3 if dry else 1
        self.env = {
            **os.environ,
            "LD_LIBRARY_PATH": f"{PACK}:{os.environ.get('LD_LIBRARY_PATH', '')}",
            "ISOBIT_CUDA_LIBRARY": str(PACK / "libisobit_cuda.so"),
            "ISOBIT_LIBRARIES": str(PACK),
            "ISOBIT_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT / "python"),
            "PYTHONUNBUFFERED": "1",
        }
        out.mkdir(parents=True, exist_ok=True)

    def step(self, name, command, seconds, missing=None):
        """`missing` says why it cannot run here."""
        left = self.patience * PHASE_SECONDS - (time.monotonic() - self.started)
        result = {"step": name, "command": " ".join(map(str, command)), "seconds": 0}
        if missing:
            result |= {"status": None, "said": missing}
        elif left < 5:
            result |= {"status": None, "said": "no time was left"}
        else:
            begin = time.monotonic()
            with (self.out / f"{self.name}.log").open("a") as log:
                print(f"\n== {name}: {result['command']}", file=log, flush=True)
                where = log.tell()
                try:
                    status = subprocess.run(
                        list(map(str, command)),
                        cwd=ROOT,
                        env=self.env,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        timeout=min(self.patience * seconds, left),
                    ).returncode
                except subprocess.TimeoutExpired:
                    status = "timed out"
                except OSError as error:
                    status = str(error)
            said = (self.out / f"{self.name}.log").read_text(errors="replace")[where:]
            result |= {"status": status, "said": "\n".join(said.splitlines()[-3:])}
            result["seconds"] = round(time.monotonic() - begin, 1)
        self.steps.append(result)
        (self.out / f"{self.name}.json").write_text(json.dumps(self.result(), indent=1))
        print(f"{name:24} {result['status']!s:>6}  {result['seconds']:6} s  {result['said']}")

    def result(self):
        commit = PACK / "commit"
        return {
            "phase": self.name,
            "device": self.device,
            "commit": commit.read_text() if commit.exists() else "unknown",
            "steps": self.steps,
        }

    def failed(self):
        return [step["step"] for step in self.steps if step["status"] not in (0, None)]


def test(phase):
    lab, small = PACK / "isobit", DRY_CASES if phase.dry else ()
    tests = PACK / ("isobit_simt_tests" if phase.dry else "isobit_gpu_tests")
    chosen = "*Kernels.RowsMay*/rmsnorm*:*Kernels.GradX*/rmsnorm*" if phase.dry else "*"
    phase.step("doctor", [lab, "doctor"], 60)
    phase.step("kernels", [tests, f"--gtest_filter={chosen}"], 240)
    where = ["--device", phase.device, "--variant", "all"]
    phase.step("verify", [lab, "verify", OPERATORS, *where, "--grid", "quick", *small], 150)
    torch_device = "cpu" if phase.dry else "cuda"
    script = [sys.executable, "tests/gpu/torch_on_gpu.py", "--device", torch_device]
    phase.step("pytorch", script, 150)
    devices = ["--device", f"cpu,{phase.device}"]
    compared = DRY_PARITY if phase.dry else OPERATORS
    phase.step("parity", [lab, "parity", compared, *devices, "--threads", "1", *small], 120)
    # The processor has another such arithmetic; the emulator has a model of this one (sm_90's).
    both = "emu" if phase.dry else f"emu,{phase.device}"
    command = [lab, "parity", "matmul", "--arithmetic", "tensor", "--dtype", "f16,bf16"]
    command += ["--k", "200", "--device", both]
    phase.step("parity of tensor cores", command, 60)
    wide = ["--pass", "fwd", "--variant", "mma,wgmma", "--m", "72", "--n", "136"]  # in pieces
    phase.step("parity of warpgroups", [*command, *wide], 60)
    of_attention = [lab, "parity", "attention", "--pass", "fwd", *command[3:7], "--device", both]
    phase.step("parity of attention by tensor cores", of_attention, 60)
    wide = ["--variant", "flash_mma,flash_wgmma", "--head-dim", "40", "--value-dim", "24"]
    phase.step("parity of attention by warpgroups", [*of_attention, *wide], 60)
    if phase.dry:  # the interpreter takes a thousandth of a second for a k
        small = (*small, "--m", "3", "--n", "5", "--k", "70", "--pass", "fwd")
    lacking = None if importlib.util.find_spec("triton") else "Python has no Triton"
    command = [lab, "verify", IN_TRITON, "--device", "triton", *(small or TRITON_CASES)]
    phase.step("verify Triton", command, 150, lacking)
    compared = DRY_PARITY if phase.dry else IN_TRITON
    command = [lab, "parity", compared, "--device", "cpu,triton", "--threads", "1"]
    phase.step("parity of Triton", [*command, *small], 120, lacking)
    slow = "Triton's interpreter takes too long" if phase.dry else lacking
    command = [lab, "verify", LONG_IN_TRITON, "--device", "triton"]
    phase.step("verify Triton, others", command, 120, slow)
    lacking = "Triton's interpreter is not timed" if phase.dry else lacking
    command = [lab, "bench", IN_TRITON, "--device", "triton", "--quick"]
    phase.step("bench of Triton", [*command, "--rows", "64", "--cols", "768"], 60, lacking)


def sanitize(phase):
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    missing = (
        None if Path(tool).exists() and not phase.dry else "compute-sanitizer is not installed"
    )
    tests = PACK / "isobit_gpu_tests"
    chosen = "*Kernels.AreRight*:*Kernels.SumsOver*:*Kernels.WideRows*:*Kernels.GradX*"
    for name in SANITIZERS:
        command = [tool, "--tool", name, "--error-exitcode", "9", tests]
        phase.step(name, [*command, f"--gtest_filter={chosen}"], 110, missing)


def bench(phase):
    size = ["--dry"] if phase.dry else []
    results = phase.out / "bench.jsonl"
    command = [sys.executable, "bench/gpu.py", "--library", PACK / "libisobit.so", "--out", results]
    phase.step("peers", [*command, *size, "--seconds", "300"], 340)
    lacking = "the emulator is not timed" if phase.dry else None
    command = [PACK / "isobit", "bench", "layernorm", "--device", "cuda", "--pass", "fwd,bwd"]
    shapes = ["--rows", "16384", "--cols", "768,1024,4096,8192", "--dtype", "bf16"]
    out = ["--out", phase.out / "variants"]
    phase.step("variants", [*command, "--variant", "all", *shapes, *out], 110, lacking)


PHASES = {"test": test, "sanitize": sanitize, "bench": bench}


def run_phase(name, out, dry):
    unpack()
    phase = Phase(name, out, dry)
    PHASES[name](phase)
    print(f"{name}: {', '.join(phase.failed()) or 'nothing'} failed")
    return 1 if phase.failed() else 0


def dry_run():
    """What a machine with a GPU would get, and the same script in it."""
    pack(quickly=True)
    files = tree()

    def travelling():
        return sum((ROOT / name).stat().st_size for name in files) + ARCHIVE.stat().st_size

    if travelling() > TRAVELS:
        pack()  # as it will be; which takes minutes
    size = travelling()
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "tree"
        for name in files:
            (there / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, there / name, follow_symlinks=False)
        (there / PACK.relative_to(ROOT)).mkdir(parents=True)
        shutil.copy2(ARCHIVE, there / ARCHIVE.relative_to(ROOT))
        print(f"{len(files)} files and {ARCHIVE.name} to copy: {size / (1 << 20):.1f} MiB")
        emulated = there / PACK.relative_to(ROOT) / "isobit_simt_tests"
        shutil.copy2(RELEASE / emulated.name, emulated)  # what stands in for the GPU's tests
        out, wrong = Path(folder) / "out", []
        for name in PHASES:
            command = [sys.executable, there / "tools" / "gpu.py", name, "--out", out / name]
            if subprocess.run([*command, "--emulated"], cwd=there).returncode != 0:
                wrong.append(name)
            back = [file for file in (out / name).iterdir() if file.is_file()]
            if len(back) > RETURNS["files"] or any(
                file.stat().st_size > RETURNS["bytes"] for file in back
            ):
                wrong.append(f"{name} leaves more than comes back")
    if size > TRAVELS:
        wrong.append("too much travels")
    print("gpu-dry:", ", ".join(wrong) or "all phases ran")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("phase", nargs="?", choices=PHASES)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "gpu-results")
    parser.add_argument("--emulated", action="store_true", help="use the emulator, with few calls")
    parser.add_argument(
        "--pack", action="store_true", help="write build/gpu.tar.xz, which is copied to the machine"
    )
    parser.add_argument("--dry", action="store_true", help="pack, and run all phases here")
    args = parser.parse_args()
    if args.dry:
        return dry_run()
    if args.pack:
        pack()
    if args.phase is None:
        if not args.pack:
            parser.error(f"no PHASE is given; one of {', '.join(PHASES)}")
        return 0
    return run_phase(args.phase, args.out, args.emulated)


if __name__ == "__main__":
    sys.exit(main())
