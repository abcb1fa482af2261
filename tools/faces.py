# SPDX-License-Identifier: Apache-2.0
"""Writes what follows from the operators' descriptions: C's structs and functions, C++'s, and the
fuzzer's table. `tools/faces.py` rewrites them, `--check` says whether they are fresh.

The descriptions are those of the built library (isobit_operators() of isobit.h), so a new operator
is described once, in its own folder.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIBRARY = ROOT / "build" / "release" / "libisobit.so"
CLANG_FORMAT = ROOT / ".venv" / "bin" / "clang-format"

_GENERATED = "Made by tools/faces.py from the operators' descriptions; changes belong there."
# Names in C++ whose words the operator's name does not divide.
_CPP_NAMES = {
    "layernorm": "LayerNorm",
    "layernorm_linear": "LayerNormLinear",
    "rmsnorm": "RmsNorm",
    "rmsnorm_linear": "RmsNormLinear",
}
_PASSES = {"fwd": "forward", "bwd": "backward"}
# Operators whose forward pass is what their name says; the other has its own.
_FORWARD_FIRST = ("conv1d", "conv2d", "matmul")
_C_TYPES = {
    "real": "double",
    "integer": "int64_t",
    "whole": "uint64_t",
    "choice": "int32_t",
    "yes_no": "int32_t",
}
_CPP_TYPES = {**_C_TYPES, "integer": "std::int64_t", "whole": "std::uint64_t", "yes_no": "bool"}


def operators(library=LIBRARY):
    describe = ctypes.CDLL(str(library)).isobit_operators
    describe.restype = ctypes.c_char_p
    return json.loads(describe())


class Entry:
    """One function of C: a pass of an operator, or one kind of it."""

    def __init__(self, operator, kind, passes):
        self.op, self.kind = operator["op"], kind
        self.summary = operator["summary"]
        self.pass_name = _PASSES[operator["pass"]]
        self.only_pass = passes == 1
        keeps = self.op in _FORWARD_FIRST and operator["pass"] == "fwd"
        suffix = kind or ("" if self.only_pass or keeps else self.pass_name)
        self.suffix = suffix
        self.name = "_".join(filter(None, (self.op, suffix)))
        self.title = self.op + (" backward" if operator["pass"] == "bwd" else "")
        self.pass_code = operator["pass"]
        self.arguments = [
            each for each in operator["arguments"] if not kind or kind in each["kinds"]
        ]
        self.added = [each for each in self.arguments if each["added"]]
        options = [each for each in operator["options"] if each["name"] != "kind" or not kind]
        # What takes 8 bytes stands first, so that no gap arises.
        options.sort(key=lambda each: _C_TYPES[each["type"]] == "int32_t")
        self.options = sorted(options, key=lambda each: each["added"])

    @property
    def inputs(self):
        return [each["name"] for each in self.arguments if each["role"] == "input"]

    @property
    def outputs(self):
        return [each["name"] for each in self.arguments if each["role"] == "output"]

    @property
    def args(self):
        return f"{self.op}::" + ("" if self.only_pass else self.pass_name.capitalize()) + "Args"

    @property
    def cpp_type(self):
        op = _CPP_NAMES.get(self.op, "".join(map(str.capitalize, self.op.split("_"))))
        return op + self.suffix.capitalize()


def entries(described):
    passes = {}
    for operator in described:
        passes[operator["op"]] = passes.get(operator["op"], 0) + 1
    for operator in described:
        kinds = [each["choices"] for each in operator["options"] if each["name"] == "kind"]
        for kind in kinds[0] if kinds else [""]:
            yield Entry(operator, kind, passes[operator["op"]])


def comment(text):
    return "/* " + "\n * ".join(textwrap.wrap(text, 94)) + " */"


def member(argument):
    notes = [argument["meaning"]]
    notes += ["optional"] * (argument["presence"] != "required")
    notes = ["output"] * (argument["role"] == "output") + notes
    return f"const isobit_tensor* {argument['name']}; /* {', '.join(notes)} */"


def number(option):
    meaning = option["meaning"]
    if option["zero_is_default"]:
        meaning += f"; 0 is {option['default']}"
    if option["type"] == "yes_no":
        meaning = f"not 0: {meaning}"
    return f"{_C_TYPES[option['type']]} {option['name']}; /* {meaning} */"


def c_header(all_entries):
    lines = [
        "/* SPDX-License-Identifier: Apache-2.0",
        " * Every operator as a struct and a function. isobit.h, which includes this file, has the",
        f" * rules that hold for all. {_GENERATED} */",
        "#ifndef ISOBIT_H",
        '#include "isobit/isobit.h"',
        "#endif",
        "",
        "#ifndef ISOBIT_OPERATORS_H",
        "#define ISOBIT_OPERATORS_H",
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
    ]
    for entry in all_entries:
        struct = f"isobit_{entry.name}_args"
        lines += ["", comment(entry.summary), f"typedef struct {struct} {{", "size_t struct_size;"]
        lines += [member(each) for each in entry.arguments if not each["added"]]
        lines += [number(each) for each in entry.options if not each["added"]]
        lines += [member(each) for each in entry.added]
        lines += [number(each) for each in entry.options if each["added"]]
        lines += [
            f"}} {struct};",
            "",
            f"ISOBIT_API isobit_status isobit_{entry.name}("
            f"const {struct}* args, const isobit_context* context);",
        ]
    lines += ["", "#ifdef __cplusplus", "}", "#endif", "", "#endif"]
    return "\n".join(lines) + "\n"


def c_reader(all_entries):
    headers = sorted({entry.op for entry in all_entries})
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// What the structs of isobit/operators.h say, as the operators' own arguments.",
        f"// {_GENERATED}",
        "#pragma once",
        "",
        "#include <cstddef>",
        "",
        '#include "isobit/capi/call.h"',
        *(f'#include "isobit/ops/{op}/{op}.h"' for op in headers),
        "",
        "namespace isobit::capi {",
    ]
    for entry in all_entries:
        struct = f"isobit_{entry.name}_args"
        added = entry.added + [each for each in entry.options if each["added"]]
        if added:
            before = f"offsetof({struct}, {added[0]['name']})"
            lines += ["", "template <>"]
            lines.append(f"inline constexpr std::size_t kFirstSize<{struct}> = {before};")
        lines += [
            "",
            f"inline {entry.args} arguments(const {struct}& given, const Reader& read) {{",
            f"{entry.args} args;",
        ]
        for each in entry.arguments:
            name = each["name"]
            lines.append(f'args.{name} = read("{name}", given.{name});')
        if entry.kind:
            lines.append(f"args.kind = {entry.op}::Kind::{entry.kind};")
        for each in entry.options:
            name, value = each["name"], f"given.{each['name']}"
            if each["type"] == "yes_no":
                value += " != 0"
            if each["type"] == "choice":  # an enum, whose range the operator checks
                value = f"decltype(args.{name}){{{value}}}"
            if each["zero_is_default"]:
                value = f"{value} == 0 ? {each['default']} : {value}"
            lines.append(f"args.{name} = {value};")
        lines += ["return args;", "}"]
    return "\n".join([*lines, "", "}  // namespace isobit::capi"]) + "\n"


def c_source(all_entries):
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// The functions of isobit/operators.h: each hands on what its struct says.",
        f"// {_GENERATED}",
        '#include "isobit/capi/arguments.h"',
        '#include "isobit/capi/observing.h"',
        "",
        "using namespace isobit;",
    ]
    for entry in all_entries:
        function = "run" if entry.only_pass else entry.pass_name
        lines += [
            "",
            f"isobit_status isobit_{entry.name}("
            f"const isobit_{entry.name}_args* args, const isobit_context* context) {{",
            f'return capi::call("{entry.title}", args, context,',
            "[](const auto& given, const capi::Reader& read, const Execution& execution) {",
            "const auto read_args = capi::arguments(given, read);",
            f'capi::observed("{entry.title}", read_args, execution, [&] {{',
            f"{entry.op}::{function}(read_args, execution);",
            "});",
            "});",
            "}",
        ]
    return "\n".join(lines) + "\n"


def _default(option):
    if option["type"] == "yes_no":
        return "true" if option["default"] else "false"
    return f"{option['default']:g}"


def cpp_header(all_entries):
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// Every operator as a struct and a function; isobit.hpp includes this file.",
        f"// {_GENERATED}",
        "#ifndef ISOBIT_HPP",
        '#include "isobit/isobit.hpp"',
        "#endif",
        "",
        "#ifndef ISOBIT_OPERATORS_HPP",
        "#define ISOBIT_OPERATORS_HPP",
        "",
        "namespace isobit {",
    ]
    for entry in all_entries:
        lines += ["", "// " + "\n// ".join(textwrap.wrap(entry.summary, 94))]
        lines.append(f"struct {entry.cpp_type} {{")
        for kind, names in (("Tensor", entry.inputs), ("Output", entry.outputs)):
            if names:
                lines.append(f"{kind} {', '.join(f'{name} = {{}}' for name in names)};")
        for each in entry.options:
            lines.append(f"{_CPP_TYPES[each['type']]} {each['name']} = {_default(each)};")
        function = entry.kind or entry.name
        args = f"isobit_{entry.name}_args"
        lines += [
            "};",
            "",
            "namespace detail {",
            f"inline {args} arguments(const {entry.cpp_type}& given) {{",
            f"{args} args = {{}};",
            "args.struct_size = sizeof args;",
        ]
        for each in entry.arguments:
            lines.append(f"args.{each['name']} = given.{each['name']}.get();")
        for each in entry.options:
            lines.append(f"args.{each['name']} = given.{each['name']};")
        lines += [
            "return args;",
            "}",
            "}  // namespace detail",
            "",
            f"inline void {function}("
            f"const {entry.cpp_type}& given, const Context& context = {{}}) {{",
            f"const {args} args = detail::arguments(given);",
            f"detail::check(isobit_{entry.name}(&args, &context));",
            "}",
        ]
    return "\n".join([*lines, "", "}  // namespace isobit", "", "#endif"]) + "\n"


def fuzz_table(all_entries):
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        "// The rows of entries.cpp: which arrays and numbers stand in each struct.",
        f"// {_GENERATED}",
    ]
    for entry in all_entries:
        function = f"isobit_{entry.name}"
        arrays = " ".join(each["name"] for each in entry.arguments)
        numbers = "".join(f", &{function}_args::{each['name']}" for each in entry.options)
        lines.append(
            f'entry<{function}>("{function}", "{entry.op}", "{entry.pass_code}", '
            f'"{arrays}"{numbers}),'
        )
    return "\n".join(lines) + "\n"


FACES = {
    "include/isobit/operators.h": c_header,
    "include/isobit/operators.hpp": cpp_header,
    "src/isobit/capi/arguments.h": c_reader,
    "src/isobit/capi/operators.cpp": c_source,
    "tests/fuzz/entries.inc": fuzz_table,
}


def formatted(name, text):
    style = name.replace(".inc", ".cpp")
    command = [str(CLANG_FORMAT), f"--assume-filename={ROOT / style}"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 if a file is stale"
    )
    parser.add_argument("--library", type=Path, default=LIBRARY)
    given = parser.parse_args()
    all_entries = list(entries(operators(given.library)))
    stale = []
    for name, write in FACES.items():
        path, text = ROOT / name, formatted(name, write(all_entries))
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if not given.check:
                path.write_text(text)
    if stale:
        print("stale; run `tools/faces.py` to write them:" if given.check else "written:", *stale)
    return 1 if stale and given.check else 0


if __name__ == "__main__":
    sys.exit(main())
