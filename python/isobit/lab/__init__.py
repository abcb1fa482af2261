# SPDX-License-Identifier: Apache-2.0
"""The Python of the lab, which the command `isobit` starts: what calls the operators as programs
do, runs their Triton versions, and draws reports. Programs that use Isobit need none of it."""

__all__ = []
