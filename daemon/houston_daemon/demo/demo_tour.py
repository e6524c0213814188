"""The demo: the commands that a newcomer would type, run for them, with their output.

Every command runs `houston` in a separate process, so the demo shows what works. Also has the paths
of the packaged task, the script that solves it and the recorded sample.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from houston_daemon.engines.local_model import INSTALL_LOCAL_HINT
from houston_shared import command_output
from houston_shared.errors import HoustonError
from houston_shared.records import ENDED_STATES

DEMO_FOLDER = Path(__file__).parent
LIVE_TASK = DEMO_FOLDER / "tasks" / "errands" / "task.toml"
LIVE_ADAPTER = DEMO_FOLDER / "adapter"
"""LoRA weights of an agent that does what it is told, from release/adapter_packing.py; where none
are packed, the model plays as it comes, hears and seldom obeys."""
LIVE_FAMILY = LIVE_ENGINE = "errands"
"""Family of the adapter's policy, and name of the engine that samples with it."""
LIVE_ENGINE_TABLE = '{ kind = "embedded", dialect = "chatml-calls" }'
"""Of `[engines.errands]`, in TOML."""
GREETING_VARIABLE = "HOUSTON__CONSOLE__GREETING"
DEMO_TASK = DEMO_FOLDER / "tasks" / "count-words" / "task.toml"
DEMO_SOLUTION = DEMO_FOLDER / "solution.jsonl"
DEMO_RECORDING = DEMO_FOLDER / "samples" / "count-words.jsonl"


MAX_STEP_SECONDS = 300
"""Longest wait for one step of the embedded model on a slow machine."""


class TourOrder(NamedTuple):
    """What the tour says, and the call that does it."""

    text: str
    tool: str
    arguments: dict[str, str]


TOUR_ORDERS = (
    TourOrder("Read README.md.", "open_file", {"path": "README.md"}),
    TourOrder(
        'No, write "hello" to hi.txt.', "create_file", {"filename": "hi.txt", "content": "hello"}
    ),
)


class DemoRollouts(NamedTuple):
    """Ids of what the demo started."""

    script: str
    recording: str
    live: str
    """Where people are heard: the model's; without a model, the script's, which hears and goes
    on."""


