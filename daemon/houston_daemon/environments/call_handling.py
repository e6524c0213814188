"""What environments share around a call: failures become observations, waits can be interrupted.

Here a typed observation passes the observation boundary and becomes a stored result.
"""

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from houston_daemon.environments import observation_boundary
from houston_daemon.environments.environment_protocol import (
    BudgetStatus,
    Closing,
    Stop,
    ToolSpec,
    Undo,
)
from houston_daemon.environments.typed_observation import Failed, Finished, Observation, render
from houston_daemon.hosts.host_protocol import FileDiff, RolloutHost
from houston_daemon.hosts.resource_limits import LimitHit
from houston_shared.errors import HoustonError
from houston_shared.records import EVALUATION_CALL, CallIntent, FileChange, ToolCall, ToolResult
from houston_shared.safe_text import safe_line
from houston_shared.secret_redaction import redact
from houston_shared.times_and_counts import join_first


def named_failure(call: ToolCall, problem: HoustonError) -> str:
    """The text for an error that was described where it arose."""
    return f"{call.name} failed: {problem.cause} {problem.effect}".rstrip()


def internal_failure(call: ToolCall, log: logging.Logger) -> str:
    """The text for an internal error; called where it was caught, so that the log gets the
    traceback."""
    log.exception("%s", call.name)
    return f"{call.name} failed inside Houston; the log of the rollout says why."


def early_finish_refusal(budget_status: BudgetStatus, minimum_steps: int) -> str:
    """Why `finish` is refused in this step; empty from step `minimum_steps` on."""
    if budget_status.step >= minimum_steps:
        return ""
    return f"finish is refused before step {minimum_steps}; this is step {budget_status.step}."


def finish(budget_status: BudgetStatus, minimum_steps: int, advice: str = "") -> Finished:
    """The end of the task; refused before step `minimum_steps`, with advice what to do instead."""
    if error := early_finish_refusal(budget_status, minimum_steps):
        return Finished(success=False, error=f"{error} {advice}".rstrip(), finished=False)
    return Finished(finished=True)


T = TypeVar("T")
_LOOK = 0.2
_WHY = {"interrupt": "a person interrupted it", "budget": "the time is spent"}


class CallInterrupted(Exception):
    """The work was cancelled; the text is for the agent."""


