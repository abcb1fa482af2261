# SPDX-License-Identifier: Apache-2.0
"""Machine code as text, for the executor: what cuobjdump prints of an object, without what it does
not need, and with the numbers that the text rounds as the instruction holds them.

A function is
    .function NAME
    .threads 256            the most that a block may have
    .parameters 312         bytes
    .bank 2 901f0000...     another bank of constants, in hexadecimal
and its instructions, one a line and each 16 bytes behind the one before it. 0f and eight digits are
the bits of a number; of a double, the upper half.
"""

import os
import re
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARAMETERS = 0x210  # where they begin in bank 0
BYTES = 16  # of an instruction
INSTRUCTION = re.compile(
    r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;\s+/\* 0x([0-9a-f]{8})[0-9a-f]{8} \*/\s*$"
)
NUMBER = r"[-+]?(?:QNAN|INF|\d+(?:\.\d+)?(?:e[-+]?\d+)?)"
REAL = re.compile(rf"(?<=, ){NUMBER}(?=\s*(?:,|$))")
HALVES = re.compile(rf"(?<=, ){NUMBER}\s*, {NUMBER}\s*$")
MAX_THREADS = 0x05  # an attribute in .nv.info


def find_tool():
    """cuobjdump, beside which nvdisasm lies; None where there is none."""
    tools = ROOT.glob(".venv/lib/python3*/site-packages/nvidia/cu13/bin/cuobjdump")
    tool = shutil.which("cuobjdump") or next((str(each) for each in tools), None)
    return tool if tool and Path(tool).exists() else None


def run(tool, *words, folder=None):
    env = {**os.environ, "PATH": f"{Path(tool).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        [tool, *map(str, words)], capture_output=True, text=True, env=env, cwd=folder
    ).stdout


def disassembly(tool, file):
    return run(tool, "-sass", file)


def sections(elf):
    """The sections of an ELF file of 64 bits, by name."""
    at, size, count, names = struct.unpack_from("<Q10xHHH", elf, 0x28)
    headers = [struct.unpack_from("<IIQQQQ", elf, at + i * size) for i in range(count)]
    table = headers[names][4]

    def name(header):
        begin = table + header[0]
        return elf[begin : elf.index(b"\0", begin)].decode()

    return {name(header): elf[header[4] : header[4] + header[5]] for header in headers[1:]}


def most_threads(information):
    at = 0
    while at < len(information):
        kind, attribute, value = struct.unpack_from("<BBH", information, at)
        if attribute == MAX_THREADS:
            x, y, z = struct.unpack_from("<3I", information, at + 4)
            return x * y * z
        at += 4 + (value if kind == 4 else 0)
    return 1024


def plain(text, immediate):
    """An instruction without hints, and with the bits of the number that it holds."""
    text = text.replace(".reuse", "")
    if re.match(r"(@!?U?P\w+ )?HFMA2", text):
        return HALVES.sub(f"0f{immediate}", text)
    return REAL.sub(f"0f{immediate}", text)


def functions(disassembled, elf):
    """The text of each function."""
    parts = sections(elf)
    for function in re.split(r"^\s*Function : ", disassembled, flags=re.MULTILINE)[1:]:
        name, rest = function.split("\n", 1)
        found = [match for line in rest.splitlines() if (match := INSTRUCTION.match(line))]
        if [int(match[1], 16) for match in found] != list(range(0, BYTES * len(found), BYTES)):
            raise ValueError(f"{name}: its instructions are not one behind the other")
        lines = [f".function {name}"]
        lines.append(f".threads {most_threads(parts.get(f'.nv.info.{name}', b''))}")
        bank = parts.get(f".nv.constant0.{name}", bytes(PARAMETERS))
        lines.append(f".parameters {len(bank) - PARAMETERS}")
        for number in range(1, 18):
            if values := parts.get(f".nv.constant{number}.{name}"):
                lines.append(f".bank {number} {values.hex()}")
        lines += [plain(match[2], match[3]) for match in found]
        yield "\n".join(lines) + "\n"


def text_of(tool, objects):
    """The machine code of an object that nvcc made for one architecture; empty without kernels."""
    with tempfile.TemporaryDirectory() as folder:
        run(tool, "-xelf", "all", objects, folder=folder)
        found = sorted(Path(folder).glob("*.cubin"))
        return "".join(
            text for each in found for text in functions(disassembly(tool, each), each.read_bytes())
        )
