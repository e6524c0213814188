"""The rule about actions that contradict what a person said, after it and before."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from houston_daemon.supervision.attention.waiting import started_apart
from houston_daemon.supervision.attention.window import THINKING, StepSeen, cut
from houston_daemon.supervision.rules import deeds, edits, prohibitions, shell
from houston_daemon.supervision.rules.changing import can_change
from houston_daemon.supervision.rules.finding import Finding
from houston_daemon.supervision.rules.history import COMMAND, history
from houston_daemon.supervision.rules.jobs import jobs
from houston_daemon.supervision.rules.prohibitions import Forbidden
from houston_daemon.supervision.trace import Trace
from houston_shared.task_rules import Rules


class _Said(NamedTuple):
    """Guidance that forbids something."""

    step: int
    """The step whose observation it was joined to."""
    text: str
    forbidden: Forbidden
    pattern: re.Pattern[str] | None
    """Of the task, in place of what the words forbid."""

    @property
    def passing(self) -> bool:
        """Whether it is about this moment: a thing that is forbidden for good has a name."""
        return self.pattern is None and self.forbidden.passing


def contradicted_guidance(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """An action does what guidance forbids: after the guidance, or before it, where the guidance
    condemns what was done. Found in its words (`do not use X`, `stop …ing`, `avoid X`, `no X`,
    `leave X alone`; also files with X in them, and their runs; after `read X first` what is done
    before X is read) or by the task's patterns. Guidance that allows it again ends that. A call
    alone (`stop sleeping`, `do not finish`), and what is not to be done `first` or `for now`, is
    forbidden for the moment: what was done right before, in steps one after another, and what is
    done right after, until something else is done or a person speaks again; no sleep while a job
    runs. What is kept, removed or turned off (`cp`, `git`, `--x False`) is not used.
    """
    yield from _unread(trace, settings)
    said = list(_said(trace, settings))
    if not said:
        return
    events = history(trace)
    for one in said:
        if one.pattern is not None:
            found = list(deeds.by_pattern(trace, events, one.pattern))
        else:
            found = list(deeds.by_words(trace, events, one.forbidden))
        steps = {each.step for each in found}
        meant = _now(trace, one, steps, settings) if one.passing else _ever(trace, one, settings)
        for each in found:
            if each.step in meant:
                when = "before" if each.step <= one.step else "after"
                who = f"{when} a person said in step {one.step}: {cut(one.text)}"
                yield Finding(each.step, f"{each.reason}, {who}")


def _unread(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """Steps that act although a person wanted a file to be read first."""
    if not settings.guidance_found:
        return
    for at, step in enumerate(trace.steps):
        for heard in step.guidance:
            for path in prohibitions.first_read(heard.text):
                for number in _before_reading(trace, at, path, settings.guidance_call_steps):
                    why = f"{path} was not read first, as a person said in step {step.step}"
                    yield Finding(number, f"{why}: {cut(heard.text)}")


def _before_reading(trace: Trace, at: int, path: str, most: int) -> list[int]:
    acted: list[int] = []
    coming = zip(trace.steps[at + 1 :], trace.seen[at + 1 :], strict=True)
    for record, step in coming:
        results = zip(step.calls, record.results, strict=True)
        if any(edits.shows_file(call, path, result.text) for call, result in results):
            return acted
        if any(can_change(call) for call in step.calls):
            acted.append(step.step)
        if len(acted) == most or record.guidance:
            return acted
    return acted


def _said(trace: Trace, settings: Rules) -> Iterator[_Said]:
    for step in trace.steps:
        for heard in step.guidance:
            if settings.guidance_found:
                for one in prohibitions.forbidden(heard.text):
                    yield _Said(step.step, heard.text, one, None)
            for pattern in settings.guidance:
                if re.search(pattern.said, heard.text, re.I):
                    what = Forbidden("any", pattern.action)
                    action = re.compile(pattern.action, re.I)
                    yield _Said(step.step, heard.text, what, action)


def _ever(trace: Trace, said: _Said, settings: Rules) -> set[int]:
    """Steps that a lasting prohibition is about: until later guidance allows it again."""
    last = float("inf")
    for step in trace.steps:
        if step.step > said.step and any(_allows(one.text, said) for one in step.guidance):
            last = step.step
            break
    first = said.step - settings.guidance_steps
    return {one.step for one in trace.steps if first < one.step <= last}


def _allows(text: str, said: _Said) -> bool:
    again = (one.what.lower() for one in prohibitions.allowed(text))
    return said.forbidden.what.lower() in again


def _now(trace: Trace, said: _Said, done: set[int], settings: Rules) -> set[int]:
    """Steps that a passing prohibition is about, of those that did it."""
    acts = [one for one in trace.seen if any(call.name not in THINKING for call in one.calls)]
    past = [one for one in acts if one.step <= said.step]
    coming = [one for one in acts if one.step > said.step]
    waits = _waits(trace) if said.forbidden.what == "sleep" else set[int]()
    meant: set[int] = set()
    if past and past[-1].step == said.step and said.step not in done:
        past.pop()  # a person spoke of the step before
    if said.forbidden.what != "sleep" or not started_apart(past):  # it may have run
        for one in past[::-1][: settings.guidance_call_steps]:
            if one.step not in done - waits or one.step <= said.step - settings.guidance_steps:
                break
            meant.add(one.step)
    heard = {one.step for one in trace.steps if one.guidance}
    for one in coming[: settings.guidance_call_steps]:
        if one.step in done - waits:
            meant.add(one.step)
        elif _moves_on(one):
            break
        if one.step in heard:
            break
    return meant


def _waits(trace: Trace) -> set[int]:
    """Steps in which a command that was left running may have run."""
    running = jobs(trace)
    return {
        step.step
        for step in trace.seen
        if any(
            job.step < step.step and (job.end is None or job.end >= step.step) for job in running
        )
    }


def _moves_on(step: StepSeen) -> bool:
    """Whether a step does something about it: it changes files, or runs what does not only show."""
    return step.changed is not False or any(
        call.name == COMMAND and not shell.read(str(call.arguments.get("command", ""))).views
        for call in step.calls
    )
