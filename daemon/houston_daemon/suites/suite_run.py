"""Runs a suite: one rollout for each world and attempt, through the daemon, and waits for the end.

The rollouts are ordinary ones; their results are read from the store. Tasks are stored in
`<home>/suites/tasks/`, results next to them. `suite_results` computes the figures.
"""

import dataclasses
import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from houston_daemon.service import rollout_end_wait, rollout_start_checks
from houston_daemon.suites.suite_catalog import TaskSource
from houston_daemon.suites.suite_results import SuiteAttempt, SuiteRun, SuiteWorld
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import ControlClient, send_with_retry
from houston_shared.control_messages import StartRollouts, Status
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home
from houston_shared.kept_suite_runs import suites_folder as suites_folder
from houston_shared.records import RolloutSpec
from houston_shared.store.journal_events import ReadPlan, RunSql, split_for_in
from houston_shared.store.store_reader import Reader
from houston_shared.task import LoadedTask, Task, load_task
from houston_shared.times_and_counts import iso_time, now_us
from houston_shared.toml_file import convert_toml, parse_toml
from houston_shared.wire import AskStatus

SPECS_PER_MESSAGE = 100
_TELL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class SuiteOrder:
    """What is to be run."""

    tasks: TaskSource
    worlds: int
    """The first so many of them."""
    attempts: int
    engine: str
    policy: str = ""
    """Empty for the one that is active."""
    seed: int = 0
    purify: str = ""
    """As `houston rollout start --purify` takes them; empty for what the tasks say: not at all."""
    agent: str = ""
    """`react` or `flow`; empty for what the tasks say."""
    temperature: float | None = None
    """Of sampling; None for what the tasks say."""


@dataclass(frozen=True, slots=True)
class RolloutOutcome:
    """How a rollout ended."""

    id: str
    state: str
    policy: str
    score: float | None
    steps: int
    failures: int
    no_action: int


def run_suite(
    loaded: LoadedConfiguration, order: SuiteOrder, tell: Callable[[str], None]
) -> SuiteRun:
    """Start every rollout and wait for all of them.

    tell: takes a line for people now and then. Raises HoustonError where a rollout cannot start, or
    waits for a person.
    """
    rollout_start_checks.check_policy(loaded, order.engine, order.policy)
    _check_engine(loaded, order.engine)
    begun, started_at = time.monotonic(), iso_time(now_us())
    by_world: list[list[str]] = []
    names: list[str] = []
    for specs in _spec_batches(loaded, order, tell):
        names += [spec.task.name for spec in specs[:: order.attempts]]
        message = StartRollouts(request=uuid.uuid4().hex, specs=tuple(specs))
        answer = send_with_retry(
            loaded.home, message, "They may have been queued.", "houston rollout list"
        )
        ids = list(answer.rollouts)
        by_world += [ids[at : at + order.attempts] for at in range(0, len(ids), order.attempts)]
    outcomes = _wait(loaded.home, [id for ids in by_world for id in ids], tell)
    return SuiteRun(
        suite=order.tasks.suite,
        version=order.tasks.version,
        split=order.tasks.split,
        engine=order.engine,
        agent=order.agent,
        temperature=order.temperature,
        purify=order.purify,
        policy=next((outcome.policy for outcome in outcomes.values()), order.policy),
        started_at=started_at,
        seconds=round(time.monotonic() - begun, 3),
        worlds=tuple(
            SuiteWorld(index=index, name=name, attempts=tuple(_attempt(outcomes[id]) for id in ids))
            for index, (name, ids) in enumerate(zip(names, by_world, strict=True))
        ),
    )


def _check_engine(loaded: LoadedConfiguration, engine: str) -> None:
    loaded.engine(engine)
    with ControlClient(loaded.home) as client:
        status = client.ask(AskStatus())
    running = status.engines if isinstance(status, Status) else {}
    rollout_start_checks.check_engine(loaded, engine, running)


