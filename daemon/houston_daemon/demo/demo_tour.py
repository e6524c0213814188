"""The demo: the commands that a newcomer would type, typed for them, with what they answer.

Everything goes through `houston` in processes of its own, so that what is shown is what works. Also
where the packaged task, the script that solves it and the recorded sample lie.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from houston_shared import command_output
from houston_shared.errors import HoustonError
from houston_shared.records import ENDED_STATES

DEMO_FOLDER = Path(__file__).parent
DEMO_TASK = DEMO_FOLDER / "tasks" / "count-words" / "task.toml"
DEMO_SOLUTION = DEMO_FOLDER / "solution.jsonl"
DEMO_RECORDING = DEMO_FOLDER / "samples" / "count-words.jsonl"


TOUR_GUIDANCE = "Read README.md before you do anything else."
MAX_STEP_SECONDS = 300
"""Longest wait for one step of the embedded model on a slow machine."""


class DemoTour:
    """One run of the demo on one home."""

    def __init__(
        self, home: Path, environment: dict[str, str] | None = None, model: bool = True
    ) -> None:
        """model: whether the embedded one can play beside script and recording."""
        self.home = home
        self._model = model
        self._environment = {**os.environ, **(environment or {}), "HOUSTON_HOME": str(home)}

    def start(self) -> list[str]:
        """Start the daemon, the rollouts and the recorded sample; their ids, the model's first."""
        self._say("daemon", "start")
        engines = [f"script:{DEMO_SOLUTION}", f"recorded:{DEMO_RECORDING}"]
        engines = ["embedded"] * self._model + engines
        return [self._rollout(engine) for engine in engines]

    def console(self) -> None:
        """Open the console on this terminal, until the person leaves it."""
        subprocess.run(self._command("console"), env=self._environment, check=True)

    def headless(self) -> None:
        """The same without a screen: one guidance from another process, heard by an agent.

        It is the model, or without one the script, which hears it alike and does not heed it.
        """
        rollouts = self.start()
        agent, script = rollouts[0], rollouts[-2]
        self._until(lambda: self._steps(agent), "the agent's first step")
        guidance = self._json("guide", agent, TOUR_GUIDANCE)[0]
        command_output.print_line(f"  said to {agent}: {guidance['text']!r} ({guidance['state']})")
        heard_step = self._until(lambda: self._heard(agent), "the agent to hear it")
        step = self._steps(agent)[heard_step - 1]
        command_output.print_line(f"  heard at step {heard_step}; the observation ends with:")
        command_output.print_line(f"    {step['observation'].rpartition(chr(10))[2]}")
        next_step = self._until(
            lambda: self._steps(agent)[heard_step:], "what the agent does next"
        )[0]
        calls = ", ".join(f"{c['name']}({json.dumps(c['arguments'])})" for c in next_step["calls"])
        command_output.print_line(f"  step {next_step['step']} then called {calls or 'nothing'}")
        self._until(lambda: self._show(script)["state"] == "finished", "the script to finish")
        if self._model:
            self._end(agent)
        for rollout in rollouts:
            self._until(partial(self._ended, rollout), f"{rollout} to end")
            record = self._show(rollout)
            command_output.print_line(
                f"  {rollout}: {record['state']}, {record['steps']} steps,"
                f" best score {record['best_score']}"
            )
        self._check(agent, heard_step)

    def stop(self) -> None:
        """Stop the daemon."""
        self._say("daemon", "stop")

    def _check(self, rollout: str, heard_step: int) -> None:
        """The guidance stands in exactly one observation, once."""
        counts = {s["step"]: s["observation"].count(TOUR_GUIDANCE) for s in self._steps(rollout)}
        wrong_counts = {step: n for step, n in counts.items() if n != (step == heard_step)}
        if wrong_counts:
            raise HoustonError(f"The guidance shows where it should not: {wrong_counts}.")

    def _rollout(self, engine: str) -> str:
        words = ["rollout", "start", str(DEMO_TASK), "--engine", engine]
        (row,) = self._json(*words)
        command_output.print_line(
            f"$ houston {' '.join(words)}\n  {row['rollout']} is {row['state']}"
        )
        return str(row["rollout"])

    def _end(self, rollout: str) -> None:
        """Cancel a rollout, unless it ends by itself at that moment."""
        try:
            self._run(["rollout", "cancel", rollout])
        except HoustonError:
            if not self._ended(rollout):
                raise

    def _ended(self, rollout: str) -> bool:
        return self._show(rollout)["state"] in ENDED_STATES

    def _steps(self, rollout: str) -> list[Any]:
        return self._json("steps", rollout)

    def _show(self, rollout: str) -> Any:
        return self._json("rollout", "show", rollout)[0]

    def _heard(self, rollout: str) -> int:
        guidance = self._json("guidance", rollout)[0]
        return int(guidance["step"] or 0)

    def _say(self, *words: str) -> None:
        command_output.print_line(f"$ houston {' '.join(words)}")
        for line in self._run(words).splitlines():
            command_output.print_line(f"  {line}")

    def _json(self, *words: str) -> list[Any]:
        return [json.loads(line) for line in self._run([*words, "--json"]).splitlines()]

    def _run(self, words: Sequence[str]) -> str:
        process = subprocess.run(
            self._command(*words),
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if process.returncode:
            raise HoustonError(
                f"houston {' '.join(words)} failed: {process.stderr.strip()}",
                "The demo stopped there.",
                f"houston --home {self.home} daemon logs",
            )
        return process.stdout

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "houston_shared.command", *words]

    def _until(self, look: Callable[[], Any], waiting_for: str) -> Any:
        end = time.monotonic() + MAX_STEP_SECONDS
        while time.monotonic() < end:
            if value := look():
                return value
            time.sleep(0.3)
        raise HoustonError(
            f"Waited {MAX_STEP_SECONDS} s in vain for {waiting_for}.",
            "The demo stopped there.",
            f"houston --home {self.home} daemon logs",
        )
