# SPDX-License-Identifier: Apache-2.0
"""The command `isobit` of an installed package: becomes the lab, whose Python this one then is."""

import os
import sys

from isobit._library import library_path


def main():
    try:
        lab = library_path().parent / "isobit"
    except FileNotFoundError as error:
        sys.exit(f"isobit: {error}")
    os.environ.setdefault("ISOBIT_PYTHON", sys.executable)
    try:
        os.execv(lab, ["isobit", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"isobit: {lab}: {error.strerror}")
