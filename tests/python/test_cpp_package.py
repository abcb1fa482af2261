# SPDX-License-Identifier: Apache-2.0
"""The installed package as a C++ project outside the tree meets it."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RELEASE = ROOT / "build" / "release"
EXAMPLE = ROOT / "examples" / "cpp"
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
SAYS = (
    "the same bits on one thread and on all",
    "a wrong call: layernorm: weight has 4 elements; x has 3 columns",
)


def run(*command, **kwargs):
    done = subprocess.run(command, capture_output=True, text=True, **kwargs)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """Installed, then moved: nothing in it may remember where it was."""
    folder = tmp_path_factory.mktemp("package")
    run("cmake", "--install", RELEASE, "--prefix", folder / "first")
    return (folder / "first").rename(folder / "then")


def configure(source, build, prefix):
    command = ["cmake", "-G", "Ninja", "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}"]
    return subprocess.run(command, capture_output=True, text=True)


def test_example_builds_with_cmake_and_runs(prefix, tmp_path):
    assert configure(EXAMPLE, tmp_path, prefix).returncode == 0
    run("cmake", "--build", tmp_path)
    programs = ["normalise"]
    if (prefix / "lib" / "libisobit_cuda.so").exists():
        programs.append("normalise_with_cuda")
    for program in programs:
        said = run(tmp_path / program)
        assert all(line in said for line in SAYS)
    assert run(tmp_path / "normalise_c") == "0x1.da04f6p-2 0x1.da04f6p-1 0x1.6383b8p+0\n"


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_example_builds_with_pkg_config(prefix, tmp_path, compiler):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    env = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    flags = run("pkg-config", "--cflags", "--libs", "isobit", env=env).split()
    program = tmp_path / "normalise"
    command = [compiler, "-std=c++20", *STRICT, EXAMPLE / "normalise.cpp", "-o", program, *flags]
    run(*command, f"-Wl,-rpath,{prefix}/lib")
    assert all(line in run(program) for line in SAYS)


def test_package_names_its_version(prefix, tmp_path):
    env = {**os.environ, "PKG_CONFIG_PATH": str(prefix / "lib" / "pkgconfig")}
    version = (ROOT / "VERSION").read_text().strip()
    assert run("pkg-config", "--modversion", "isobit", env=env).strip() == version
    soname = re.search(r"SONAME.*\[(.*)\]", run("readelf", "-d", prefix / "lib" / "libisobit.so"))
    assert soname[1] == "libisobit.so." + ".".join(version.split(".")[:2])


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ("find_package(isobit 0.0 REQUIRED)", "compatible with requested version"),
        ("find_package(isobit REQUIRED COMPONENTS tpu)", "has no component 'tpu' here"),
    ],
)
def test_cmake_is_told_what_the_package_lacks(prefix, tmp_path, request_, says):
    lists = f"cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES CXX)\n{request_}\n"
    (tmp_path / "CMakeLists.txt").write_text(lists)
    done = configure(tmp_path, tmp_path / "build", prefix)
    assert done.returncode != 0
    assert says in re.sub(r"\s+", " ", done.stderr)


def test_header_is_for_cpp17_and_refuses_unknown_elements(prefix, tmp_path):
    source = tmp_path / "a.cpp"
    command = ["g++", "-std=c++17", *STRICT, "-fsyntax-only", f"-I{prefix}/include", source]
    use = "#include <isobit/isobit.hpp>\n#include <vector>\n"
    elements = ("double", "std::int32_t", "std::int64_t", "std::uint8_t")
    of_each = (
        f"isobit::Output of(std::vector<{element}>& v) {{ return {{v, {{2, 3}}}}; }}\n"
        for element in elements
    )
    source.write_text(use + "".join(of_each))
    run(*command)
    for wrong, says in (
        ("isobit::Tensor of(std::vector<short>& v) { return {v, {2, 3}}; }", "dtype_of"),
        ("isobit::Output of(const std::vector<float>& v) { return {v, {2, 3}}; }", "const"),
    ):
        source.write_text(use + wrong)
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode != 0
        assert says in done.stderr


PACKED = r"""
#include <cstdio>
#include <cstring>
#include <isobit/isobit.hpp>
#include <vector>

