# SPDX-License-Identifier: Apache-2.0
"""Isobit in Python: isobit.torch and isobit.numpy have its operators, isobit.lab is for its
developers. Importing isobit loads no library."""

from isobit import _library

__all__ = ["__version__"]

__version__ = _library.version()
