"""The rules of steps that went wrong: an error was observed, no action, a file that cannot be
parsed.

An error is a failed call, a traceback, or a command or background job that failed later. Answers
of tests, linters and `grep`, and what the agent or a person ended, are none (`command_failures`).
"""

import re
from collections.abc import Iterator, Mapping

from houston_daemon.review.attention_window import ObservedCall, command_of, excerpt
from houston_daemon.review.rollout_trace import RolloutTrace, RuleFinding
from houston_daemon.review.rules import command_failures, shell_commands
from houston_daemon.review.rules.background_jobs import BackgroundJob, all_jobs, session_of_call
from houston_daemon.review.rules.shell_commands import same_path
from houston_daemon.review.rules.written_files import (
    RUN_COMMAND,
    CommandRun,
    FileWrite,
    agent_history,
)
from houston_shared.records import ToolResult
from houston_shared.task_tables import RuleSettings

_CUT_SHORT_KINDS = frozenset({"interrupted"})
"""Kinds of observations that say nothing of the action: a person or a crash cut it short."""
_PARSE_ERROR = re.compile(r"^(SyntaxError|IndentationError|TabError): .*$", re.M)
_INLINE_TRACEBACK = re.compile(r'^ *File "<(?:stdin|string)>", line', re.M)
"""A traceback of a program that was given on the command line."""
_FILE_PLACE = re.compile(r'^ *File "([^"]+)", line \d+$', re.M)


