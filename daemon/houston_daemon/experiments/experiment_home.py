"""An experiment's own home, driven through the `houston` command as a person would.

It starts and stops the daemon, starts rollouts, queues guidance, masks, waits, and reads steps,
guidance and scores. It knows folders, commands and states of rollouts, but not their purpose.
"""

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from houston_daemon.service import rollout_end_wait
from houston_shared.control_client import send_with_retry
from houston_shared.control_messages import GiveVerdicts, JudgedSteps, new_guidance_id
from houston_shared.errors import HoustonError
from houston_shared.home import Home
from houston_shared.records import ENDED_STATES
from houston_shared.store import annotation_queries, rollout_queries, step_queries
from houston_shared.store.journal_events import ReadPlan
from houston_shared.store.store_reader import Reader
from houston_shared.wire import Guide

_CONFIG_TEMPLATE = (
    "[backup]\nevery_hours = 0\n\n[daemon]\nmax_rollouts = {at_once}\nlive_rules = false\n\n"
    "[hosts]\ngpus = {gpus}\n"
)
"""Rules are run by the stage that judges, so that an experiment counts what it asked for."""
RESUME_ADVICE = "Run the same command again with --resume; finished work is not repeated."
_MAX_ERROR_CHARACTERS = 600
"""Characters of a failing command's words that are kept."""


class StageInvalid(HoustonError):
    """What some rollouts of a stage gave is no measurement: the stage begins anew next time."""

    def __init__(self, count: int, total: int, first: str, reason: str) -> None:
        super().__init__(
            f"{count} of {total} rollouts do not count, {first} because: {reason}",
            "The stage does not count.",
            "Once that is fixed, the same command with --resume starts the stage again.",
        )


