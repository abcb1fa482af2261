# SPDX-License-Identifier: Apache-2.0
"""Isobit in Python; importing it loads no library."""

import os
from importlib import metadata
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parents[1]


def _version() -> str:
    source = _CHECKOUT / "VERSION"
    return source.read_text().strip() if source.exists() else metadata.version("isobit")


__version__ = _version()


def library_path() -> Path:
    """Where libisobit.so lies: in ISOBIT_LIBRARIES, inside an installed package, or in the build of
    a checkout."""
    chosen = os.environ.get("ISOBIT_LIBRARIES")
    candidates = (Path(chosen),) if chosen else (_PACKAGE, _CHECKOUT / "build" / "release")
    for folder in candidates:
        if (library := folder / "libisobit.so").exists():
            return library
    raise FileNotFoundError(
        "libisobit.so is in none of " + ", ".join(map(str, candidates)) + "; `make build` makes it"
    )
