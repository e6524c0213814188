"""The flow in the loop: a planner takes one action a step, then a verifier judges; both use memory.

Once the verifier says that the question is answered, and at the last step, the only allowed action
is the answer. If the planner's answer is not an action, it is asked once more; after that the step
does nothing. When a budget ends, the last finding is given as the answer. A person's message after
a verdict cancels it: the planner may act again. This module runs no calls and stores only the
verifier's samples.
"""

from collections.abc import Sequence

from houston_daemon.agent.agent_kind import AfterCalls
from houston_daemon.agent.flow.task_memory import ANSWER_TOOLS, TaskMemory, call_input, one_line
from houston_daemon.agent.flow.verifier import Verifier
from houston_daemon.agent.purification import StepAttempt
from houston_daemon.environments.environment_protocol import ToolSpec
from houston_daemon.prompts.context_ledger import Context
from houston_daemon.prompts.dialect_protocol import AgentAction
from houston_daemon.prompts.planner_dialect import input_argument
from houston_shared import wire
from houston_shared.guidance_tag import disarm
from houston_shared.records import (
    DeliveredGuidance,
    ObservationBody,
    StepRecord,
    ToolCall,
    ToolResult,
    Verification,
)
from houston_shared.task import BudgetSettings

LAST_STEP_NOTE = "[the next step is the last: its only action is to answer]"
FALLBACK_NOTE = "[there was no answer in time: the last finding was answered]"
_REASON_CHARACTERS = 160
_FALLBACK_CHARACTERS = 1_000


class FlowAgent:
    """Planner, verifier and memory of one rollout. See `AgentKind`."""

    max_attempts = 2
    tail_tokens = 160
    replays = True

    def __init__(
        self,
        budget: BudgetSettings,
        tools: Sequence[ToolSpec],
        verifier: Verifier | None,
        memory: TaskMemory,
        question: str,
        stored: Sequence[wire.SideSample] = (),
    ) -> None:
        """verifier: None where nobody is asked. question: what the rollout is asked. stored: what
        the journal has of the open step beside it.
        """
        self._budget = budget
        self._tools = tools
        self._answer = answer_tool(tools)
        self._verifier = verifier
        self._stored = tuple(stored)
        self._memory = memory
        self._question = question
        self._final_answer = ""
        self._verified = False
        self._verification: Verification | None = None
        """The verdict that holds for the next step."""
        self._last_thought = ""
        self.attempts_made = sum(side.part.startswith("planner.") for side in stored)

    def allowed_tools(self, step: int) -> Sequence[ToolSpec]:
        """Only the answer at the last step, and after the verifier's yes."""
        answered = self._verification is not None and self._verification.answered
        must_answer = answered and step >= self._budget.minimum_steps
        if must_answer or step >= self._budget.steps:
            return [tool for tool in self._tools if tool.name == self._answer] or self._tools
        return self._tools

    def check(self, decided: AgentAction, step: int) -> AgentAction:
        """Accepts one action, which must be allowed at the step."""
        if decided.malformed:
            return decided
        allowed = [tool.name for tool in self.allowed_tools(step)]
        reason = ""
        if len(decided.calls) != 1:
            reason = f"it has {len(decided.calls)} actions, and a step is one"
        elif decided.calls[0].name not in allowed:
            reason = f"the action must be one of: {', '.join(allowed)}"
        if not reason:
            return decided
        thought = decided.thought or "; ".join(
            f"{call.name} {call_input(call)}" for call in decided.calls
        )
        return AgentAction(thought=thought, calls=(), malformed=reason)

    def fallback_call(self, opened: StepAttempt) -> ToolCall | None:
        """The last finding as the answer; the last thought where nothing was found."""
        name = self._answer
        if not name or any(result.call.name == name for result in _added_results(opened)):
            return None
        current = TaskMemory()
        current.note(opened.step, opened.results)
        thought = opened.sample.thought or self._last_thought
        text = current.last_finding or self._memory.last_finding or thought
        argument, _ = input_argument(next(tool for tool in self._tools if tool.name == name))
        if not text.strip() or not argument:
            return None
        arguments = {argument: one_line(text, _FALLBACK_CHARACTERS)}
        return ToolCall(id=f"{opened.step}.{len(opened.results)}", name=name, arguments=arguments)

    async def after_calls(
        self, opened: StepAttempt, context: Context, finished: bool
    ) -> AfterCalls:
        """Ask the verifier, and report what was tried."""
        stored, self._stored, self.attempts_made = self._stored, (), 0
        if finished:
            fell_back = any(result.call.name == self._answer for result in _added_results(opened))
            return AfterCalls((FALLBACK_NOTE,) if fell_back else ())
        verification = None
        if self._verifier is not None and self._asks_verifier(opened):
            verification = await self._verifier.ask(opened, context, stored)
        notes = [
            self._repeat_notice(opened),
            self._memory_line(opened),
            *_verdict_notes(verification),
        ]
        if opened.step + 1 >= self._budget.steps and self._answer:
            notes.append(LAST_STEP_NOTE)
        return AfterCalls(tuple(note for note in notes if note), verification)

    def note_closed(
        self,
        opened: StepAttempt | StepRecord,
        observation: ObservationBody,
        guidance: Sequence[DeliveredGuidance],
    ) -> None:
        """Remember what was tried; a person's message cancels the verifier's verdict."""
        self._memory.note(opened.step, opened.results)
        self._last_thought = opened.sample.thought or self._last_thought
        if observation.verification is not None:
            self._verification = observation.verification
            self._verified = observation.verification.answered
        for result in opened.results:
            if result.call.name == self._answer and result.success:
                self._final_answer = call_input(result.call)
        if guidance:
            self._verification = None

    async def end(self) -> None:
        """Hand what was tried and answered to the memory."""
        await self._memory.keep(self._question, self._final_answer, self._verified)

    def _asks_verifier(self, opened: StepAttempt) -> bool:
        """After an action that was no answer, where its word can still change the next step."""
        acted = [result for result in opened.results if result.call.name != self._answer]
        return bool(acted) and opened.step + 1 < self._budget.steps

    def _memory_line(self, opened: StepAttempt) -> str:
        """The memory's line after this step."""
        memory = TaskMemory()
        memory.extend(self._memory)
        memory.note(opened.step, opened.results)
        return memory.line()

    def _repeat_notice(self, opened: StepAttempt) -> str:
        step = self._memory.earlier(opened.step, opened.results)
        return f"[this was tried at step {step} already]" if step else ""


def answer_tool(tools: Sequence[ToolSpec]) -> str:
    """The name of the tool that ends a rollout with an answer; empty if there is none."""
    names = {tool.name for tool in tools}
    return next((name for name in ANSWER_TOOLS if name in names), "")


def _added_results(opened: StepAttempt) -> Sequence[ToolResult]:
    """Results of calls that the loop added to the planner's own."""
    return opened.results[len(opened.sample.calls) :]


def _verdict_notes(verification: Verification | None) -> tuple[str, ...]:
    if verification is None:
        return ()
    if verification.unreadable:
        return ("[verifier: it gave no readable answer; go on]",)
    reason = disarm(one_line(verification.reason, _REASON_CHARACTERS)).text
    if verification.answered:
        return (f"[verifier: answered. {reason} The only action now is to answer.]",)
    return (f"[verifier: not answered yet. {reason}]",)
