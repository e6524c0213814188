"""Nine things that an annotator does, played over SSH: keys and seconds each.

    python bench/annotator_tasks.py [--sizes 80x24 120x35] [--tasks NAME …]

A real daemon and real rollouts (script engine), a real sshd, the person's tmux, the console in it.
Every task begins at home. What is pressed is written below as a person reads it from the screen;
text is typed, which counts as no key. Seconds are from the first key until the screen shows that it
is done, the pace of a person left out. Written to bench/results/annotator_tasks.json.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))
from bench.durable.machine import machine

from houston_daemon.engines.local_model import model_path
from tests.engines.adapters import make_adapter
from tests.support.ssh_login import Desk
from tests.support.sshd import Sshd
from tests.support.station import Station

RESULT = ROOT / "bench" / "results" / "annotator_tasks.json"
SLEEP = {"name": "sleep", "arguments": {"sleep_time": 900}}


def _command(text: str) -> dict[str, Any]:
    return {"name": "run_command", "arguments": {"command": text}}


def _step(thought: str, *calls: dict[str, Any]) -> dict[str, Any]:
    return {"thought": thought, "calls": list(calls)}


LOOKS = [
    _step(f"Look number {number}.", _command(f"ls; head -n {number} README.md"))
    for number in range(1, 8)
]
SCRIPTS = {
    "tidy": [
        *LOOKS,
        _step("I write the answer.", _command("echo forty-two > answer.txt")),
        _step("I wait for a word.", SLEEP),
        _step("On.", _command("ls")),
        _step("I wait again.", SLEEP),
    ],
    "train": [
        *LOOKS[:2],
        _step("I train in the background.", _command("sh train.sh > train.log 2>&1 &")),
        _step("I look into the log.", _command("sleep 2; cat train.log")),
        _step("I wait.", SLEEP),
    ],
    "drift": [
        _step("I run it.", _command("python3 src/trian.py")) for _ in range(14)
    ] + [_step("I wait.", SLEEP)],
}  # fmt: skip
"""What each agent does; `drift` misspells a name and does not see it."""
FILES = {
    "README.md": "Count the words.\n",
    "train.sh": "echo epoch 1; sleep 1; echo 'Error: the GPU was lost'; exit 3\n",
}


class Node(NamedTuple):
    """What the person has before them."""

    desk: Desk
    rollouts: dict[str, str]
    """Ids by what their agent does."""
    station: Station

    def open(self, agent: str) -> None:
        """Open a rollout from home: `/`, a part of its name, enter twice."""
        self.desk.press("/")
        self.desk.type(agent)
        self.desk.until(rf"/{agent} ", "it is listed")
        self.desk.press("Enter")
        self.desk.until("enter open", "the list has the keys")
        self.desk.press("Enter")
        self.desk.until(rf"2 {agent} · ", "it is open")


def _find_the_drifting_one(node: Node) -> None:
    node.desk.until(rf"1 .*{node.rollouts['drift']}", "the neediest is first")
    node.desk.until(r"error streak|repeating|same call", "it says why")


def _say_and_be_heard(node: Node) -> None:
    node.open("tidy")
    node.desk.press("5")
    node.desk.type("Read README.md before you go on.")
    node.desk.press("C-w")
    node.desk.until(r"step \d+ +wake", "it says at which step it was heard")


def _last_change_of_a_file(node: Node) -> None:
    node.open("tidy")
    node.desk.press("4")
    node.desk.until(r"answer\.txt", "the file is listed")
    node.desk.press("Enter")
    node.desk.until(r"\+ ?forty-two", "its change is shown")


def _where_a_job_failed(node: Node) -> None:
    node.open("train")
    node.desk.press("3")
    node.desk.until("the GPU was lost", "what it printed is shown")


def _error_over_all(node: Node) -> None:
    node.open("tidy")
    node.desk.press("/")
    node.desk.until("ctrl.o (where|this rollout)", "the prompt says its keys")
    node.desk.press("C-o", "C-o")
    node.desk.type("Error")
    node.desk.press("Enter")
    node.desk.until(r"found .* all rollouts", "hits of all rollouts are listed")
    node.desk.until(rf"{node.rollouts['train']}@\d+", "by rollout and step")
    node.desk.press("Enter")
    node.desk.until("2 train · ", "the first is open")


def _mask_a_range(node: Node) -> None:
    node.open("drift")
    node.desk.press(":")
    node.desk.type("7")
    node.desk.press("Enter", "V", "j", "j", "M")
    node.desk.until(r" 9 .*∅h", "they are masked")
    node.desk.press("R")
    node.desk.type("Misspelt name.")
    node.desk.press("Enter")
    node.desk.press("H")
    node.desk.until("Misspelt name", "the reason stands in what was said of the step")


def _branch(node: Node) -> None:
    node.open("drift")
    node.desk.press(":")
    node.desk.type("3")
    node.desk.press("Enter", "+")
    node.desk.until("after step", "it asks what the branch is told")
    node.desk.type("The file is called train.py.")
    node.desk.press("Enter")
    node.desk.until("Queued: ", "the branch is queued")


def _hand_over(node: Node) -> None:
    node.open("train")
    node.desk.press("c")
    node.desk.until("you since", "it is the person's own")
    node.desk.press("c")
    node.desk.until("esc cancel", "it asks to whom, and for a note")
    node.desk.type("Its job failed: look at the log first.")
    node.desk.press("BTab")
    node.desk.type("ben")
    node.desk.press("Enter")
    node.desk.until("ben by you|to ben", "it is handed to him")


def _activate(node: Node) -> None:
    node.desk.press("T")
    node.desk.until(r"policy@2", "policies are listed")
    node.desk.press("Enter")
    node.desk.until("Activate policy@2", "it asks")
    node.desk.press("Enter")
    node.desk.until(r"policy@2 .*(active|embedded)", "new rollouts sample with it")


TASKS: dict[str, Callable[[Node], None]] = {
    "find the drifting one and why": _find_the_drifting_one,
    "word to heard": _say_and_be_heard,
    "last change of a file": _last_change_of_a_file,
    "output where a job failed": _where_a_job_failed,
    "Error over all rollouts": _error_over_all,
    "mask steps 7 to 9 with a reason": _mask_a_range,
    "branch": _branch,
    "hand over": _hand_over,
    "activate a policy": _activate,
}


@contextmanager
def node_of(folder: Path, size: tuple[int, int]) -> Iterator[Node]:
    """Daemon, rollouts at their sleep, a policy to activate, sshd, and the console at home."""
    with ExitStack() as later:
        station = Station(folder)
        station.home.mkdir(parents=True)
        (station.home / "houston.toml").write_text(
            '[engines.embedded]\nkind = "embedded"\nmax_adapters = 2\n[console]\nname = "ada"\n'
        )
        later.callback(station.clear)
        station.start()
        rollouts = {}
        for name, script in SCRIPTS.items():
            task = station.task(name, files=FILES, sandbox="none")
            (rollouts[name],) = station.rollout(task, station.script(script, name))
        adapter = make_adapter(folder / "adapter", 1)
        station.json("policy", "import", str(adapter), "--base", str(model_path()))
        for name, script in SCRIPTS.items():
            steps = next(at for at, step in enumerate(script) if step["calls"] == [SLEEP])
            station.until(lambda r=rollouts[name], n=steps: station.closed(r) >= n, 120, name)
        sshd = Sshd(folder / "sshd")
        later.callback(sshd.close)
        sshd.start()
        desk = Desk(folder, sshd, station, size)
        later.callback(desk.close)
        desk.until("Who needs me|why it needs", "home is open")
        yield Node(desk, rollouts, station)


def played(node: Node, task: Callable[[Node], None]) -> dict[str, Any]:
    """Keys and seconds of one task, from home."""
    for key in ("Escape", "0", "Escape"):  # apart: in one breath they would be alt+0
        node.desk.press(key)
        time.sleep(1)
    node.desk.until("Who needs me|why it needs", "home")
    before, began = node.desk.pressed, time.monotonic()
    task(node)
    seconds = round(time.monotonic() - began, 2)
    return {"keys": node.desk.pressed - before, "seconds": seconds}


def main() -> int:
    """Play them at each size, and write what came out; 1 where one could not be done."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", nargs="+", default=["80x24", "120x35"])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    asked = parser.parse_args()
    kept = json.loads(RESULT.read_text())["tasks"] if RESULT.is_file() else {}
    results: dict[str, dict[str, Any]] = {name: kept.get(name, {}) for name in TASKS}
    failed = 0
    with tempfile.TemporaryDirectory(prefix="houston-") as base:
        told = machine(Path(base))
        for size in asked.sizes:
            columns, lines = map(int, size.split("x"))
            with node_of(Path(base) / size, (columns, lines)) as node:
                for name in asked.tasks:
                    try:
                        results[name][size] = played(node, TASKS[name])
                    except AssertionError as problem:
                        failed += 1
                        results[name][size] = {"failed": str(problem).partition(" in\n")[0]}
                    print(f"{size:<8} {name:<34} {results[name][size]}", flush=True)
    told["versions"] = {**told["versions"], "textual": version("textual")}
    RESULT.write_text(json.dumps({**told, "tasks": results}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
