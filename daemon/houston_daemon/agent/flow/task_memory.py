"""What a flow tried in this rollout, and what it found: the memory within a task.

The newest observation shows it in one bounded line, so the context only grows; a fork may compress
the steps themselves. The line follows from the journal's steps alone, so a worker that resumes
after a kill shows the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from houston_shared.guidance_tag import disarm
from houston_shared.records import ToolCall, ToolResult

LINE_CHARACTERS = 320
"""Most characters of the line about what was tried."""
_INPUT_CHARACTERS, _OUTCOME_CHARACTERS = 60, 50
ANSWER_TOOLS = ("answer", "finish")
"""Tools that end a rollout with an answer; the first one that is there counts."""
_WITHOUT_FINDING = ("think", *ANSWER_TOOLS)
"""Actions that try nothing and find nothing."""


@dataclass(frozen=True, slots=True)
class TriedAction:
    """One action and its outcome."""

    step: int
    action: str
    action_input: str
    success: bool
    outcome: str


class TaskMemory:
    """What was tried and found in one rollout, in order; `EpisodeMemory` also knows others."""

    def __init__(self) -> None:
        self._tried: list[TriedAction] = []

    async def recall(self, question: str) -> str:
        """What the head shows when a rollout starts: nothing, it is empty."""
        return ""

    async def keep(self, question: str, answer: str, verified: bool) -> None:
        """Nothing is kept beyond the rollout. verified: whether a verifier said yes."""

    def note(self, step: int, results: Sequence[ToolResult]) -> None:
        """Take note of the results of a closed step."""
        self._tried += [
            TriedAction(step, each.call.name, call_input(each.call), each.success, _outcome(each))
            for each in results
            if each.call.name not in _WITHOUT_FINDING
        ]

    def extend(self, other: "TaskMemory") -> None:
        """Add what another memory holds."""
        self._tried += other._tried

    def earlier(self, step: int, results: Sequence[ToolResult]) -> int:
        """The earlier step with one of these calls and the same input; 0 if there is none."""
        for each in results:
            for tried in self._tried:
                same = (tried.action, _folded(tried.action_input))
                if tried.step < step and same == (each.call.name, _folded(call_input(each.call))):
                    return tried.step
        return 0

    @property
    def last_finding(self) -> str:
        """The outcome of the newest action that succeeded; empty where none did."""
        return next((tried.outcome for tried in reversed(self._tried) if tried.success), "")

    def line(self) -> str:
        """`[tried: 1 search "…": …; …]`, the newest that fit; empty where nothing was tried."""
        parts: list[str] = []
        characters_left = LINE_CHARACTERS
        for tried in reversed(self._tried):
            part = _describe(tried)
            characters_left -= len(part) + 2
            if characters_left < 0:
                parts.append("…")
                break
            parts.append(part)
        return f"[tried: {disarm('; '.join(reversed(parts))).text}]" if parts else ""


def call_input(call: ToolCall) -> str:
    """The input of an action: its call's first argument."""
    return str(next(iter(call.arguments.values()), ""))


def _outcome(result: ToolResult) -> str:
    """What an action gave: of a search what it found, not that it did; of an error its last line,
    which names it."""
    if not result.success:
        return result.text.strip().rpartition("\n")[2]
    if "search_results" in result.fields:
        return result.text.partition("\n")[2] or result.text
    return result.text


def one_line(text: str, characters: int) -> str:
    """A text on one line, cut at its end."""
    flat = " ".join(text.split())
    return flat if len(flat) <= characters else f"{flat[: characters - 1].rstrip()}…"


def _describe(tried: TriedAction) -> str:
    outcome = one_line(tried.outcome, _OUTCOME_CHARACTERS) or "nothing"
    failed = "" if tried.success else "failed: "
    input_text = one_line(tried.action_input, _INPUT_CHARACTERS)
    return f'{tried.step} {tried.action} "{input_text}": {failed}{outcome}'


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
