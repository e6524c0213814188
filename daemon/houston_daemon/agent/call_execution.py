"""Executing the calls of one step, in order: intent, ack, run, result. No call without a result.

Mistakes of the agent, errors raised by a tool, a person's message and a spent budget all end in a
result. This module knows the environment and control; what a call does is up to the environment.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from houston_daemon.agent.recorder_client import RecorderClient
from houston_daemon.agent.rollout_budgets import RolloutBudgets
from houston_daemon.agent.worker_control import (
    NOT_RUN_TEXT,
    WorkerExit,
    call_stop_reason,
    raise_if_exiting,
)
from houston_daemon.environments.environment_protocol import BudgetStatus, Environment, Stop
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer, TokenEstimator
from houston_daemon.prompts.token_limits import RESERVED_TAIL_TOKENS
from houston_shared import wire
from houston_shared.faults import point
from houston_shared.guidance_tag import disarm
from houston_shared.records import EVALUATION_CALL, CallIntent, ToolCall, ToolResult
from houston_shared.secret_redaction import redact, redact_all

log = logging.getLogger(__name__)
CALL_GRACE_SECONDS = 10.0
"""How long a call may take to return after its waiting was ended for time."""
_RunCall = Callable[[BudgetStatus, Stop], Coroutine[Any, Any, ToolResult]]


class _TimeBudgetSpent(Exception):
    """The time budget is spent and the call did not return."""


class CallExecutor:
    """Runs calls for one rollout."""

    def __init__(
        self,
        line: RecorderClient,
        environment: Environment,
        budgets: RolloutBudgets,
        measure: PromptTokenizer | TokenEstimator,
        observation_tokens: int,
    ) -> None:
        self._line = line
        self._environment = environment
        self._budgets = budgets
        self._measure = measure
        self._observation_room = max(64, observation_tokens - RESERVED_TAIL_TOKENS)

    async def run_calls(
        self,
        step: int,
        calls: Sequence[ToolCall],
        intents: Sequence[CallIntent],
        results: list[ToolResult],
        attempt: int = 1,
        counts: bool = True,
    ) -> None:
        """Run those of `calls` that have no result yet; `results` grows by one for each.

        intents, results: what the journal has already of this attempt at the step. counts: whether
        its scores count; those of a look-ahead do not. Raises WorkerExit.
        """
        if len(intents) > len(results):
            await self._recover(step, intents[-1], len(calls), results, attempt, counts)
        for call in calls[len(results) :]:
            await self.run_call(step, call, len(calls), results, attempt, counts)

    async def take_over(
        self,
        step: int,
        attempt: int,
        source: Sequence[ToolResult],
        intents: int,
        results: list[ToolResult],
    ) -> None:
        """Store the results of a look-ahead's calls as those of the attempt that replaces it;
        nothing is run. intents, results: what the journal has of that attempt. Raises
        WorkerExit."""
        for index, result in enumerate(source):
            if index < len(results):
                continue
            place = {"step": step, "attempt": attempt, "index": index}
            if index >= intents:
                intent = CallIntent(call=result.call)
                await self._line.store(wire.StoreIntent, **place, intent=intent)
            point("worker.takeover.between")
            await self._line.store(wire.StoreResult, **place, result=result)
            self._budgets.scores.count_result(result, self._budgets.clock.seconds)
            results.append(result)

    async def run_call(
        self,
        step: int,
        call: ToolCall,
        call_count: int,
        results: list[ToolResult],
        attempt: int = 1,
        counts: bool = True,
        last: bool = False,
    ) -> None:
        """Run one call and store its result.

        counts: whether its score counts. last: whether the rollout ends with this call in any case;
        then a person's waiting message neither prevents nor interrupts it. Raises WorkerExit.
        """
        environment = self._environment
        call = call if call.error else environment.check(call)
        intent = CallIntent(call=call, deadline=environment.deadline(call))
        index = len(results)
        self._line.activity = call.name[:60]
        point("worker.intent.before")
        ack = await self._line.store(
            wire.StoreIntent, step=step, attempt=attempt, index=index, intent=intent
        )
        point("worker.intent.after")
        await self._line.ensure_lease_valid()
        if ack.act or last:
            result = await self._run_interruptibly(
                step,
                call,
                lambda budget_status, stop: environment.act(call, budget_status, stop),
                last,
            )
        else:
            # A person's word came first: nothing went wrong, so it counts as no error.
            result = ToolResult(call=call, kind="interrupted", success=True, text=NOT_RUN_TEXT)
        point("worker.call.after")
        await self._store_result(step, result, call_count, results, attempt, counts)

    async def _recover(
        self,
        step: int,
        intent: CallIntent,
        call_count: int,
        results: list[ToolResult],
        attempt: int,
        counts: bool,
    ) -> None:
        """The call that was under way when the worker before this one ended."""
        self._line.activity = f"{intent.call.name[:50]}, found again"
        point("worker.recover.before")
        await self._line.ensure_lease_valid()
        environment = self._environment
        result = await self._run_interruptibly(
            step,
            intent.call,
            lambda budget_status, stop: environment.recover(intent, budget_status, stop),
            # The loop's own, after those of the sample; behind `finish` a person still ends it.
            last=len(results) >= call_count and bool(self._budgets.spent_budget(step)),
        )
        point("worker.recover.after")
        await self._store_result(step, result, call_count, results, attempt, counts)

    async def _store_result(
        self,
        step: int,
        result: ToolResult,
        call_count: int,
        results: list[ToolResult],
        attempt: int,
        counts: bool,
    ) -> None:
        text, fields = redact(result.text), redact_all(result.fields)
        if (text, fields) != (result.text, result.fields):
            result = msgspec.structs.replace(result, text=text, fields=fields)
        used = sum(self._measure.count(earlier_result.text) for earlier_result in results)
        share = max(64, (self._observation_room - used) // max(1, call_count - len(results)))
        text = self._measure.cut(result.text, share)
        if text != result.text:
            result = msgspec.structs.replace(result, text=text, cut=True)
        await self._line.store(
            wire.StoreResult, step=step, attempt=attempt, index=len(results), result=result
        )
        point("worker.result.after")
        if counts:
            self._budgets.scores.count_result(result, self._budgets.clock.seconds)
        results.append(result)

    async def _run_interruptibly(
        self, step: int, call: ToolCall, run: _RunCall, last: bool
    ) -> ToolResult:
        """Run a call while listening: a person's word or the time budget ends its waiting."""
        stop = Stop()
        try:
            return await self._wait_for_call(
                call, run(self._budgets.budget_status(step), stop), stop, last
            )
        except WorkerExit:
            raise
        except _TimeBudgetSpent:
            return _loop_result(call, "[the time budget is spent; the call was left as it is]")
        except Exception as problem:  # whatever a tool raises is an observation
            log.exception("%s raised", call.name)
            return _loop_result(
                call, f"Error: {call.name} itself failed: {type(problem).__name__}: {problem}"
            )

    async def _wait_for_call(
        self, call: ToolCall, running: Coroutine[Any, Any, ToolResult], stop: Stop, last: bool
    ) -> ToolResult:
        control, budgets = self._line.control, self._budgets
        timed = call.name != EVALUATION_CALL
        task = asyncio.create_task(running)
        try:
            while not task.done():
                raise_if_exiting(control.current)
                if not last and (reason := call_stop_reason(control.current)):
                    stop.reason = reason
                    stop.event.set()
                seconds_left = budgets.seconds_left
                if timed and seconds_left <= 0 and not stop.event.is_set():
                    stop.reason = "budget"
                    stop.event.set()
                if timed and seconds_left <= -CALL_GRACE_SECONDS:
                    raise _TimeBudgetSpent
                end = seconds_left if seconds_left > 0 else seconds_left + CALL_GRACE_SECONDS
                await control.wait({task}, max(0.01, end) if timed else None)
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task}, timeout=5.0)


def _loop_result(call: ToolCall, text: str) -> ToolResult:
    """A result that the loop itself gives."""
    disarmed = disarm(text)
    return ToolResult(
        call=call, kind="error", success=False, text=disarmed.text, forged_tags=disarmed.found
    )