async def cancel_on_stop(work: Coroutine[Any, Any, T], stop: Stop, *, wake: bool = False) -> T:
    """The result of `work`, which is cancelled when `stop` says interrupt or budget.

    A wake does not cancel it, unless `wake` is set, for work that may take long. Raises
    CallInterrupted.
    """
    task = asyncio.create_task(work)
    watch = asyncio.create_task(_wait_for_stop(stop, wake))
    try:
        await asyncio.wait((task, watch), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise CallInterrupted(f"It was broken off: {_WHY.get(stop.reason, 'a person spoke')}.")
    finally:
        watch.cancel()
        task.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _wait_for_stop(stop: Stop, wake: bool) -> None:
    await stop.event.wait()
    while stop.reason == "wake" and not wake:  # noqa: ASYNC110 - the event stays set after a wake
        await asyncio.sleep(_LOOK)


def result(
    call: ToolCall,
    observation: Observation,
    limit: int,
    seconds: float,
    limit_hits: Sequence[LimitHit] = (),
) -> ToolResult:
    """The result of `call`, its text within `limit` characters.

    limit_hits: limits that the rollout's processes hit meanwhile; the head describes them.
    Only the body is cut; the head, which says what happened, always stays whole.
    """
    text = render(observation)
    fields = observation.fields()
    if limit_hits:
        text = replace(text, head="\n".join([text.head, *(f"[{hit.words}]" for hit in limit_hits)]))
        fields["limits"] = [hit.kind for hit in limit_hits]
    bounded = observation_boundary.bound_text(text.body, limit, text.how, text.head)
    return ToolResult(
        call=call,
        kind=observation.kind,
        success=observation.success,
        text=bounded.text,
        fields=fields,
        seconds=seconds,
        forged_tags=bounded.forged_tags,
        cut=bool(bounded.cut),
    )


class ToolEnvironment:
    """What environments without terminals have in common. See `environment_protocol.Environment`.

    Each one opens its world and implements what is wrong with a call (`_check`), what a call does
    (`_do`) and the text of errors that it knows (`_error_text`). Where `undo` is `restore` it also
    saves and restores its world.
    """

    undo: Undo = "none"

    def __init__(self, characters: int, *, scores: bool, host: RolloutHost | None = None) -> None:
        """scores: whether the loop may ask for the score. host: where calls run processes."""
        self.tools: Sequence[ToolSpec] = ()
        self.brief = ""
        self._characters = characters
        self._scores = scores
        self._host = host

    def check(self, call: ToolCall) -> ToolCall:
        """The call with its arguments validated (defaults filled in), or with `error` set."""
        if self._scores and call.name == EVALUATION_CALL and not call.arguments and not call.error:
            return call
        return self._check(call)

    def deadline(self, call: ToolCall) -> float:
        """Nothing here sleeps."""
        return 0.0

    async def act(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> ToolResult:
        """Run one call; what goes wrong is an observation."""
        start_time = time.monotonic()
        call = self.check(call)
        return await self._result(call, await self._observe(call, budget_status, stop), start_time)

    async def recover(
        self, intent: CallIntent, budget_status: BudgetStatus, stop: Stop
    ) -> ToolResult:
        """Like `act`; a call that was done and stored is not done again."""
        return await self.act(intent.call, budget_status, stop)

    async def save_state(self, name: str) -> None:
        """There is no state that a call could change."""

    async def restore_state(self, name: str) -> None:
        """There is no state that a call could have changed."""

    async def close_step(self, step: int) -> Closing:
        """Nothing changes except what the environment keeps on disk."""
        return Closing()

    async def close(self, ended: bool) -> None:
        """Let go of the host, where there is one."""
        if self._host is not None:
            if ended:
                await self._host.destroy_terminals()
            await self._host.close()

    def _check(self, call: ToolCall) -> ToolCall:
        raise NotImplementedError

    async def _do(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> Observation:
        raise NotImplementedError

    def _error_text(self, call: ToolCall, problem: Exception) -> str:
        """What the agent is told of an error; empty for one that is not known here."""
        raise NotImplementedError

    async def _observe(
        self, call: ToolCall, budget_status: BudgetStatus, stop: Stop
    ) -> Observation:
        if call.error:
            return Failed(error=call.error)
        try:
            return await self._do(call, budget_status, stop)
        except Exception as problem:  # noqa: BLE001 an exception in a tool is an observation
            log = logging.getLogger(type(self).__module__)
            return Failed(error=self._error_text(call, problem) or internal_failure(call, log))

    async def _result(
        self, call: ToolCall, observation: Observation, start_time: float
    ) -> ToolResult:
        """The result, made in a thread. start_time: monotonic time at which the call began."""
        limit_hits = await self._host.take_limit_hits() if self._host is not None else ()
        seconds = round(time.monotonic() - start_time, 6)
        return await asyncio.to_thread(
            result, call, observation, self._characters, seconds, limit_hits
        )


def recorded_change(file: FileDiff) -> FileChange:
    """A change of a file as the journal keeps it, without secrets."""
    return FileChange(
        path=redact(file.path),
        kind=file.kind,
        added=file.added,
        removed=file.removed,
        diff=redact(file.diff),
        note=redact(file.note),
    )


MAX_NAMED_FILES = 20
"""Paths that are named; the others are counted."""
_LONGEST = 120


def lost_files_text(paths: Sequence[str]) -> tuple[str, ...]:
    """The line about files that could not be brought back; nothing where there are none."""
    if not paths:
        return ()
    names = join_first([str(safe_line(path))[:_LONGEST] for path in paths], MAX_NAMED_FILES)
    return (f"[these files could not be brought back: {names}]",)
