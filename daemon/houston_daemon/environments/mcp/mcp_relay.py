"""Starts a server and passes on its output; a line that is too long makes it end the server.

    python -m houston_daemon.environments.mcp.mcp_relay PARENT PROGRAM…

The SDK holds a line until its end comes and copies it with every piece. So a server that reads a
large file, or never ends a line, would use up the worker's memory and time. The server's input is
the relay's own. Knows nothing of messages.
"""

import os
import subprocess
import sys

from houston_daemon.service.parent_death import end_with_parent

LONGEST = 16 << 20
"""Bytes of a line."""
_PIECE = 1 << 16


def relay_lines(source: int, target: int) -> bool:
    """Copy from one file descriptor to another until the end; False for a line that is too long."""
    length = 0
    while piece := os.read(source, _PIECE):
        end = piece.rfind(b"\n")
        length = length + len(piece) if end < 0 else len(piece) - end - 1
        if length > LONGEST:
            return False
        while piece:
            piece = piece[os.write(target, piece) :]
    return True


def main() -> int:
    """Run the server of the command line; its exit code."""
    if not end_with_parent(int(sys.argv[1])):
        return 1
    with subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        if not relay_lines(server.stdout.fileno(), 1):
            sys.stderr.write(f"a message of more than {LONGEST >> 20} MB; the server is ended\n")
            server.kill()
    return server.returncode


if __name__ == "__main__":
    sys.exit(main())