int main() {
  std::vector<float> a(20 * 30, 0.3f), b(30 * 40, 0.7f), y(20 * 40), z(20 * 40);
  isobit::Matmul product;
  product.a = {a, {20, 30}};
  product.b = {b, {30, 40}};
  product.y = {y, {20, 40}};
  isobit::matmul(product);
  isobit::PackedMatrix first(product.b, isobit::Context::on_threads(1));
  const isobit::PackedMatrix packed = std::move(first);
  product.y = {z, {20, 40}};
  try {
    isobit::matmul(product, packed);
  } catch (const isobit::Error& error) {
    std::puts(error.what());
  }
  product.b = {};
  isobit::matmul(product, packed);
  std::puts(std::memcmp(y.data(), z.data(), y.size() * 4) == 0 ? "the same bits" : "other bits");
  try {
    isobit::matmul(product, first);
  } catch (const isobit::Error& error) {
    std::puts(error.what());
  }
  std::printf("%d %d\n", packed.bytes() >= 30 * 40 * 4, static_cast<int>(first.bytes()));
}
"""


def test_packed_matrix_gives_the_bits_of_its_array(prefix, tmp_path):
    source, program = tmp_path / "packed.cpp", tmp_path / "packed"
    source.write_text(PACKED)
    flags = [f"-I{prefix}/include", f"-L{prefix}/lib", f"-Wl,-rpath,{prefix}/lib"]
    run("g++", "-std=c++17", *STRICT, source, "-o", program, *flags, "-lisobit")
    assert run(program).splitlines() == [
        "matmul: b is given twice: as an array and packed",
        "the same bits",
        "matmul: the packed matrix is null",
        "1 0",
    ]


@pytest.mark.parametrize(
    "header", sorted(each.name for each in (ROOT / "include/isobit").iterdir())
)
def test_each_header_is_complete_whichever_is_included_first(header, tmp_path):
    compiler = (
        ["c++", "-std=c++17", "-xc++"] if header.endswith("pp") else ["cc", "-std=c99", "-xc"]
    )
    others = "".join(
        f"#include <isobit/{name}>\n" for name in (header, header.replace("operators", "packed"))
    )
    (tmp_path / "alone").write_text(f"{others}int main(void) {{ return 0; }}\n")
    run(*compiler, *STRICT, "-fsyntax-only", f"-I{ROOT}/include", tmp_path / "alone")


def test_cpp_header_computes_strides_of_any_extents_without_overflow(tmp_path):
    (tmp_path / "huge.cpp").write_text("""
        #include <isobit/isobit.hpp>
        int main() {
          const float x = 0;
          const isobit::Tensor huge(&x, 1, {4, std::int64_t(1) << 62, std::int64_t(1) << 62});
          const isobit::Tensor flat(&x, 1, {2, 0, 3, 5});
          const std::int64_t* strides = flat.get()->strides;
          return huge.get()->strides[0] == INT64_MAX && huge.get()->strides[1] > INT64_MAX / 4 &&
                         strides[0] == 15 && strides[1] == 15 && strides[2] == 5 && strides[3] == 1
                     ? 0
                     : 1;
        }""")
    built, undefined = tmp_path / "huge", ["-fsanitize=undefined", "-fno-sanitize-recover=all"]
    command = ["c++", "-std=c++17", *STRICT, *undefined, f"-I{ROOT}/include"]
    run(*command, tmp_path / "huge.cpp", "-o", built)
    run(built)


def test_cpp_header_passes_every_argument_on():
    headers = ROOT / "include" / "isobit"
    cpp = (headers / "operators.hpp").read_text()
    c = (headers / "operators.h").read_text()
    structs = re.findall(r"typedef struct isobit_(\w+)_args \{(.*?)\n\} ", c, re.S)
    assert len(structs) == c.count("ISOBIT_API") > 6
    for entry, members in structs:
        members = re.sub(r"/\*.*?\*/", "", members, flags=re.S)
        names = re.findall(r"(\w+);", members)
        (body,) = re.findall(rf"isobit_{entry}_args args = \{{\}};(.*?)\n\}}", cpp, re.S)
        missing = [name for name in names if f"args.{name} =" not in body]
        assert not missing, f"{entry}: {missing}"
