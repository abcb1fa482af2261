# SPDX-License-Identifier: Apache-2.0
"""A Python for the lab that imports PyTorch and Triton once, not for each call of the lab.

As a program: for each client it forks a child, which answers the lab as isobit.lab.triton does. The
client is what the lab starts instead of Python; it lends its streams and waits for the child.
"""

import atexit
import contextlib
import functools
import os
import select
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

CLIENT = """\
#!{python} -SE
import socket
import sys

assert sys.argv[1:] == ["-m", "isobit.lab.triton"], sys.argv
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"streams"], [0, 1, 2])
    sys.exit(int(server.recv(9) or 1))
"""


@functools.cache
def python():
    """What the lab is given as ISOBIT_PYTHON; it serves as long as this process lives."""
    folder = tempfile.TemporaryDirectory()
    address, client = (Path(folder.name) / name for name in ("socket", "python"))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(address))
    listening.listen()
    server = subprocess.Popen(
        [sys.executable, __file__, str(listening.fileno())],
        stdin=subprocess.PIPE,
        pass_fds=[listening.fileno()],
    )
    listening.close()
    client.write_text(CLIENT.format(python=sys.executable, address=str(address)))
    client.chmod(0o700)

    def end():
        server.stdin.close()
        server.wait()
        folder.cleanup()

    atexit.register(end)
    return str(client)


def answer(connection, triton_lab):
    """In a child."""
    _, streams, _, _ = socket.recv_fds(connection, 9, 3)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    try:
        triton_lab.main()
        atexit._run_exitfuncs()  # coverage is written
        connection.sendall(b"0")
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(0)  # PyTorch's own end takes seconds


def main():
    listening = socket.socket(fileno=int(sys.argv[1]))
    from isobit.lab import triton as triton_lab

    triton_lab.Lab()  # imports all that it needs
    while sys.stdin not in select.select([sys.stdin, listening], [], [])[0]:
        connection, _ = listening.accept()
        if not os.fork():
            answer(connection, triton_lab)
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


if __name__ == "__main__":
    main()
