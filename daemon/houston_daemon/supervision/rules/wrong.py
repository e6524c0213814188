"""Rules about steps that went wrong: an error was observed, no action, a file that is broken."""

import re
from collections.abc import Iterator, Mapping

from houston_daemon.supervision.attention.window import CallSeen, cut
from houston_daemon.supervision.rules import exit_codes, failures, shell
from houston_daemon.supervision.rules.finding import Finding
from houston_daemon.supervision.rules.history import COMMAND, Ran, Wrote, history
from houston_daemon.supervision.rules.jobs import Job, jobs, where
from houston_daemon.supervision.trace import Trace
from houston_shared.records import Result
from houston_shared.task_rules import Rules

_NOT_ITS_FAULT = frozenset({"interrupted"})
"""Kinds of observations that say nothing of the action: a person or a crash cut it short."""
_BROKEN = re.compile(r"^(SyntaxError|IndentationError|TabError): .*$", re.M)
_INLINE = re.compile(r'^ *File "<(?:stdin|string)>", line', re.M)
"""A traceback of a program that was given on the command line."""
_PLACE = re.compile(r'^ *File "([^"]+)", line \d+$', re.M)


def error_observation(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """The observation is an error: a call failed, a command printed a traceback or that it could
    not be found, or a command that was left running, or runs in the background, failed later: by
    its exit code, or as its log or session shows. A failure in the words of the shell, make, git,
    pip, npm, apt or argparse counts also where a pipe or `;` hides the exit code. What a command
    only shows, such as a log with another's traceback, is no error of its own. What a test runner,
    a linter, a type checker or a script that reproduces a bug reports is an answer, and so are exit
    code 1 of `grep`, `diff` or `test`, and a look whether a package, a file or a server is there.
    What the agent had ended (`timeout`, `kill`, ^C), and what a person or a crash of the daemon cut
    short, is not held against the step.
    """
    patterns = [re.compile(one, re.M) for one in settings.error_patterns]
    for record, seen in zip(trace.steps, trace.seen, strict=True):
        own = len(seen.calls) - seen.added
        for result, call in zip(record.results[:own], seen.calls, strict=False):
            if why := _wrong(call, result) or _printed(result, patterns):
                yield Finding(record.step, f"{call.words}: {why}")
                break
    for job in _failed(trace):
        code = f"exit code {job.code} (step {job.end})"
        yield Finding(job.step, f"{cut(job.command)}: it was left running and ended with {code}")
    for job, why in _printed_later(trace):
        yield Finding(job.step, f"{cut(job.command)}: it failed (step {job.end}): {why}")
    for step, why in failures.died_apart(trace):
        yield Finding(step, why)


def null_action(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """There is no action, or none that can be run: no call could be read from what was sampled, or
    a call has no such name, or wrong arguments.
    """
    for record, seen in zip(trace.steps, trace.seen, strict=True):
        sample = record.sample
        if seen.interrupted:
            continue
        if sample.malformed:
            yield Finding(record.step, f"no action: {sample.malformed}")
        elif not sample.calls:
            yield Finding(record.step, "no action")
        for call in (one.call for one in record.results):
            if call.error:
                yield Finding(record.step, f"{call.name} cannot be run: {cut(call.error)}")


def broken_file(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """A file was written that Python could not parse when it was run: the step that wrote it."""
    written: list[Wrote] = []
    for event in history(trace):
        if isinstance(event, Wrote):
            written.append(event)
            continue
        if event.simple.views:
            continue
        for path, why in _unparsable(event):
            last = next((one for one in reversed(written) if shell.same(one.path, path)), None)
            if last is not None:
                yield Finding(
                    last.step, f"{last.path} could not be parsed in step {event.step}: {why}"
                )


def _unparsable(ran: Ran) -> Iterator[tuple[str, str]]:
    text = ran.result.text
    for broken in _BROKEN.finditer(text):
        places = _PLACE.findall(text, 0, broken.start())
        if places:
            yield places[-1].rpartition("/workspace/")[2], cut(broken[0])


def _wrong(call: CallSeen, result: Result) -> str:
    """Why a call counts as failed; empty where it does not."""
    if call.success or call.kind in _NOT_ITS_FAULT:
        return ""
    raised = failures.raised(result.text)
    if call.name == COMMAND:
        command, code = str(call.arguments.get("command", "")), call.fields.get("exit_code")
        if raised in ("", failures.STOPPED) and exit_codes.asked_for(code, command):
            return ""
        printed = result.text.partition("\n")[2]  # its first line is not the command's
        if code == 1 and not raised and exit_codes.answers(command, printed):
            return ""
        if exit_codes.reports(code, command, printed) or exit_codes.probes(command, printed, code):
            return ""
    return raised or cut(str(call.fields.get("error", ""))) or call.error


def _printed(result: Result, patterns: list[re.Pattern[str]]) -> str:
    """An error in the words of an observation that counts as a success."""
    for pattern in patterns:
        if found := pattern.search(result.text):
            return cut(found[0])
    if result.call.name != COMMAND or result.kind != "command":
        return ""
    command = str(result.call.arguments.get("command", ""))
    read = shell.read(command)
    if _only_shows(read, result.text) or exit_codes.probes(command, result.text):
        return ""
    if failures.raised(result.text):
        return failures.printed(result.text)
    if any(one.after == "|" for one in read.simple) and (why := failures.last_line(result.text)):
        return why
    provided = any(one.after == "||" for one in read.simple)  # what comes if it fails is given
    return "" if provided else failures.printed(result.text)


def _only_shows(command: shell.Command, text: str) -> bool:
    """Whether an error in the text is one that another has printed: a program that is given with
    the command names itself where it fails.
    """
    return not command.texts and all(
        one.views or exit_codes.checks(one) or (one.inline and not _INLINE.search(text))
        for one in command.simple
    )


def _failed(trace: Trace) -> Iterator[Job]:
    """Jobs that ended with an error that nobody asked for."""
    suspects = [job for job in jobs(trace) if job.end and job.code and not job.killed]
    scripts = _scripts(trace) if suspects else {}
    for job in suspects:
        ran = "\n".join([job.command, *scripts.get(job.step, ())])
        later = "\n".join(
            str(value)
            for step in trace.seen
            if job.step <= step.step <= (job.end or 0)
            for call in step.calls
            for key, value in call.arguments.items()
            if key != "content"
        )
        answer = job.code == 1 and exit_codes.answers(job.command, "it may have printed")
        answer = answer or exit_codes.reports(job.code, job.command, "")
        if not answer and not exit_codes.asked_for(job.code, ran, later):
            yield job


def _printed_later(trace: Trace) -> Iterator[tuple[Job, str]]:
    """Jobs whose exit code says nothing of the program that failed: it stood before a pipe."""
    ended = [job for job in jobs(trace) if job.end and not job.code and not job.killed]
    first = trace.task.hosts[0]
    steps = {one.step: one for one in trace.seen}
    for job in ended:
        read = shell.read(job.command)
        record = trace.step(job.end or 0)
        if record is None or _only_shows(read, "") or all(one.after != "|" for one in read.simple):
            continue
        seen = steps[record.step]
        for call, result in zip(seen.calls, record.results, strict=False):
            if call.name == COMMAND or where(call, first) != (job.host, job.session):
                continue
            # A session may show what was run in it before, too.
            if why := failures.printed(result.text.rpartition(job.command)[2]):
                yield job, why


def _scripts(trace: Trace) -> Mapping[int, list[str]]:
    """By step, the agent's own shell scripts that were run."""
    found: dict[int, list[str]] = {}
    for event in history(trace):
        if isinstance(event, Ran) and event.source and event.script.endswith(".sh"):
            found.setdefault(event.step, []).append(event.source.content)
    return found
