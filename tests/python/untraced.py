# SPDX-License-Identifier: Apache-2.0
"""Pauses the measurement of coverage while compilers that are written in Python work.

To be measured makes Python take two thirds longer, and of Isobit next to nothing runs meanwhile.
"""

import contextlib
import sys
import threading

_paused = []


def pause(*_):
    coverage = sys.modules.get("coverage")
    measuring = coverage and coverage.Coverage.current()
    if threading.current_thread() is threading.main_thread():
        if measuring:
            measuring.stop()
        _paused.append(measuring)


def resume(*_):
    if _paused and threading.current_thread() is threading.main_thread():
        measuring = _paused.pop()
        if measuring:
            measuring.start()


@contextlib.contextmanager
def untraced():
    pause()
    try:
        yield
    finally:
        resume()


def while_dynamo_compiles():
    """What resets Dynamo forgets it."""
    callback = sys.modules.get("torch._dynamo.callback")
    if callback and pause not in callback.callback_handler.start_callbacks:
        callback.on_compile_start(pause)
        callback.on_compile_end(resume)
