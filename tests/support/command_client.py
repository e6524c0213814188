"""Hands a command to the server of commands (`houston_command`), and ends as it ends."""

import os
import signal
import socket
import sys


def main(path: str, *words: str) -> int:
    """Return the exit code; end by the signal that ended the command."""
    environment = [key + b"=" + value for key, value in os.environb.items()]
    fields = [os.getcwdb(), b"%d" % len(words), *map(os.fsencode, words), *environment]
    request = b"\0".join(fields)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        socket.send_fds(line, [len(request).to_bytes(8, "big")], [0, 1, 2])
        line.sendall(request)
        answer = line.recv(16)
    if answer == b"own":
        os.execv(sys.executable, [sys.executable, "-m", "houston_shared.command", *words])
    if (code := int(answer)) < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


sys.exit(main(*sys.argv[1:]))