class DemoTour:
    """One run of the demo on one home."""

    def __init__(
        self, home: Path, environment: dict[str, str] | None = None, model: bool = True
    ) -> None:
        """model: whether the embedded one can play beside script and recording."""
        self.home = home
        self._model = model
        self._can_follow_orders = model and LIVE_ADAPTER.is_dir()
        self._environment = {**os.environ, **(environment or {}), "HOUSTON_HOME": str(home)}

    def start(self) -> DemoRollouts:
        """Start the daemon, the recorded sample, the script, and the agent that obeys."""
        self._run_and_print("daemon", "start")
        script = self._rollout(DEMO_TASK, f"script:{DEMO_SOLUTION}")
        recording = self._rollout(DEMO_TASK, f"recorded:{DEMO_RECORDING}")
        if not self._model:
            return DemoRollouts(script, recording, script)
        if not self._can_follow_orders:
            return DemoRollouts(script, recording, self._rollout(DEMO_TASK, "embedded"))
        words = ["policy", "import", str(LIVE_ADAPTER), "--name", LIVE_FAMILY]
        policy = str(self._json(*words)[0]["policy"])
        command_output.print_line(f"$ houston {' '.join(words)}\n  {policy}")
        self._run_and_print("policy", "activate", policy, "--engine", LIVE_ENGINE)
        return DemoRollouts(script, recording, self._rollout(LIVE_TASK, LIVE_ENGINE))

    def console(self) -> None:
        """Open the console at the recording's guided step, until the person leaves it."""
        rollouts = self.start()
        step = self._poll_until(
            lambda: self._first_delivery_step(rollouts.recording), "the recorded guidance"
        )
        self._poll_until(
            lambda: self._steps(rollouts.recording)[step:], "the recorded step after it"
        )
        lines = json.dumps(
            tour_lines(rollouts, step, self._model, self._can_follow_orders), ensure_ascii=False
        )
        subprocess.run(
            self._command("console", f"{rollouts.recording}@{step}"),
            env={**self._environment, GREETING_VARIABLE: lines},
            check=True,
        )
        self._end_live(rollouts)

    def headless(self) -> None:
        """The same without a screen: guidance from another process, heard and followed by an agent.

        Raises HoustonError where the agent did something else than it was told. Without the adapter
        or a model, one order is sent, and only that it is heard is checked.
        """
        rollouts = self.start()
        try:
            self._poll_until(lambda: self._steps(rollouts.live), "the agent's first step")
            if self._can_follow_orders:
                for order in TOUR_ORDERS:
                    self._check_order_followed(rollouts.live, order)
                command_output.print_line(
                    "  The agent followed each message at the very next step."
                )
            else:
                self._send_and_await_delivery(rollouts.live, TOUR_ORDERS[0].text)
            self._poll_until(lambda: self._ended(rollouts.script), "the script to finish")
        finally:
            self._end_live(rollouts)
        for rollout in dict.fromkeys(rollouts):
            self._poll_until(partial(self._ended, rollout), f"{rollout} to end")
            record = self._show(rollout)
            best = record["best_score"]
            score = "" if best is None else f", best score {best}"
            command_output.print_line(
                f"  {rollout}: {record['state']}, {record['steps']} steps{score}"
            )

    def _check_order_followed(self, rollout: str, order: TourOrder) -> None:
        """Give an order, and see that the very next step does it. Raises HoustonError."""
        heard_step = self._send_and_await_delivery(rollout, order.text)
        step = self._poll_until(
            lambda: self._steps(rollout)[heard_step:], "what the agent does next"
        )[0]
        calls = ", ".join(f"{c['name']}({json.dumps(c['arguments'])})" for c in step["calls"])
        if not matches_order(order, step["calls"]):
            raise HoustonError(
                f"The agent was told {order.text!r} and then called {calls or 'nothing'}.",
                "What was said was not done.",
                f"houston --home {self.home} steps {rollout}",
            )
        queued = self._json("guidance", rollout)[-1]["queued_at"]
        seconds = (datetime.fromisoformat(step["at"]) - datetime.fromisoformat(queued)).seconds
        command_output.print_line(
            f"  step {step['step']} did it: {calls}, {seconds} s after the message"
        )

    def _send_and_await_delivery(self, rollout: str, text: str) -> int:
        """Say something; the step at which it was heard, once and nowhere else."""
        guidance = self._json("guide", rollout, text)[0]
        command_output.print_line(
            f"  said to {rollout}: {guidance['text']!r} ({guidance['state']})"
        )
        heard_step = int(
            self._poll_until(
                lambda: self._json("guidance", rollout)[-1]["step"], "the agent to hear it"
            )
        )
        step = self._steps(rollout)[heard_step - 1]
        command_output.print_line(f"  heard at step {heard_step}; the observation ends with:")
        command_output.print_line(f"    {step['observation'].rpartition(chr(10))[2]}")
        counts = {s["step"]: s["observation"].count(text) for s in self._steps(rollout)}
        if wrong_counts := {at: n for at, n in counts.items() if n != (at == heard_step)}:
            raise HoustonError(f"The guidance shows where it should not: {wrong_counts}.")
        return heard_step

    def _end_live(self, rollouts: DemoRollouts) -> None:
        """Cancel the agent that waits for words, which never ends by itself."""
        if self._model and not self._ended(rollouts.live):
            try:
                self._run(["rollout", "cancel", rollouts.live])
            except HoustonError:
                if not self._ended(rollouts.live):
                    raise

    def stop(self) -> None:
        """Stop the daemon."""
        self._run_and_print("daemon", "stop")

    def _rollout(self, task: Path, engine: str) -> str:
        words = ["rollout", "start", str(task), "--engine", engine]
        (row,) = self._json(*words)
        command_output.print_line(
            f"$ houston {' '.join(words)}\n  {row['rollout']} is {row['state']}"
        )
        return str(row["rollout"])

    def _ended(self, rollout: str) -> bool:
        return self._show(rollout)["state"] in ENDED_STATES

    def _steps(self, rollout: str) -> list[Any]:
        return self._json("steps", rollout)

    def _show(self, rollout: str) -> Any:
        return self._json("rollout", "show", rollout)[0]

    def _first_delivery_step(self, rollout: str) -> int:
        steps = [guidance["step"] for guidance in self._json("guidance", rollout)]
        return int(next(filter(None, steps), 0))

    def _run_and_print(self, *words: str) -> None:
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

    def _poll_until(self, look: Callable[[], Any], waiting_for: str) -> Any:
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


def matches_order(order: TourOrder, calls: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the first call is the order's, with its arguments.

    calls: of one step, as `houston steps --json` prints them.
    """
    if not calls or calls[0]["name"] != order.tool:
        return False
    arguments = calls[0]["arguments"]
    return all(arguments.get(key) == value for key, value in order.arguments.items())


def tour_lines(rollouts: DemoRollouts, step: int, model: bool, obeys: bool) -> list[str]:
    """Three lines for the head of the console, for a terminal of 80 columns.

    step: of the recording, where a person spoke. model: whether a model plays. obeys: whether it
    follows what people say.
    """
    intro = f"1  A recording. At step {step} ada spoke; the agent heard it and did it (down: j)."
    if not model:
        return [intro, f"2  No model runs here: {INSTALL_LOCAL_HINT}", "3  ?  all keys   q  leave"]
    if not obeys:
        return [
            intro,
            f"2  Press 1, go to {rollouts.live}, enter: a model, too small to obey often.",
            "3  Press i, type: Read README.md   enter. It hears you at the end of its step.",
        ]
    return [
        intro,
        f"2  Press 1, go to {rollouts.live}, enter: a live agent waits for your message.",
        "3  Press i, type: read notes.txt   enter. Or: list letters / search for tea",
    ]
