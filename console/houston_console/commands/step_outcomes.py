"""What a step did, in the words of one line: action, command or file, result, duration.

Also when two failures are equal, so that they stand on one line. Pure: from calls and results to
short texts and keys; the same words are on the console's lines and in `houston steps --fold`. It
knows no screen, and reads nothing.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from houston_shared.records import StepRecord, ToolCall, ToolResult
from houston_shared.times_and_counts import format_duration, pluralize

TARGET_ARGUMENTS = (
    "command", "code", "query", "path", "filename", "file_path", "url", "input_text", "input",
    "action", "answer", "thought", "text", "session_id",
)  # fmt: skip
"""Arguments that say what an action was on, the one that says most first."""
MAX_TARGET_CHARACTERS = 240
"""Of a command or file: more than any screen shows."""
MAX_RESULT_CHARACTERS = 60
"""Of what went wrong, where that is no exit code."""
SHOWN_SECONDS = 1.0
"""From so many seconds on a duration is said: shorter ones are all alike."""


class CallOutcome(NamedTuple):
    """One call and what became of it."""

    action: str
    target: str
    """The command, file or query, on one line; empty where the action has none."""
    result: str
    """`exit 2`, `3 found`, `still running`, or why it failed; empty where it just succeeded."""
    failed: bool
    seconds: float


def join_blanks(text: str) -> str:
    """Text on one line, each run of blanks and line breaks as one space."""
    return " ".join(text.split())


def call_target(arguments: dict[str, Any]) -> str:
    """The command, file or query of a call, on one line; empty where it has none."""
    for name in TARGET_ARGUMENTS:
        if value := arguments.get(name):
            return _one_line(value)
    if isinstance(seconds := arguments.get("seconds"), int | float):
        return f"{seconds:g} s"
    return next((_one_line(value) for value in arguments.values() if isinstance(value, str)), "")


def _one_line(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return join_blanks(text[: 4 * MAX_TARGET_CHARACTERS])[:MAX_TARGET_CHARACTERS]


def result_words(kind: str, success: bool, fields: dict[str, Any]) -> str:
    """What came of a call in a few words, from its typed fields (`ToolResult.fields`)."""
    code = fields.get("exit_code")
    if fields.get("running"):
        return "still running"
    if isinstance(code, int) and not success:
        return f"exit {code}"
    if not success:
        words = fields.get("error") or ("failed" if kind in ("command", "error") else kind)
        return join_blanks(str(words))[:MAX_RESULT_CHARACTERS]
    if isinstance(count := fields.get("total_results"), int):
        return f"{count} found"
    return ""


class ReturnedResult(Protocol):
    """What of a `ToolResult` a line needs."""

    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def success(self) -> bool: ...  # noqa: D102
    @property
    def fields(self) -> dict[str, Any]: ...  # noqa: D102
    @property
    def seconds(self) -> float: ...  # noqa: D102


def call_outcome(call: ToolCall, result: ReturnedResult | None) -> CallOutcome:
    """A call with its result; None while there is none."""
    target = call_target(call.arguments)
    if result is None:
        return CallOutcome(call.name, target, call.error[:MAX_RESULT_CHARACTERS], False, 0.0)
    words = result_words(result.kind, result.success, result.fields)
    return CallOutcome(call.name, target, words, not result.success, result.seconds)


def step_outcomes(record: StepRecord) -> tuple[CallOutcome, ...]:
    """The calls of a whole step, in order."""
    results = {result.call.id: result for result in record.results}
    return tuple(call_outcome(call, results.get(call.id)) for call in record.sample.calls)


def main_outcome(outcomes: Sequence[CallOutcome]) -> CallOutcome | None:
    """The call that a line names: the first that failed, else the first; None without any."""
    return next((outcome for outcome in outcomes if outcome.failed), next(iter(outcomes), None))


def shown_duration(seconds: float) -> str:
    """How long a step took, `4.2 s`, `12 min`; empty below `SHOWN_SECONDS`."""
    return format_duration(seconds) if seconds >= SHOWN_SECONDS else ""


def format_fold(first: int, last: int) -> str:
    """The steps of equal failures: `61–166`."""
    return f"{first}–{last}"


# --- equal failures -------------------------------------------------------------------------------

_NUMBERS = re.compile(r"\d+(?:[.,:]\d+)*")


def failure_key(results: Iterable[ToolResult]) -> bytes | None:
    """The key that equal failures share; None for a step that did not fail.

    results: what all calls of the step returned, in order. Equal failures have the same actions;
    the same arguments, where runs of blanks count as one; and the same result: its kind, its exit
    code, and the last printed line, in which all numbers count as one (times, process ids and
    addresses are never the same twice).
    """
    calls = list(results)
    if all(result.success for result in calls):
        return None
    parts = [
        (
            result.call.name,
            _equal_arguments(result.call.arguments),
            result.kind,
            result.success,
            result.fields.get("exit_code"),
            _last_words(result),
        )
        for result in calls
    ]
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=16).digest()


def _equal_arguments(arguments: dict[str, Any]) -> list[tuple[str, Any]]:
    return sorted(
        (name, join_blanks(value) if isinstance(value, str) else value)
        for name, value in arguments.items()
    )


def _last_words(result: ToolResult) -> str:
    """The last line that says something, without its numbers."""
    last = result.text.rstrip().rsplit("\n", 1)[-1]
    return _NUMBERS.sub("0", join_blanks(last))


# --- plain lines ----------------------------------------------------------------------------------


def outcome_text(outcome: CallOutcome, more: int = 0) -> str:
    """`run_command python3 src/trian.py`, and how many calls stand beside it."""
    suffix = f"  (+{pluralize(more, 'more call')})" if more else ""
    return f"{outcome.action} {outcome.target}".rstrip() + suffix
