"""A person's terminal and their login on the node: tmux, ssh, another tmux, and the console in it.

The person's own terminal is a tmux server, which runs ssh; the login runs another tmux on the node,
with everything as it comes, and in that the console.
"""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

from houston_daemon.hosts.ssh.ssh_command import ssh_command_line
from tests.support.sshd import Sshd
from tests.support.station import Station

SECONDS = 60.0
"""Until a screen that does not change is given up."""


class Desk:
    """A person's terminal, and their login on the node."""

    def __init__(
        self,
        folder: Path,
        sshd: Sshd,
        station: Station,
        size: tuple[int, int] = (160, 50),
        words: tuple[str, ...] = (),
    ) -> None:
        """size: columns and lines. words: further words of `houston console`."""
        self.pressed = 0
        self._socket, self._remote = folder / "desk", folder / "there"
        variables = [f"{k}={v}" for k, v in station.environment.items() if k.startswith("HOUSTON")]
        console = [sys.executable, "-m", "houston_shared.command", "console", *words]
        far = ["tmux", "-u", "-S", str(self._remote), "-f", "/dev/null", "new-session"]
        home = [f"HOME={station.folder}", f"XDG_STATE_HOME={station.folder}/state"]
        self._login = folder / "login"
        self._login.write_text(f"exec {shlex.join([*far, 'env', *home, *variables, *console])}\n")
        self._ssh = [*ssh_command_line(sshd.host)[:-3], "-tt", "there", f"sh {self._login}"]
        settings = folder / "desk.conf"
        # A terminal as most are: it has colours, and takes what is copied by OSC 52.
        lines = ("default-terminal xterm-256color", "set-clipboard on", "status off")
        settings.write_text("".join(f"set -g {line}\n" for line in lines))
        area = ("-x", str(size[0]), "-y", str(size[1]))
        self.tmux("-f", str(settings), "new-session", "-d", *area, shlex.join(self._ssh))

    def tmux(self, *words: str) -> str:
        return _tmux(self._socket, *words)

    def shows(self) -> str:
        return self.tmux("capture-pane", "-p")

    def until(self, text: str, why: str) -> None:
        """Wait until the screen holds a text (a regular expression)."""
        end = time.monotonic() + SECONDS
        while not re.search(text, self.shows()):
            assert time.monotonic() < end, f"{why}: no {text!r} in\n{self.shows()}"
            time.sleep(0.05)

    def press(self, *keys: str) -> None:
        """Press keys, named as tmux does."""
        self.pressed += len(keys)
        self.tmux("send-keys", *keys)

    def type(self, text: str) -> None:
        """Type text, which counts as no key."""
        self.tmux("send-keys", "-l", text)

    @property
    def copied(self) -> list[str]:
        """What was copied last: in the tmux of the node, and in the person's own terminal."""
        return [_tmux(socket, "show-buffer") for socket in (self._remote, self._socket)]

    def close(self) -> None:
        for server in (self._remote, self._socket):
            _tmux(server, "kill-server")


def _tmux(socket: Path, *words: str) -> str:
    command = ["tmux", "-S", str(socket), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout
