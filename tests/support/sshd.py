"""A real sshd on the loopback address: own keys, own port, own configuration, no root needed."""

import getpass
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from houston_daemon.hosts import process_table
from houston_daemon.hosts.ssh.ssh_command import ssh_command_line
from houston_shared.config_sections import HostSettings

_SSHD = "/usr/sbin/sshd"
_CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
"""
_CLIENT = """
Host *
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
"""


class Sshd:
    """One sshd, and the settings of a host that is reached through it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        for key in ("host_key", "user_key"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(words, check=True)
        public = (folder / "host_key.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public}")
        (folder / "authorized_keys").write_text((folder / "user_key.pub").read_text())
        (folder / "sshd_config").write_text(_CONFIG.format(port=self.port, folder=folder))
        user = getpass.getuser()
        (folder / "ssh_config").write_text(_CLIENT.format(port=self.port, folder=folder, user=user))
        command = folder / "houston"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m houston_shared.command "$@"\n')
        command.chmod(0o755)
        self.host = HostSettings(
            ssh="there",
            ssh_config=str(folder / "ssh_config"),
            host_root=str(folder / "root"),
            command=str(command),
        )

    def table(self, name: str) -> str:
        """The host as a table of houston.toml."""
        keys = ("ssh", "ssh_config", "host_root", "command")
        lines = [f'{key} = "{getattr(self.host, key)}"' for key in keys]
        return "\n".join([f"[hosts.{name}]", *lines, ""])

    def start(self) -> None:
        """Listen; returns when a connection is taken."""
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        words = [_SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(words, stderr=log)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            assert self._process.poll() is None, self.log()
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError(self.log())

    def log(self) -> str:
        return (self.folder / "sshd.log").read_text(errors="replace")

    def cut(self) -> None:
        """End every connection, as a network that fails or a machine that is rebooted would."""
        assert self._process is not None
        found = process_table.descendants(self._process.pid, process_table.list_processes())
        process_table.send_signal(
            [entry.pid for entry in found if entry.name == "sshd"], signal.SIGKILL
        )

    def kill_master(self) -> None:
        """Kill the ssh process here that holds the shared connection."""
        words = ssh_command_line(self.host)
        checked = [*words[:-3], "-O", "check", "there"]
        said = subprocess.run(checked, capture_output=True, text=True, check=True).stderr
        os.kill(int(said.partition("pid=")[2].partition(")")[0]), signal.SIGKILL)

    def stop(self) -> None:
        """Take no connection any more, and end those there are."""
        if self._process is None:
            return
        self.cut()
        self._process.kill()
        self._process.wait()
        self._process = None

    def close(self) -> None:
        """Stop, and end the shared connection here."""
        words = ssh_command_line(self.host)
        subprocess.run([*words[:-3], "-O", "exit", "there"], capture_output=True, check=False)
        self.stop()


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])
