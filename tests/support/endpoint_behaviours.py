"""How endpoints behave, by name, and what Houston makes of each: the table of docs/engines.md.

What stands here is what `tests/engines/test_endpoint_behaviours.py` sees a real HTTP server's
answers become, in `houston engine check` and in a rollout's worker process.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from houston_shared.records import StepRecord
from tests.integration.agent.endpoint import Answer, Page, call, error

Outcome = Literal["goes on", "waits", "paused", "forks", "is not started"]
"""What becomes of a rollout: `waits` and `paused` end once the endpoint answers as it should."""
SILENT = Page(silent=True)
HTML = Page("<html><title>Welcome</title></html>")


def bad_call(arguments: str, finish: str = "tool_calls") -> Answer:
    """An answer with one call, its arguments as they are."""
    function = {"name": "noop", "arguments": arguments}
    calls = [{"id": "a", "type": "function", "function": function}]
    choice = {"message": {"content": "", "tool_calls": calls}, "finish_reason": finish}
    return 200, {"choices": [choice], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}


def hears(step: StepRecord, words: str) -> bool:
    """Whether the agent is told them at the end of the step."""
    return step.observation is not None and words in step.observation.tail


def without_usage(tool: str = "noop") -> Answer:
    status, answer = call(tool, text="ready")  # type: ignore[misc]
    return status, {"choices": answer["choices"]}


@dataclass(frozen=True)
class Behaviour:
    """One way in which an endpoint answers a sample."""

    outcome: Outcome
    read: str
    """What is read of it, for the page."""
    then: str
    """What goes on, for the page."""
    check: tuple[str, str]
    """The line of `engine check` that tells it, and its state."""
    answer: Answer | None = None
    """What a sample is answered; None where a test does it otherwise."""
    trial: Answer | None = None
    """What the check is answered, where that is not `answer`."""
    words: str = ""
    """What the reason of a pause, or the activity of a waiting worker, says."""
    pages: dict[str, Callable[[Any], Answer]] = field(default_factory=dict)
    step: Callable[[StepRecord], bool] = lambda step: True
    """What is true of the step that it answered, where the rollout goes on."""


_AGAIN = "asked again by itself every 30 s to 5 min, and at once by `houston rollout resume`"
_RETRIED = "6 tries with growing waits, then every 1 to 30 s; no wait is active time"

BEHAVIOURS: dict[str, Behaviour] = {
    "401, the key is wrong": Behaviour(
        "paused", "status and its sentence", _AGAIN, ("key", "fail"),
        error(401, "Incorrect API key provided"), None, "401: Incorrect API key",
        {"/models": lambda _: error(401, "Incorrect API key provided")},
    ),
    "402, the account is empty": Behaviour(
        "paused", "status and its sentence", _AGAIN, ("key", "fail"),
        error(402, "Insufficient Balance"), None, "402: Insufficient Balance",
    ),
    "429, the quota is spent": Behaviour(
        "paused", "`insufficient_quota` and its like, so that no try is wasted", _AGAIN,
        ("key", "fail"),
        error(429, "You exceeded your current quota", code="insufficient_quota"), None,
        "exceeded your current quota",
    ),
    "404, the model is not there": Behaviour(
        "paused", "status and its sentence", _AGAIN, ("model", "fail"),
        error(404, "The model `some-model` does not exist"), None, "does not exist",
    ),
    "429 with Retry-After": Behaviour(
        "goes on", "the seconds or the date of `Retry-After`, at most 60 s",
        "the same request after that time", ("tool call", "ok"),
        Page('{"error": {"message": "slow down"}}', 429, {"retry-after": "0.1"}),
    ),
    "429 without Retry-After, again and again": Behaviour(
        "waits", "status and its sentence", _RETRIED, ("tool call", "fail"),
        error(429, "Rate limit reached"), None, "429: Rate limit reached",
    ),
    "500, a fault of the server": Behaviour(
        "waits", "status and its sentence", _RETRIED, ("tool call", "fail"),
        error(500, "Internal error"), None, "500: Internal error",
    ),
    "400, the prompt is too long": Behaviour(
        "forks", "the words of 19 providers for it, and 413",
        "the context is forked to half; one that cannot be made shorter pauses",
        ("window", "fail"),
        error(400, "This model's maximum context length is 4096 tokens.",
              code="context_length_exceeded"),
    ),
    "the connection is refused": Behaviour(
        "waits", "the error of the connection", _RETRIED, ("reachable", "fail"),
        words="did not answer in",
    ),
    "no first byte": Behaviour(
        "waits", "600 s of silence (900 s for token ids)", _RETRIED, ("tool call", "fail"),
        SILENT, None, "did not answer in",
    ),
    "HTML instead of JSON": Behaviour(
        "waits", "the content type, with the address", _RETRIED, ("reachable", "fail"),
        HTML, None, "an HTML page", {"/models": lambda _: HTML},
    ),
    "no usage in the answer": Behaviour(
        "goes on", "no counts", "tokens are shown as unknown; a cost is reckoned from bytes",
        ("usage", "skip"), without_usage(), without_usage("note"),
        step=lambda step: step.sample.completion_tokens is None,
    ),
    "tools are not supported": Behaviour(
        "paused", "status and its sentence", f'{_AGAIN}; `tool_calls = "text"` does without',
        ("tool call", "fail"),
        error(400, '"auto" tool choice requires --enable-auto-tool-choice'), None, "tool choice",
    ),
    "an answer cut at its limit": Behaviour(
        "goes on", "`finish_reason` length",
        "the step has no call, and the agent is told that its answer was cut",
        ("tool call", "fail"),
        (200, {"choices": [{"message": {"content": "I thi"}, "finish_reason": "length"}]}),
        step=lambda step: "cut at its limit" in step.sample.malformed
        and hears(step, "Call one of your tools."),
    ),
    "arguments that are no JSON": Behaviour(
        "goes on", "the call, without arguments",
        "the call is not run, and the agent is told why", ("tool call", "fail"),
        bad_call('{"text": "x'),
        step=lambda step: "no JSON" in step.results[0].text and not step.results[0].success,
    ),
    "no log-probabilities (token ids)": Behaviour(
        "paused", "ids and log-probabilities are counted", _AGAIN, ("log-probabilities", "fail"),
        words="with 0 log-probabilities",
    ),
    "another tokenizer (token ids)": Behaviour(
        "is not started", "what `/tokenize` makes of a text",
        "`rollout start` refuses; of a running rollout nothing tells", ("tokenizer", "fail"),
    ),
}  # fmt: skip


def table() -> str:
    """The table of the page."""
    lines = [
        "| endpoint | rollout | what is read | what goes on | `engine check` |",
        "|---|---|---|---|---|",
    ]
    for name, own in BEHAVIOURS.items():
        line, state = own.check
        cells = (name, own.outcome, own.read, own.then, f"`{state}` {line}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