class ExperimentHome:
    """One home below `folder`, with its daemon and its part of this host.

    engines: tables of `[engines.NAME]` in its houston.toml. at_once: rollouts that run together.
    gpus: of this machine, for its engines and trainers. advice: what to do next when a command of
    it failed.
    """

    def __init__(
        self,
        folder: Path,
        engines: Mapping[str, Mapping[str, Any]],
        at_once: int = 8,
        gpus: int = 0,
        advice: str = RESUME_ADVICE,
    ) -> None:
        self.folder = folder
        self._advice = advice
        self._head = _CONFIG_TEMPLATE.format(at_once=at_once, gpus=gpus)
        self.home = Home((folder / "home").absolute())
        self._engines = engines
        self._environment = {
            **os.environ,
            "HOUSTON_HOME": str(self.home.path),
            "HOUSTON_CONFIG": str(self.home.path / "houston.toml"),
            "HOUSTON__HOSTS__ROOT": str((folder / "host").absolute()),
        }

    def start(self) -> None:
        """Write the configuration and start the daemon; one that runs goes on."""
        self.write_configuration()
        self.run("daemon", "start")

    def write_configuration(self) -> None:
        """Write its houston.toml, which every command needs; an equal one is left."""
        self.home.path.mkdir(parents=True, exist_ok=True)
        text = self._head + "".join(map(_toml_table, self._engines.items()))
        file = self.home.path / "houston.toml"
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")

    def stop(self) -> None:
        """Stop the daemon and its engines."""
        self.run("daemon", "stop", check=False)

    def run(self, *words: str, check: bool = True, seconds: float = 900.0) -> str:
        """What `houston words…` prints. Raises HoustonError with its words when it fails, or takes
        longer than `seconds`."""
        try:
            process = subprocess.run(
                [sys.executable, "-m", "houston_shared.command", *words],
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise HoustonError(
                f"houston {' '.join(words)} did not end within {seconds:g} s.",
                "It ends here.",
                self._advice,
            ) from None
        if check and process.returncode:
            raise HoustonError(
                f"houston {' '.join(words)} ended with {process.returncode}:"
                f" {process.stderr.strip()[-_MAX_ERROR_CHARACTERS:]}",
                "It ends here.",
                self._advice,
            )
        return process.stdout

    def read(self, plan: ReadPlan[Any]) -> Any:
        """What a query returns."""
        with Reader(self.home) as reader:
            return reader.run(plan)

    def begin_rollouts(self, task: Path, engine: str, seed: int, count: int = 1) -> list[str]:
        """Start rollouts with the seeds `seed`, `seed + 1`, …; their ids in that order."""
        words = ["rollout", "start", str(task), "--engine", engine, "--seed", str(seed)]
        output = self.run(*words, "-n", str(count), "--json")
        return [json.loads(line)["rollout"] for line in output.splitlines()]

    def queue_guidance(self, rollout: str, text: str, author: str) -> str:
        """Queue guidance; its id."""
        message = Guide(id=new_guidance_id(), rollout=rollout, text=text, claimed=author)
        send_with_retry(
            self.home, message, "It may have been queued.", f"houston guidance {rollout}"
        )
        return message.id

    def mask_steps(
        self, rollout: str, ranges: Sequence[tuple[int, int]], reason: str, author: str
    ) -> None:
        """Give the verdict `mask` on ranges of steps, as `houston verdict` does."""
        steps = [JudgedSteps(first=a, last=b, verdict="mask", reason=reason) for a, b in ranges]
        message = GiveVerdicts(
            request=uuid.uuid4().hex,
            rollout=rollout,
            steps=tuple(steps),
            seen=self.read(rollout_queries.newest_seq(rollout)),
            claimed=author,
        )
        if steps:
            look = f"houston verdict {rollout}"
            send_with_retry(self.home, message, "The verdicts may have been kept.", look)

    def wait(
        self, rollouts: Iterable[str], seconds: float, look: Callable[[], None] | None = None
    ) -> list[rollout_queries.RolloutRow]:
        """Wait until all of them have ended; `look` is called again and again meanwhile.

        Raises HoustonError when they have not after `seconds`, or when one of them is paused until
        a person ends it, and StageInvalid when one failed: that is never the agent's doing.
        """
        end = time.monotonic() + seconds

        def watch(rows: rollout_end_wait.Rows) -> None:
            waiting = rollout_end_wait.waiting_for_a_person(rows.values())
            if waiting or time.monotonic() > end:
                reason = waiting[0].reason if waiting else f"not over after {seconds:.0f} s"
                name = (waiting or rollout_end_wait.unfinished(rows.values()))[0].id
                raise HoustonError(
                    f"Rollout {name} does not end: {reason}.",
                    "The experiment stops here.",
                    f"HOUSTON_HOME={self.home.path} houston rollout show {name}",
                )
            if look:
                look()

        rows = rollout_end_wait.wait_until_ended(self.home, sorted(set(rollouts)), watch)
        ended = sorted(rows.values(), key=lambda row: row.id)
        if spoiled := [row for row in ended if row.state != "finished"]:
            raise StageInvalid(len(spoiled), len(ended), spoiled[0].id, spoiled[0].reason)
        return ended

    def ended(self, rollout: str) -> bool:
        """Whether nothing of it runs any more."""
        return self.read(rollout_queries.find_rollout(rollout)).state in ENDED_STATES

    def steps(self, rollout: str) -> list[Any]:
        """Its closed steps, in order."""
        records = self.read(step_queries.read_steps(rollout))
        return [record for record in records if record.observation is not None]

    def guidance(self, rollout: str) -> list[Any]:
        """What was said to it."""
        return list(self.read(annotation_queries.list_guidance(rollout)))

    def scores(self, rollouts: Sequence[str]) -> dict[str, list[rollout_queries.ScorePoint]]:
        """By rollout its scores over active time."""
        return dict(self.read(rollout_queries.score_history(rollouts, 10_000)))


def _toml_table(item: tuple[str, Mapping[str, Any]]) -> str:
    """`[engines.NAME]`; strings, numbers, and tables of them."""
    name, keys = item
    plain = [f"{key} = {json.dumps(value)}" for key, value in keys.items() if not _is_table(value)]
    tables = [
        f"[engines.{name}.{key}]\n" + "\n".join(f"{k} = {json.dumps(v)}" for k, v in value.items())
        for key, value in keys.items()
        if _is_table(value)
    ]
    return "\n".join(["", f"[engines.{name}]", *plain, *tables, ""])


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)
