"""Record real terminals: `python -m tests.console.record_terminals [NAME…]` writes recorded/.

Each session is a terminal of a local host: tmux, bubblewrap and the shell that writes our marks.
Kept are the bytes of its log, what tmux shows of them, and where the output of each command begins.
"""

import asyncio
import importlib
import json
import shutil
import sys
import tempfile
from pathlib import Path

from houston_daemon.hosts.local_host import LocalHost
from houston_daemon.hosts.terminals.tmux_server import TmuxServer, find_tmux_socket

RECORDED = Path(__file__).parent / "recorded"
STILL_OPEN = "vim that is still open"
"""Where a program has the alternate screen: what tmux shows is that."""
WITH_BARS = ("progress bars of tqdm", "progress bars of rich")
BARS = Path(__file__).parent / "bars.py"
SESSIONS = {
    "many commands": [f"echo output of command {number}" for number in range(1, 41)],
    "no output": ["true", "cd /tmp", "x=1", "true", "cd - >/dev/null", "echo $x"],
    "a progress bar": [
        r"for i in 10 50 100; do printf '\r%3d %%|%s' $i \#\#\#; sleep 0.02; done; echo",
        r"printf 'loading...'; printf '\r\033[Kloaded\n'",
    ],
    "colours": [
        r"printf '\033[31merror\033[0m plain \033[1;32mok\033[0m\n'",
        r"printf '\033]0;a title\007after a title\n'",
    ],
    "blank lines, tabs and backspaces": [
        r"printf 'a\tb\n\n\nlong word\b\b\b\bW\n'",
        "printf '  x\\n\\n'",
    ],
    "errors": [
        "ls no-such-folder",
        "python3 -c 'print(1 / 0)'",
        "(exit 3)",
        "no_such_command --flag",
    ],
    "wide characters": ["printf '中文字符 ok\\n漢字\\n'", "printf 'naïve café 🚀\\n'"],
    "a heredoc": ["cat <<'END'\none\n\ttwo\nEND", "for i in 1 2 3; do\n  echo $i\ndone"],
    "long lines": ["head -c 700 /dev/zero | tr '\\0' x; echo", "seq 1 60 | tr '\\n' ' '; echo"],
    "progress bars of tqdm": [
        "python3 bars.py tqdm",
        "python3 bars.py nested",
        "python3 bars.py wide",
    ],
    "progress bars of rich": ["python3 bars.py rich", "echo after it"],
    "git with colours": [
        "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first",
        "git -c color.ui=always log --stat",
        "git -c color.ui=always status",
        "echo one > a; git -c color.ui=always status --short; ls --color=always /workspace",
    ],
    "vim and less": [
        "vim -u NONE -c 'normal ihello' -c 'redraw' -c 'sleep 100m' -c 'q!' a.txt",
        "seq 1 200 > n; LESS=+Gq less n",
        "echo after them",
    ],
    "top": ["top -n 2 -d 0.2", "echo after it"],
    "the screen cleared": ["seq 1 70", "clear", "echo after it", "seq 1 60"],
    STILL_OPEN: ["echo before", "vim -u NONE -c 'normal ihello' a.txt"],
    "no line feed at the end": [r"printf 'no line feed'", "echo next", r"printf 'again'", "true"],
}
ON_ONE_LINE = "no line feed at the end"
"""Where tmux shows a prompt behind text, and we on a line of its own, as the agent reads it."""


async def record(name: str, commands: list[str], root: Path) -> None:
    """Run the commands of one session and keep what they left."""
    host = LocalHost(root, "r", sandbox="bubblewrap", network=False, hidden=())
    await host.prepare(None)
    if name in WITH_BARS:
        shutil.copy(BARS, host.workspace)
        for package in ("tqdm", "rich", "pygments", "markdown_it", "mdurl"):
            found = importlib.import_module(package).__path__[0]
            shutil.copytree(found, host.workspace / package)
    try:
        terminal = await host.terminal("main", create=True)
        starts = []
        for command in commands:
            starts.append(await terminal.run(command))
            await terminal.wait(2 if name == STILL_OPEN else 30, asyncio.Event())
        tmux = TmuxServer(find_tmux_socket(host.folder / "terminals"))
        whole = ("-J", "-S", "-", "-E", "-") if name != STILL_OPEN else ()
        _, shown = await tmux.call("capture-pane", "-p", *whole, "-t", "=main:")
        log = terminal.log.read(0, terminal.log.size())
    finally:
        await host.destroy_terminals()
        await host.close()
    stem = RECORDED / name.replace(",", "").replace(" ", "_")
    stem.with_suffix(".log").write_bytes(log)
    lines = [line.rstrip() for line in shown.rstrip("\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    session = {"name": name, "commands": commands, "starts": starts, "tmux": lines}
    stem.with_suffix(".json").write_text(json.dumps(session, ensure_ascii=False, indent=1) + "\n")


async def _all(names: list[str]) -> None:
    RECORDED.mkdir(exist_ok=True)
    for name in names or SESSIONS:
        commands = SESSIONS[name]
        with tempfile.TemporaryDirectory() as folder:
            await record(name, commands, Path(folder) / "root")


if __name__ == "__main__":
    asyncio.run(_all(sys.argv[1:]))