def error_observation(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
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
    patterns = [re.compile(pattern, re.M) for pattern in settings.error_patterns]
    for record, observed in trace.pairs:
        for result, call in zip(record.results, observed.own_calls, strict=False):
            if reason := _call_failure(call, result) or _printed_error(result, patterns):
                yield RuleFinding(record.step, f"{call.summary}: {reason}")
                break
    for job in _failed_jobs(trace):
        code = f"exit code {job.exit_code} (step {job.ended_in_step})"
        yield RuleFinding(
            job.step, f"{excerpt(job.command)}: it was left running and ended with {code}"
        )
    for job, reason in _jobs_with_printed_failures(trace):
        yield RuleFinding(
            job.step, f"{excerpt(job.command)}: it failed (step {job.ended_in_step}): {reason}"
        )
    for step, reason in command_failures.failed_detached_programs(trace):
        yield RuleFinding(step, reason)


def null_action(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
    """There is no action, or none that can be run: no call could be read from what was sampled, or
    a call has no such name, or wrong arguments.
    """
    for record, observed in trace.pairs:
        sample = record.sample
        if observed.interrupted:
            continue
        if sample.malformed:
            yield RuleFinding(record.step, f"no action: {sample.malformed}")
        elif not sample.calls:
            yield RuleFinding(record.step, "no action")
        for call in (result.call for result in record.results if result.call.error):
            yield RuleFinding(record.step, f"{call.name} cannot be run: {excerpt(call.error)}")


def broken_file(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
    """A file was written that Python could not parse when it was run: the step that wrote it."""
    written: list[FileWrite] = []
    for event in agent_history(trace):
        if isinstance(event, FileWrite):
            written.append(event)
            continue
        if event.program.views:
            continue
        for path, reason in _unparsable_files(event):
            same = (file for file in reversed(written) if same_path(file.path, path))
            if (last := next(same, None)) is not None:
                yield RuleFinding(
                    last.step, f"{last.path} could not be parsed in step {event.step}: {reason}"
                )


def _unparsable_files(ran: CommandRun) -> Iterator[tuple[str, str]]:
    text = ran.result.text
    for broken in _PARSE_ERROR.finditer(text):
        places = _FILE_PLACE.findall(text, 0, broken.start())
        if places:
            yield places[-1].rpartition("/workspace/")[2], excerpt(broken[0])


def _call_failure(call: ObservedCall, result: ToolResult) -> str:
    """Why a call counts as failed; empty where it does not."""
    if call.success or call.kind in _CUT_SHORT_KINDS:
        return ""
    raised = command_failures.last_traceback_line(result.text)
    if call.name == RUN_COMMAND:
        command, code = command_of(call), call.fields.get("exit_code")
        no_error = raised in ("", command_failures.KEYBOARD_INTERRUPT)
        if no_error and command_failures.exit_was_requested(code, command):
            return ""
        printed = result.text.partition("\n")[2]  # its first line is not the command's
        if code == 1 and not raised and command_failures.is_answer(command, printed):
            return ""
        if command_failures.is_check_report(code, command, printed):
            return ""
        if command_failures.is_probe(command, printed, code):
            return ""
    return raised or excerpt(str(call.fields.get("error", ""))) or call.error


def _printed_error(result: ToolResult, patterns: list[re.Pattern[str]]) -> str:
    """An error in the words of an observation that counts as a success."""
    for pattern in patterns:
        if match := pattern.search(result.text):
            return excerpt(match[0])
    if result.call.name != RUN_COMMAND or result.kind != "command":
        return ""
    command = command_of(result.call)
    parsed = shell_commands.parse_command(command)
    if _shows_others_errors(parsed, result.text) or command_failures.is_probe(command, result.text):
        return ""
    if command_failures.last_traceback_line(result.text):
        return command_failures.printed_failure(result.text)
    if any(program.after == "|" for program in parsed.simple) and (
        reason := command_failures.trailing_exception(result.text)
    ):
        return reason
    # With `||` it is given what comes if it fails.
    has_fallback = any(program.after == "||" for program in parsed.simple)
    return "" if has_fallback else command_failures.printed_failure(result.text)


def _shows_others_errors(command: shell_commands.ShellCommand, text: str) -> bool:
    """Whether an error in the text is one that another has printed: a program that is given with
    the command names itself where it fails.
    """
    return not command.texts and all(
        program.views
        or command_failures.is_checker(program)
        or (program.inline and not _INLINE_TRACEBACK.search(text))
        for program in command.simple
    )


def _failed_jobs(trace: RolloutTrace) -> Iterator[BackgroundJob]:
    """Jobs that ended with an error that nobody asked for."""
    suspects = [
        job for job in all_jobs(trace) if job.ended_in_step and job.exit_code and not job.killed
    ]
    scripts = _own_scripts_run(trace) if suspects else {}
    for job in suspects:
        later = "\n".join(
            step.argument_text
            for step in trace.observed_steps
            if job.step <= step.step <= (job.ended_in_step or 0)
        )
        code, ran = job.exit_code or 0, "\n".join(scripts.get(job.step, ()))
        if command_failures.is_job_failure(job.command, code, later, ran):
            yield job


def _jobs_with_printed_failures(trace: RolloutTrace) -> Iterator[tuple[BackgroundJob, str]]:
    """Jobs whose exit code says nothing of the program that failed: it stood before a pipe."""
    ended = [
        job for job in all_jobs(trace) if job.ended_in_step and not job.exit_code and not job.killed
    ]
    first = trace.task.hosts[0]
    steps = {observed.step: (record, observed) for record, observed in trace.pairs}
    for job in ended:
        command = shell_commands.parse_command(job.command)
        piped = any(program.after == "|" for program in command.simple)
        if job.ended_in_step not in steps or not piped or _shows_others_errors(command, ""):
            continue
        record, observed = steps[job.ended_in_step]
        for call, result in zip(observed.calls, record.results, strict=False):
            if call.name == RUN_COMMAND or session_of_call(call, first) != (job.host, job.session):
                continue
            # A session may show what was run in it before, too.
            if reason := command_failures.printed_failure(result.text.rpartition(job.command)[2]):
                yield job, reason


def _own_scripts_run(trace: RolloutTrace) -> Mapping[int, list[str]]:
    """By step, the agent's own shell scripts that were run."""
    scripts: dict[int, list[str]] = {}
    for event in agent_history(trace):
        if isinstance(event, CommandRun) and event.source and event.script.endswith(".sh"):
            scripts.setdefault(event.step, []).append(event.source.content)
    return scripts
