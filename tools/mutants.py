# SPDX-License-Identifier: Apache-2.0
"""Plants the defects of tests/mutants/ and tests/planted/ and asks the tests to find each.

A mutant is a patch; before it, one sentence says what the defect is, and `Unit:` names the source
that is compiled with it, and for which instruction set (without one: the patched source itself).
Everything else comes out of the release build. Those of tests/planted/ are planted into kernels for
GPUs; the emulator's tests look for them, then the same with the detector of races. Without names,
runs the mutants whose files are not those of the log, and two more; where many files changed, the
commit chooses among them.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PATCHES = ROOT / "tests" / "mutants"
PLANTED = ROOT / "tests" / "planted"
LOG = PATCHES / "LOG.md"
BY_COMMIT = 2
MOST_CHANGED = 4  # `make mutants` plants all
SECONDS = 300  # for one test, however many there are; a mutant that hangs is found

# All but the tests of the lab, of the references and of the tests themselves, and but those that
# take long; some of these are asked where all others pass.
QUICK = (
    "-Lab*:Npy*:Families*:Yardstick*:Deviation*:Judge*:*Reference*:LayerNormCases*:*Fuzz*:Plan*"
    ":StoredPlan*:Fastest*:*EveryWayIsRight*:*ThreadCount*:*RowAlone*:*ThousandRuns*"
    ":*MayComeAndGo*:*SumsOverRows*:*Properties*:*ASmallSpread*:*ThresholdsOf*"
    ":*IgnoresOtherRows*:*Faults*:*FloatModes*:*Optional*"
)
THOROUGH = (
    "*Optional*:*FloatModes*:*IgnoresOtherRows*:*Faults*:*Reliability*:*EveryWayIsRight*"
    ":*ThreadCount*:*RowAlone*-*ThousandRuns*"
)

# Sources that are executed where a processor has AMX, and nowhere else.
OF_AMX = ("/cpu_amx.cpp", "/cpu_kernels_tiles.cpp")
KERNELS = "*Kernels*"  # of the two programs that execute kernels


class Broken(Exception):
    """What is wrong with a mutant itself: it does not apply, compile or go with the build."""


def run(command, **kwargs):
    return subprocess.run(command, capture_output=True, text=True, errors="replace", **kwargs)


class Mutant:
    def __init__(self, path):
        self.name = path.stem
        self.path = path
        head, _, self.diff = path.read_text().partition("\n--- ")
        lines = head.splitlines()[1:]
        self.units = [line.split()[1:] for line in lines if line.startswith("Unit: ")]
        self.defect = " ".join(line for line in lines if not line.startswith("Unit: "))
        self.files = re.findall(r"^\+\+\+ b/(\S+)", self.diff, re.MULTILINE)
        self.units = self.units or [[file] for file in self.files]
        self.planted = path.parent == PLANTED

    def state(self):
        """A hash that changes with the patch and with what it patches."""
        contents = [self.path.read_bytes()]
        contents += [(ROOT / file).read_bytes() for file in self.files if (ROOT / file).exists()]
        return hashlib.sha256(b"\0".join(contents)).hexdigest()[:12]

    def overlay(self, folder, patched=True):
        """A source tree of the patched files alone, or of these files as they are."""
        shutil.rmtree(folder, ignore_errors=True)
        for file in self.files:
            if not (ROOT / file).exists():
                raise Broken(f"{file} does not exist")
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, folder / file)
        if not patched:
            return
        alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
        applied = run(["git", "apply", "-p1", str(self.path)], cwd=folder, env=alone)
        if applied.returncode != 0:
            raise Broken(f"no longer applies: {applied.stderr.strip()}")


class Build:
    """The commands of a release build."""

    def __init__(self, folder):
        self.folder = folder
        self.commands = {}
        for entry in json.loads((folder / "compile_commands.json").read_text()):
            command = shlex.split(entry["command"])
            tag = [word[13:] for word in command if word.startswith("-DISOBIT_ISA=")]
            source = os.path.relpath(entry["file"], ROOT)
            if source.endswith(".cu"):
                tag = ["races" if "-fsanitize=thread" in command else "plain"]
            self.commands[(source, *tag)] = command
        self.ccache = ["ccache"] if shutil.which("ccache") else []

    @functools.cache  # noqa: B019
    def link_of(self, program):
        linked = run(["ninja", "-C", str(self.folder), "-t", "commands", program])
        if linked.returncode != 0:
            raise Broken(f"this build has no {program}")
        link = shlex.split(linked.stdout.splitlines()[-1].split(" && ")[1])
        for golden in [word for word in link if word.endswith("golden_test.cpp.o")]:
            link.remove(golden)  # what is linked first runs first, and this one finds the most
            link.insert(self.first_object(link), golden)
        return link

    @staticmethod
    def first_object(link):
        return next(i for i, word in enumerate(link) if word.endswith(".o"))

    def compile(self, unit, overlay):
        """Returns the object that the release build has, and that with the patched files."""
        if tuple(unit) not in self.commands:
            raise Broken(f"no source of this build: {' '.join(unit)}")
        command = [word for word in self.commands[tuple(unit)] if word != "-g1"]
        command = ["-O1" if word == "-O3" else word for word in command]
        source, output = command.index("-c") + 1, command.index("-o") + 1
        original = command[output]
        mutated = str(overlay / ("_".join(unit).replace("/", "_") + ".o"))
        command[output] = mutated
        if (overlay / unit[0]).exists():
            command[source] = str(overlay / unit[0])
        command[1:1] = [f"-I{overlay / 'src'}"]
        compiled = run([*self.ccache, *command], cwd=self.folder)
        if compiled.returncode != 0:
            raise Broken(f"does not compile: {compiled.stderr.strip()}")
        return original, mutated

    def unchanged_by(self, mutant, folder):
        """Whether its units compile to the same objects without the patch, at the same paths."""
        units = [[*unit, "plain"] for unit in mutant.units] if mutant.planted else mutant.units

        def objects():
            return [Path(self.compile(unit, folder)[1]).read_bytes() for unit in units]

        mutant.overlay(folder)
        with_patch = objects()
        mutant.overlay(folder, patched=False)
        return with_patch == objects()

    def program(self, units, overlay, tests="isobit_tests"):
        """The tests, linked with the units; what they define is not taken from the library."""
        link = self.link_of(tests) + ([] if "race" in tests else ["-s"])  # races are told by line
        for unit in units:
            original, mutated = self.compile(unit, overlay)
            if original in link:
                link[link.index(original)] = mutated
            else:
                link.insert(self.first_object(link), mutated)
        program = overlay / "tests"
        link[link.index("-o") + 1] = str(program)
        linked = run(link, cwd=self.folder)
        if linked.returncode != 0:
            raise Broken(f"does not link: {linked.stderr.strip()}")
        return program


def told_by(process):
    """What its tests print, each as it begins and ends, until all have ended or one hangs."""
    told, part = b"", b"-"
    while part and select.select([process.stdout], [], [], SECONDS)[0]:
        part = os.read(process.stdout.fileno(), 1 << 16)
        told += part
    if part:
        process.kill()
    process.wait()
    return told.decode(errors="replace"), "hung" if part else "failed"


def first_failure(program, tests):
    """The test that failed, crashed or hung first, and how; None where all pass."""
    command = [str(program), f"--gtest_filter={tests}", "--gtest_fail_fast"]
    with subprocess.Popen(
        command,
        env=os.environ | {"ISOBIT_ONE_IN": "3"},  # as `make test` has it
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        output, how = told_by(process)
    if how == "failed" and process.returncode == 0:
        return None
    if how == "failed" and process.returncode < 0:
        how = "crashed"
    begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.MULTILINE)
    failed = re.findall(r"^\[  FAILED  \] ([^\s,]+)", output, re.MULTILINE)
    named = failed if how == "failed" else begun[-1:]
    return (named or ["the program"])[0], how


def processor_flags():
    return Path("/proc/cpuinfo").read_text().split()


def missing_isa(mutant, build):
    """The instruction set of a mutant that this build or processor lacks."""
    flags = processor_flags()
    needed = {"avx2": "avx2", "avx512": "avx512dq"}
    built = {isa for _, *isa_of in build.commands for isa in isa_of}
    isas = [isa for _, *isa_of in mutant.units for isa in isa_of]
    lacks = [isa for isa in isas if isa not in built or needed.get(isa, flags[0]) not in flags]
    if any(unit[0].endswith(OF_AMX) for unit in mutant.units) and "amx_bf16" not in flags:
        lacks.append("amx")
    return lacks[0] if lacks else None


def look_for(mutant, build, folder):
    """The program that was asked last, its file, and the failure that it found, if any."""
    if not mutant.planted:
        program = build.program(mutant.units, folder)
        failure = first_failure(program, QUICK) or first_failure(program, THOROUGH)
        return "isobit_tests", program, failure
    for tests, tag in (("isobit_simt_tests", "plain"), ("isobit_race_tests", "races")):
        program = build.program([[*unit, tag] for unit in mutant.units], folder, tests)
        failure = first_failure(program, KERNELS)
        if failure is not None:
            return tests, program, failure
    return tests, program, None


def verdict(mutant, build):
    """(verdict, by which test, seconds); the verdict is caught, SURVIVED, BROKEN or left out."""
    started = time.time()
    folder = build.folder.parent / "mutants" / mutant.name

    def result(word, reason):
        return word, reason, time.time() - started

    if isa := missing_isa(mutant, build):
        return result("left out", f"no {isa} here")
    try:
        mutant.overlay(folder)
        tests, program, failure = look_for(mutant, build, folder)
        if failure is None:
            if build.unchanged_by(mutant, folder):
                compiled = " and ".join(unit[0] for unit in mutant.units)
                raise Broken(f"the patch changes nothing that {compiled} compiles")
            return result("SURVIVED", mutant.defect)
        test, how = failure
        if how == "hung" and first_failure(program, test) is None:
            return result("SURVIVED", f"a test took more than {SECONDS} s: {mutant.defect}")
        if first_failure(build.folder / tests, test) is not None:
            raise Broken(f"{test} fails without the mutant too")
        return result("caught", test if how == "failed" else f"{test} ({how})")
    except Broken as broken:
        return result("BROKEN", str(broken))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def commit():
    return run(["git", "rev-parse", "HEAD"], cwd=ROOT, check=True).stdout.strip()


def chosen(mutants):
    """Those that the log does not know as they are now, and some that change with the commit."""
    log = LOG.read_text() if LOG.exists() else ""
    head = commit()
    drawn = sorted(
        mutants, key=lambda mutant: hashlib.sha256((head + mutant.name).encode()).digest()
    )
    changed = [mutant for mutant in drawn if f"| {mutant.state()} |" not in log]
    rest = [mutant for mutant in drawn if mutant not in changed]
    if len(changed) > MOST_CHANGED:
        print(f"{MOST_CHANGED} of {len(changed)} mutants whose files changed")
    return changed[:MOST_CHANGED] + rest[:BY_COMMIT]


def write_log(results, seconds, names):
    """All mutants, each with what its last run said: this one, or the one that the log tells of."""
    rows = {}
    if LOG.exists():
        told = re.findall(r"^(\| (\w+) \|.*)$", LOG.read_text(), re.MULTILINE)
        rows = {name: row for row, name in told if name in names}
    for mutant, (word, reason, spent) in results.items():
        rows[mutant.name] = (
            f"| {mutant.name} | {mutant.defect} | {word} | {reason} | {spent:.0f} "
            f"| {mutant.state()} |"
        )
    words = [row.split(" | ")[2] for row in rows.values()]
    counts = ", ".join(f"{words.count(word)} {word}" for word in sorted(set(words)))
    LOG.write_text(
        "<!-- SPDX-License-Identifier: Apache-2.0 -->\n# Every mutant, planted and looked for\n\n"
        f"{len(rows)} mutants, {counts}. The last run, at {commit()[:12]}, planted {len(results)} "
        f"in {seconds:.0f} s.\nThe last column changes with a mutant or what it patches; `make "
        "test-full` runs those it does not find here.\n\n"
        "| mutant | the defect | | by | s | state |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows[name] for name in sorted(rows))
        + "\n"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="mutants; default: the changed ones and two more")
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--log", action="store_true", help="write the results to the log")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_args()

    started = time.time()
    paths = sorted(PATCHES.glob("*.patch")) + sorted(PLANTED.glob("*.patch"))
    mutants = [Mutant(path) for path in paths]
    every = {mutant.name for mutant in mutants}
    if unknown := set(args.names) - every:
        parser.error(f"no such mutant: {', '.join(sorted(unknown))}")
    if args.names:
        mutants = [mutant for mutant in mutants if mutant.name in args.names]
    elif not args.all:
        mutants = chosen(mutants)

    build = Build(args.build.resolve())
    results = {}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        pending = {pool.submit(verdict, mutant, build): mutant for mutant in mutants}
        for future in concurrent.futures.as_completed(pending):
            mutant = pending[future]
            word, reason, seconds = results[mutant] = future.result()
            print(f"{word:9} {mutant.name:40} {seconds:4.0f} s  {reason}", flush=True)

    good = sum(word in ("caught", "left out") for word, _, _ in results.values())
    print(f"{good} of {len(results)} mutants caught, in {time.time() - started:.0f} s")
    if args.log:
        write_log(results, time.time() - started, every)
    return 0 if good == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
