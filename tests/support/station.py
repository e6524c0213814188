"""A whole station for a test: its own home, its own host root, the real command in real processes.

Everything goes through the `houston` command, as a user would; the database is read only to check
what a command cannot show.
"""

import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.houston_command import houston_command

TASK = """
name = "{name}"
instructions = "{instructions}"
sandbox = "{sandbox}"

[workspace]
source = "workspace"

[budget]
{budget}

[evaluate]
command = "python3 evaluate.py"
seconds = {seconds}

[sampling]
{sampling}
"""
EVALUATE = (
    "import json, os, pathlib\n"
    "there = (pathlib.Path(os.environ['WORKSPACE']) / 'answer.txt').is_file()\n"
    "print(json.dumps({'overall_score': 100 if there else 0}))\n"
)


class Station:
    """One home and the commands on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.host_root = folder / "host"
        self.environment = {
            **os.environ,
            "HOUSTON_HOME": str(self.home),
            "HOUSTON__HOSTS__ROOT": str(self.host_root),
            # Who tests verdicts says when they are given; `test_live_rules` lets rules run.
            "HOUSTON__DAEMON__LIVE_RULES": "false",
        }

    def run(
        self, *words: str, code: int | None = 0, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `houston words…`; `code` is the exit code it must have (None: any)."""
        done = subprocess.run(
            houston_command(*words),
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=options.pop("timeout", 120),
            cwd=self.folder,
            check=False,
            **options,
        )
        if code is not None and done.returncode != code:
            raise AssertionError(
                f"houston {' '.join(words)} exited {done.returncode}, not {code}\n"
                f"{done.stdout}\n{done.stderr}\n{self.log()}"
            )
        return done

    def json(self, *words: str) -> list[Any]:
        """The JSON lines that a command prints."""
        return [json.loads(line) for line in self.run(*words, "--json").stdout.splitlines()]

    def start(self) -> None:
        self.run("daemon", "start")

    def stop(self) -> None:
        self.run("daemon", "stop")

    def clear(self) -> None:
        """End what still runs, terminals too, and stop; whatever state the test left."""
        if not (self.home / "houston.db").is_file():
            return
        rows = self.query("SELECT id FROM rollouts WHERE state IN ('queued', 'running', 'paused')")
        if rows:
            self.run("daemon", "start", code=None)
        for (rollout,) in rows:
            self.run("rollout", "cancel", rollout, code=None)
        for (rollout,) in rows:
            self.until(lambda r=rollout: self._terminals_ended(r), 30, f"terminals of {rollout}")
        self.run("daemon", "stop", code=None)

    def _terminals_ended(self, rollout: str) -> bool:
        return not any(rollout in command_line(entry) for entry in Path("/proc").glob("[0-9]*"))

    def log(self, lines: int = 40) -> str:
        """The ends of the daemon's and the workers' logs, for a failing test."""
        files = sorted((self.home / "logs").rglob("*.log")) if (self.home / "logs").is_dir() else []
        return "\n".join(
            f"--- {file.name}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-lines:])
            for file in files
        )

    def task(self, name: str = "probe", **options: Any) -> Path:
        """Write a task folder; options: budget, sampling (TOML lines), files, sandbox, evaluate,
        seconds (that an evaluator may take)."""
        folder = self.folder / "tasks" / name
        (folder / "workspace").mkdir(parents=True, exist_ok=True)
        for path, content in options.get("files", {"README.md": "Hello.\n"}).items():
            data = content if isinstance(content, bytes) else content.encode()
            (folder / "workspace" / path).write_bytes(data)
        (folder / "evaluate.py").write_text(options.get("evaluate", EVALUATE))
        text = TASK.format(
            name=name,
            instructions=options.get("instructions", "Look around and write answer.txt."),
            sandbox=options.get("sandbox", "bubblewrap"),
            budget=options.get("budget", ""),
            sampling=options.get("sampling", ""),
            seconds=options.get("seconds", 8),
        )
        (folder / "task.toml").write_text(text)
        return folder / "task.toml"

    def script(self, steps: list[dict[str, Any]], name: str = "script") -> str:
        """Write a script for the script engine; returns the value for `--engine`."""
        file = self.folder / f"{name}.jsonl"
        file.write_text("".join(json.dumps(step) + "\n" for step in steps))
        return f"script:{file}"

    def rollout(self, task: Path, engine: str, n: int = 1) -> list[str]:
        """Start rollouts; returns their ids."""
        words = ["rollout", "start", str(task), "--engine", engine, "-n", str(n)]
        return [row["rollout"] for row in self.json(*words)]

    def show(self, rollout: str) -> dict[str, Any]:
        (row,) = self.json("rollout", "show", rollout)
        return row

    def steps(self, rollout: str) -> list[dict[str, Any]]:
        return self.json("steps", rollout)

    def until(self, what: Callable[[], Any], seconds: float = 60, why: str = "") -> Any:
        """Wait until `what()` is true; its value. The limit only bounds a hanging test."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := what():
                return value
            time.sleep(0.05)
        raise AssertionError(f"did not happen within {seconds} s: {why}\n{self.log()}")

    def ended(self, rollout: str, seconds: float = 120) -> dict[str, Any]:
        """Wait until a rollout has ended; its record."""
        over = ("finished", "failed", "cancelled")
        self.until(lambda: self.state(rollout) in over, seconds, f"{rollout} ends")
        return self.show(rollout)

    def state(self, rollout: str) -> str:
        """Its state. Who waits asks the database: a command twenty times a second is a load."""
        return str(self.query("SELECT state FROM rollouts WHERE id = ?", rollout)[0][0])

    def closed(self, rollout: str) -> int:
        """How many of its steps are closed."""
        return int(self.query("SELECT steps FROM rollouts WHERE id = ?", rollout)[0][0])

    def query(self, sql: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Rows straight from the database, for what no command shows."""
        connection = sqlite3.connect(f"file:{self.home}/houston.db?mode=ro", uri=True)
        try:
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    @property
    def pid(self) -> int:
        (row,) = self.json("daemon", "status")
        return int(row["pid"])

    def kill_daemon(self) -> None:
        """kill -9 of the daemon, as a crash or a power cut of the process would be."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: not alive(pid), 60, "the daemon is gone")

    def process(self, *fragments: str) -> int:
        """The id of this station's process whose command line holds all fragments.

        Other tests run the same programs at the same time: what does not carry this station's
        folder in its environment or on its command line is somebody else's.
        """
        for entry in Path("/proc").glob("[0-9]*"):
            line = command_line(entry)
            ours = str(self.folder) in line + told(entry, "environ")
            if ours and all(part in line for part in fragments):
                return int(entry.name)
        raise AssertionError(f"no process {fragments}\n{self.log()}")


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    return process_state(pid) not in "ZX"


def process_state(pid: int) -> str:
    """Its letter in /proc: T while a signal has stopped it; X where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # gone, or going while it is read
        return "X"


def command_line(entry: Path) -> str:
    return told(entry, "cmdline")


def told(entry: Path, file: str) -> str:
    """What /proc says of a process in `cmdline` or `environ`; empty when it is gone."""
    try:
        return (entry / file).read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
