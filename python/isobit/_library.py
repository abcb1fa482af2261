# SPDX-License-Identifier: Apache-2.0
"""Where Isobit's binaries lie, which version they are, and what to do about what is missing."""

import os
from contextlib import suppress
from importlib import metadata
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parents[1]


def version() -> str:
    source = _CHECKOUT / "VERSION"
    return source.read_text().strip() if source.exists() else metadata.version("isobit")


def remedy(package: str) -> str:
    """What to do about a package that is missing."""
    if (_CHECKOUT / "Makefile").exists():
        return "run `make build` to install it in .venv"
    return f"run `pip install {package}`"


def _folders() -> list[Path]:
    if chosen := os.environ.get("ISOBIT_LIBRARIES"):
        return [Path(chosen)]
    folders = [_PACKAGE / "native", _CHECKOUT / "build" / "release"]
    # Of an editable installation only the libraries lie among the installed packages.
    with suppress(metadata.PackageNotFoundError):
        folders.append(Path(metadata.distribution("isobit").locate_file("isobit/native")))
    return folders


def library_path() -> Path:
    """Where libisobit.so lies, and beside it all that belongs to it: in ISOBIT_LIBRARIES, in an
    installed package, or in the build of a checkout."""
    name = "libisobit.so." + ".".join(version().split(".")[:2])  # its SONAME
    folders = _folders()
    for folder in folders:
        if (library := folder / name).exists():
            return library
    raise FileNotFoundError(
        f"{name} not found in {', '.join(map(str, folders))}; "
        "run `make build` in a checkout, or `pip install isobit`"
    )
