"""Installs Houston where nothing of it ever was, as docs/install.md says, and notes the seconds.

    python release/fresh_root.py dist --tool pip --suite bookworm      # Python 3.11
    python release/fresh_root.py dist --tool uv --suite trixie         # Python 3.13

A bare Debian is made with debootstrap in a temporary folder and becomes the root of a mount and
process namespace of its own; there a user without rights runs the commands of `STEPS`, which are
those of docs/install.md. The wheel in `dist` stands for what an index would offer, everything else
comes from the package indexes. Needs root, debootstrap and unshare. `--trust` adds a certificate
authority for who reaches indexes through a proxy. Figures go to bench/results/fresh_root.json.
"""

import argparse
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "bench" / "results" / "fresh_root.json"
SYSTEM_STEP = "apt-get install -y tmux git bubblewrap python3-venv"
"""What an administrator does once."""
TOOL_STEPS = {
    "pip": {
        "environment": "python3 -m venv ~/houston",
        "install": "~/houston/bin/pip install houston-agents",
    },
    "uv": {
        "uv itself": "python3 -m venv ~/uv && ~/uv/bin/pip install uv",
        "install": "~/uv/bin/uv tool install houston-agents",
        "without installing": "~/uv/bin/uvx houston-agents demo --headless",
    },
}
FIRST_STEPS = {
    "version": "houston --version",
    "doctor": "houston doctor",
    "demo": "houston demo --headless",
    "task": "houston task new count-words",
    # One line, since what a step leaves running ends with its namespace.
    "daemon": "houston daemon start && houston daemon status && houston daemon stop",
    "verify": "houston verify",
}
USER = "ada"
SEARCH_PATH = f"/home/{USER}/houston/bin:/home/{USER}/.local/bin:/usr/bin:/bin"
ENTER = """
set -e
mount --rbind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /sys "$1/sys"
mount --rbind /dev "$1/dev"
cd "$1"
mkdir -p .before
pivot_root . .before
umount -l /.before
exec /bin/sh -c "$2"
"""
"""A root that was pivoted to: in one that was only changed to, nobody may open a user namespace."""


def main() -> int:
    """Make the root, run everything, write the figures; the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("dist", type=Path, help="folder with the wheel")
    parser.add_argument("--tool", choices=TOOL_STEPS, default="pip")
    parser.add_argument("--suite", default="bookworm", help="of Debian: bookworm, trixie")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian")
    parser.add_argument("--trust", type=Path, help="a file of certificates to trust")
    parser.add_argument("--result", type=Path, default=RESULT, help="JSON file to add to")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="houston-root-"))
    try:
        begun = time.monotonic()
        make_root(folder, arguments)
        made = time.monotonic() - begun
        figures = run_steps(FreshRoot(folder, arguments.trust), arguments.tool)
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=False)
    figures["debootstrap_seconds"] = round(made, 1)
    note_figures(arguments.result, f"{arguments.suite} {arguments.tool}", figures)
    failed = [step["command"] for step in figures["steps"].values() if step["exit_code"]]
    for command in failed:
        print(f"failed: {command}", file=sys.stderr)
    return int(bool(failed))


def make_root(folder: Path, arguments: argparse.Namespace) -> None:
    """A bare Debian with a user, the wheel, and what reaching the indexes takes."""
    folder.chmod(0o755)
    subprocess.run(
        ["debootstrap", "--variant=minbase", "--include=ca-certificates", arguments.suite,
         str(folder), arguments.mirror],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    shutil.copy("/etc/resolv.conf", folder / "etc" / "resolv.conf")
    (folder / "wheels").mkdir()
    for wheel in arguments.dist.glob("*.whl"):
        shutil.copy(wheel, folder / "wheels")
    if arguments.trust:
        shutil.copy(arguments.trust, folder / "etc" / "trusted.pem")
    subprocess.run(
        ["chroot", str(folder), "useradd", "--create-home", "--shell", "/bin/bash", USER],
        check=True,
    )


class FreshRoot:
    """Runs commands in the new root."""

    def __init__(self, folder: Path, trust: Path | None) -> None:
        self._folder = folder
        self._environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": "/root",
            "PIP_FIND_LINKS": "/wheels", "UV_FIND_LINKS": "/wheels",
            "DEBIAN_FRONTEND": "noninteractive",
        }  # fmt: skip
        if trust:
            names = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
            self._environment |= dict.fromkeys(names, "/etc/trusted.pem")
        proxies = {name: value for name, value in os.environ.items() if "proxy" in name.lower()}
        self._environment |= proxies

    def run(self, command: str, user: str = "root") -> "subprocess.CompletedProcess[str]":
        """What a command of this user says."""
        environment = self._environment
        if user != "root":
            inner = f"cd; export PATH={SEARCH_PATH} HOUSTON_HOME=~/station; {command}"
            keep = ",".join(environment.keys() - {"PATH", "HOME"})
            command = f"exec su -w {keep} - {user} -c {shlex.quote(inner)}"
        return subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--propagation", "private",
             "/bin/sh", "-c", ENTER, "enter", str(self._folder), command],
            env=environment, capture_output=True, text=True, timeout=1800, check=False,
        )  # fmt: skip


def run_steps(root: FreshRoot, tool: str) -> dict[str, object]:
    """Every step once; its seconds and exit code, and what doctor said."""
    steps: dict[str, dict[str, object]] = {}
    said: dict[str, str] = {}
    every = {"system packages": SYSTEM_STEP, **TOOL_STEPS[tool], **FIRST_STEPS}
    for name, command in every.items():
        user = "root" if command == SYSTEM_STEP else USER
        begun = time.monotonic()
        done = root.run(f"apt-get update -qq && {command}" if user == "root" else command, user)
        seconds = time.monotonic() - begun
        said[name] = done.stdout
        print(f"{seconds:7.1f} s  {command}  ({done.returncode})", flush=True)
        if done.returncode:
            print((done.stdout + done.stderr)[-3000:], file=sys.stderr)
        steps[name] = {
            "command": command, "seconds": round(seconds, 1), "exit_code": done.returncode
        }  # fmt: skip
    return {
        "python": root.run("python3 --version").stdout.strip(),
        "version": said["version"].strip(),
        "doctor": said["doctor"].splitlines(),
        "steps": steps,
        "install_to_demo_seconds": round(
            sum(float(str(steps[name]["seconds"])) for name in (*TOOL_STEPS[tool], "demo")), 1
        ),
    }


def note_figures(file: Path, name: str, figures: dict[str, object]) -> None:
    """Add the figures of one run to the file."""
    results = json.loads(file.read_text()) if file.is_file() else {}
    results["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, shared with other work"
    results[name] = figures
    file.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
