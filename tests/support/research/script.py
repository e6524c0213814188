"""Collects the steps of the scripted agent; knows how an experiment is run, read and noted.

Where there is a second machine the experiments run there, and files they need are written on both.
"""

import json
from typing import Any

from tests.support.research.reading import Call, call, reading
from tests.support.research.runs import Outcome, Runs, source

CONFIG = {
    "shingle": 2, "near": 0.9, "page": 2, "markup": 1, "folds": 5, "smooth": 1, "margin": 2,
}  # fmt: skip
TRAIN, LOOK = "train", "look"


class Script:
    """The steps so far; `second` names the other machine of the task, or is empty."""

    def __init__(self, second: str = "") -> None:
        self.steps: list[dict[str, Any]] = []
        self.config: dict[str, float] = dict(CONFIG)
        self.stage = ""
        self.tried: list[tuple[str, Outcome]] = []
        self.best: dict[str, float] = dict(CONFIG)
        self._there = {"host": second} if second else {}
        self._runs = Runs()
        self._reading = reading()
        self._number = 0

    def add(self, thought: str, *calls: Call) -> None:
        """One step."""
        self.steps.append({"thought": thought, "calls": list(calls)})

    def there(self, name: str, **arguments: Any) -> Call:
        """A call on the machine that trains."""
        return call(name, **arguments, **self._there)

    def shell(self, thought: str, command: str, session: str = LOOK, **more: Any) -> None:
        """A command where the training is."""
        self.add(thought, self.there("run_command", command=command, session_id=session, **more))

    def read(self) -> None:
        """Look at the next thing worth reading."""
        thought, look = next(self._reading)
        self.add(thought, look)

    def write(self, thought: str, filename: str, content: str) -> None:
        """Write a file wherever it is needed: one step, a call for each machine."""
        file = {"filename": filename, "content": content}
        calls = [call("create_file", **file)]
        if self._there:
            calls.append(self.there("create_file", **file))
        self.add(thought, *calls)

    def use(self, stage: str, thought: str) -> None:
        """Write the filter of the next stage."""
        self.stage = stage
        self.tried = []
        self.write(thought, "filter.py", source(stage))

    def experiment(self, why: str, **change: float) -> Outcome:
        """Change the configuration, train in the background, read meanwhile, compare, note."""
        self._number += 1
        config = {**self.best, **change}
        outcome = self._runs.outcome(self.stage, config)
        told = ", ".join(f"{key} {value}" for key, value in change.items()) or "as it stands"
        name = f"e{self._number:02d}-{self.stage or 'all'}"
        self._set(f"Hypothesis: {why} Next run: {told}.", config)
        self.shell(
            "It takes a while, so it runs in the background.",
            f"python3 train.py --name {name}", TRAIN, wait_for_completion=False,
        )  # fmt: skip
        self.read()
        self._progress(self._number)
        wait = (
            f"until grep -qs ^done runs/{name}.log; do sleep 0.1; done; tail -n 3 runs/{name}.log"
        )
        self.shell("I wait for its last line and compare.", wait)
        self._note(name, told, outcome)
        self.tried.append((told, outcome))
        return outcome

    def take(self, **change: float) -> None:
        """What the best configuration is from here on."""
        self.best = {**self.best, **change}

    def _set(self, thought: str, config: dict[str, float]) -> None:
        """Bring config.json to `config`: an edit of the one line, or the whole file."""
        lines, old = _lines(config), _lines(self.config)
        different = [at for at, line in enumerate(lines) if old[at : at + 1] != [line]]
        if len(different) == 1 and len(old) == len(lines) and self._number > 1:
            at = different[0] + 1
            edit = {"path": "config.json", "start": at, "end": at, "content": lines[different[0]]}
            self.add(thought, self.there("edit_file", **edit))
        else:
            self.write(thought, "config.json", "\n".join(lines) + "\n")
        self.config = config

    def _progress(self, number: int) -> None:
        """A look at the running experiment, each time in another way."""
        thought, name, more = (
            ("Is it done?", "check_session_idle", {}),
            ("How far is it?", "get_session_recent_output", {"seconds": 5}),
            ("What does the loss do?", "get_session_output", {"start_lines": 6}),
            ("Alive, or stuck?", "get_session_status", {}),
            ("What runs where?", "list_sessions", None),
        )[number % 5]
        given = more if more is None else {"session_id": TRAIN, **more}
        self.add(thought, call(name) if given is None else self.there(name, **given))

    def _note(self, name: str, told: str, outcome: Outcome) -> None:
        before = max((one.accuracy for _, one in self.tried), default="")
        if not before:
            verdict = "That is the figure to compare with."
        elif outcome.accuracy > before:
            verdict = f"Better than {before}, the best of this stage so far."
        else:
            verdict = f"Not better than {before}."
        line = f"- {name}: {told}: kept {outcome.kept}, dev {outcome.accuracy}"
        self.add(
            f"{name} keeps {outcome.kept} rows, dev accuracy {outcome.accuracy}. {verdict} Noted.",
            call("run_command", command=f"echo '{line}' >> notes.md; tail -n 2 notes.md"),
        )

    def submit(self, thought: str, expected: str) -> None:
        """Make kept.txt where it is scored, check its form, submit."""
        self.write("I fix the best configuration of this stage.", "config.json", _text(self.best))
        self.config = dict(self.best)
        name = f"final-{self.stage}"
        self.add(
            "The run whose rows I submit, in the foreground.",
            call("run_command", command=f"python3 train.py --name {name} | tail -n 2"),
        )
        self.add(
            "The form first: ids only, none twice.",
            call("run_command", command="wc -l < kept.txt; sort kept.txt | uniq -d | wc -l"),
        )
        self.add(thought, call("eval"))
        noted = f"echo '# submitted {name}' >> notes.md; tail -n 1 notes.md"
        self.add(expected, call("run_command", command=noted))


def _lines(config: dict[str, float]) -> list[str]:
    return json.dumps(config, indent=1).splitlines()


def _text(config: dict[str, float]) -> str:
    return "\n".join(_lines(config)) + "\n"
