"""The summary of a compressed context: how it is requested, parsed, and made without a model.

It has five sections (APOLLO §3.1.3 lists what must survive; the state of the task comes first).
Guidance is never left to the summary: it is kept verbatim next to it. `context_compression` decides
when a context is summarised.
"""

import json
from collections.abc import Sequence

from houston_daemon.agent.rollout_budgets import EvaluationScores
from houston_daemon.prompts.context_ledger import ContextEntry
from houston_shared.guidance_tag import disarm

SUMMARY_SECTIONS = {
    "task_state": "Task state",
    "key_knowledge": "Key knowledge",
    "results": "Results",
    "files_and_environment": "Files and environment",
    "errors_and_lessons": "Errors and lessons",
}
MAX_SUMMARY_TRIES = 3
_TASK_CHARACTERS = 600
_SUMMARY_HEADING = "[Summary of steps {first} to {last}]"

SUMMARY_REQUEST = (
    "[The context is nearly full. Before you go on, everything above except the task is replaced "
    "by a summary that you write now. Answer with one JSON object and no calls, with these keys, "
    "each a text: task_state (what is done, what comes next), key_knowledge (facts you need), "
    "results (numbers and scores, with the commands that gave them), files_and_environment "
    "(paths, sessions, what runs), errors_and_lessons (what failed and why). Be exact and short.]"
)


def parse_summary(text: str, first: int, last: int) -> str:
    """The summary that a model wrote, as it appears in the context; empty when it wrote none.

    first, last: numbers of the steps that it replaces. Guidance tags in it are disarmed, because a
    model's text must not pass for a person's.
    """
    start, end = text.find("{"), text.rfind("}")
    try:
        answer = json.loads(text[start : end + 1]) if 0 <= start < end else None
    except (ValueError, RecursionError):
        return ""
    if not isinstance(answer, dict):
        return ""
    written = {key: answer.get(key) for key in SUMMARY_SECTIONS}
    sections = {key: value.strip() for key, value in written.items() if isinstance(value, str)}
    if len(sections) < len(SUMMARY_SECTIONS) or not any(sections.values()):
        return ""
    lines = [f"## {SUMMARY_SECTIONS[key]}\n{value or '-'}" for key, value in sections.items()]
    heading = _SUMMARY_HEADING.format(first=first, last=last)
    return disarm("\n".join((heading, *lines))).text


def mechanical_summary(
    task: str, entries: Sequence[ContextEntry], scores: EvaluationScores, first: int, tokens: int
) -> str:
    """A summary made without a model: task, earlier knowledge, actions, files, score. It says so.

    entries: the compressed part. If it starts with an earlier summary, the first 2 × `tokens`
    characters of that one are kept.
    """
    files = [path for entry in entries for path in entry.files]
    last = entries[-1].step
    lines = [
        _SUMMARY_HEADING.format(first=first, last=last),
        "(made mechanically: the model wrote no usable summary)",
        f"## Task\n{_truncate(task, _TASK_CHARACTERS)}",
        f"## Actions\n{_list_actions(entries)}",
        f"## Files changed\n{', '.join(dict.fromkeys(files[-40:])) or 'none known'}",
    ]
    if entries[0].summary:
        lines.append(f"## Before that\n{_truncate(entries[0].messages[0].content, 2 * tokens)}")
    if scores.last is not None:
        lines.append(f"## Score\nlast {scores.last:g}, best {scores.best:g}")
    return disarm("\n".join(lines)).text


def _list_actions(entries: Sequence[ContextEntry]) -> str:
    """One short line for each of the newest steps: what was called and whether it worked."""
    lines = []
    for entry in entries[-12:]:
        if entry.summary:
            continue
        actions = [f"{r.call.name}{'' if r.success else ' (failed)'}" for r in entry.results]
        lines.append(f"{entry.step}: {', '.join(actions) or 'no action'}")
    return "\n".join(lines) or "none"


def _truncate(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + " …"