def _spec_batches(
    loaded: LoadedConfiguration, order: SuiteOrder, tell: Callable[[str], None]
) -> Iterator[list[RolloutSpec]]:
    """Specs of whole worlds, about `SPECS_PER_MESSAGE` at a time."""
    batch: list[RolloutSpec] = []
    folder = suites_folder(loaded.home) / "tasks"
    for index in range(order.worlds):
        task = _apply_order(load_task(order.tasks.write(index, folder)), order)
        if not index:  # they are all of one kind
            rollout_start_checks.check_task_names(task)
            rollout_start_checks.check_machine(task)
            own = loaded.engine(order.engine).parameters.get("temperature")
            drawn_at = task.task.sampling.temperature if own is None else own
            if order.attempts > 1 and drawn_at == 0:
                tell(f"warning: {order.attempts} attempts at temperature 0 are mostly identical")
        batch += rollout_start_checks.build_rollout_specs(
            loaded,
            task,
            order.engine,
            order.attempts,
            order.seed,
            policy=order.policy,
            purify=rollout_start_checks.parse_purify_words(task.task, order.purify),
            without_memory=True,
        )
        if len(batch) >= SPECS_PER_MESSAGE:
            yield batch
            batch = []
    if batch:
        yield batch


def _apply_order(task: LoadedTask, order: SuiteOrder) -> LoadedTask:
    """The task with the agent and the temperature that are asked for."""
    text = task.text
    if order.temperature is not None:
        text, changed = _TEMPERATURE_LINE.subn(f"temperature = {order.temperature:g}", text)
        if changed != 1:
            raise ConfigurationError(f"{task.file} does not set one temperature on its own line.")
    if order.agent:
        if "[agent" in text:
            raise ConfigurationError(f"{task.file} has an agent of its own.", "Nothing was run.")
        text += f'\n[agent]\nkind = "{order.agent}"\n'
    if text == task.text:
        return task
    changed_task = convert_toml(parse_toml(text, str(task.file)), Task, str(task.file))
    return dataclasses.replace(task, task=changed_task, text=text)


_TEMPERATURE_LINE = re.compile(r"^temperature = .*$", re.MULTILINE)


def _wait(
    home: Home, rollouts: Sequence[str], tell: Callable[[str], None]
) -> dict[str, RolloutOutcome]:
    """How each of them ended. Raises HoustonError where one is paused until a person ends it."""
    reported_at = 0.0

    def look(rows: rollout_end_wait.Rows) -> None:
        nonlocal reported_at
        for stuck in rollout_end_wait.waiting_for_a_person(rows.values()):
            raise HoustonError(
                f"Rollout {stuck.id} waits for a person: {stuck.reason}",
                "The suite has no result.",
                f"houston rollout show {stuck.id}",
            )
        if time.monotonic() - reported_at > _TELL_SECONDS:
            unfinished_count = len(rollout_end_wait.unfinished(rows.values()))
            counted = f"{len(rollouts) - unfinished_count} of {len(rollouts)} ended"
            waiting = rollout_end_wait.waiting_sentence(home, rows.values())
            tell("; ".join(filter(None, (counted, waiting))))
            reported_at = time.monotonic()

    rollout_end_wait.wait_until_ended(home, rollouts, look)
    with Reader(home) as reader:
        return reader.run(_read_outcomes(rollouts))


def _read_outcomes(rollouts: Sequence[str]) -> ReadPlan[dict[str, RolloutOutcome]]:
    """By id how rollouts ended, with what the steps of all their attempts count."""
    outcomes: dict[str, RolloutOutcome] = {}
    for marks, part in split_for_in(rollouts):
        rows = yield RunSql(
            "SELECT r.id, r.state, r.policy, r.last_score, r.steps,"
            " coalesce(sum(s.errors), 0), coalesce(sum(s.calls = 0), 0)"
            f" FROM rollouts r LEFT JOIN steps s ON s.rollout = r.id WHERE r.id IN ({marks})"
            " GROUP BY r.id",
            part,
        )
        outcomes |= {row[0]: RolloutOutcome(*row) for row in rows}
    return outcomes


def _attempt(outcome: RolloutOutcome) -> SuiteAttempt:
    return SuiteAttempt(
        rollout=outcome.id,
        state=outcome.state,
        score=outcome.score or 0.0,
        steps=outcome.steps,
        failures=outcome.failures,
        no_action=outcome.no_action,
    )
