"""The rule of actions that contradict what a person said, both after and before it.

It finds steps that do what guidance forbids, by the words of the guidance or by the task's own
patterns: in calls, in files that were written, and in their runs. A temporary prohibition (`stop
sleeping`) counts for the steps around it, a lasting one until guidance allows it again. Something
that is kept, removed or turned off does not count as used.
"""

import re
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from houston_daemon.environments.workstation_actions import is_known_to_write
from houston_daemon.review.attention_signals import any_starts_detached
from houston_daemon.review.attention_window import THINKING_ACTIONS, ObservedStep, excerpt
from houston_daemon.review.rollout_trace import RolloutTrace, RuleFinding
from houston_daemon.review.rules import blind_edit_rule, shell_commands
from houston_daemon.review.rules.background_jobs import all_jobs
from houston_daemon.review.rules.shell_commands import SimpleCommand, name_of_path
from houston_daemon.review.rules.written_files import (
    RUN_COMMAND,
    CommandRun,
    FileWrite,
    HistoryEvent,
    agent_history,
    can_change_files,
    follow_faulty_files,
    parsed_command,
)
from houston_shared.guidance_prohibitions import (
    Prohibition,
    files_to_read_first,
    find_permissions,
    find_prohibitions,
)
from houston_shared.records import StepRecord, ToolCall
from houston_shared.task_tables import RuleSettings

_PURPOSE_LETTERS = 5
"""Letters of a purpose that must be found: `infer` of inference."""
_KEEPING_NAMES = (
    "cp mv tar git rsync scp zip unzip gzip gunzip rm rmdir mkdir touch chmod ln sed pkill kill"
)
_KEEPING_PROGRAMS = frozenset(_KEEPING_NAMES.split())
"""Programs that use nothing of what they name."""
_PIP_KEEPS = re.compile(r"\bpip3?\s+(?:uninstall|show|list|freeze)\b")
_PROSE_SUFFIXES = (".md", ".rst", ".txt", ".log")
_SCRIPT_SUFFIXES = (".py", ".sh")


def violations_by_pattern(
    trace: RolloutTrace, events: list[HistoryEvent], pattern: re.Pattern[str]
) -> Iterator[RuleFinding]:
    """Calls with text that a task's pattern fits; files with such lines, and their runs."""
    for step in trace.steps:
        for call in step.sample.calls:
            match = None if call.name in THINKING_ACTIONS else pattern.search(_call_text(call))
            if match:
                yield RuleFinding(step.step, excerpt(match[0]))

    def fault(file_write: FileWrite) -> str:
        match = pattern.search(_code_lines(file_write))
        return f"has {excerpt(match[0])} in it" if match else ""

    yield from follow_faulty_files(events, fault)


def violations_by_words(
    trace: RolloutTrace, events: list[HistoryEvent], forbidden: Prohibition
) -> Iterator[RuleFinding]:
    """Steps that do what plain words forbid."""
    for step in trace.steps:
        reasons = (_call_violation(call, forbidden) for call in step.sample.calls)
        if reason := next(filter(None, reasons), ""):
            yield RuleFinding(step.step, reason)
    if forbidden.manner not in ("use", "run"):
        return
    does = _uses_forbidden if forbidden.manner == "use" else _runs_forbidden
    for event in events:
        if isinstance(event, CommandRun) and does(event, forbidden):
            yield RuleFinding(event.step, f"{RUN_COMMAND} with {forbidden.description}")
    if forbidden.manner == "use":
        yield from follow_faulty_files(
            events, lambda file_write: _file_violation(file_write, forbidden)
        )


def _call_violation(call: ToolCall, forbidden: Prohibition) -> str:
    """In words, what of a call by itself is forbidden; empty where nothing is."""
    if call.name in THINKING_ACTIONS:
        return ""
    manner = forbidden.manner
    if call.name.lower() == forbidden.what.lower() and manner in ("call", "use", "run"):
        return call.name
    if manner not in ("write", "read", "touch") or not _matches_prohibition(
        forbidden, _call_text(call)
    ):
        return ""
    does = call.name == "open_file"
    if manner == "write" or (manner == "touch" and call.name != "open_file"):
        does = _writes_file(call, forbidden.what)
    if manner == "touch" and call.name == RUN_COMMAND:
        does = any(
            shell_commands.same_path(program.path_in_folder(word), forbidden.what)
            for program in parsed_command(call).simple
            for word in program.words
        )
    return f"{call.name} with {forbidden.description}" if does else ""


def _runs_forbidden(command_run: CommandRun, forbidden: Prohibition) -> bool:
    """Whether it is the program or the script that is run, with the words that are forbidden."""
    parsed = shell_commands.parse_command(forbidden.what).simple
    forbidden_programs = [program for program in parsed if program.words]
    if len(forbidden_programs) != 1:
        return False
    program, simple = forbidden_programs[0], command_run.program
    if program.script:
        named = bool(simple.script) and shell_commands.same_path(simple.script, program.script)
    else:
        named = program.program in (
            simple.program,
            name_of_path(simple.script).rpartition(".")[0],
            _module_run(simple),
        )
    more = {word for word in program.words[1:] if not word.endswith(_SCRIPT_SUFFIXES)}
    return named and more <= set(simple.words) and _matches_purpose(forbidden, command_run.command)


def _uses_forbidden(command_run: CommandRun, forbidden: Prohibition) -> bool:
    """Whether a program that does something is given it."""
    simple, words = command_run.program, " ".join(command_run.program.words)
    if (
        command_run.in_script
        or simple.views
        or simple.program in _KEEPING_PROGRAMS
        or _PIP_KEEPS.search(words)
    ):
        return False
    assigned = [f"{name}={value}" for name, value in simple.environment.items()]
    named = _names_forbidden(forbidden, "\n".join([words, simple.inline, *assigned]))
    return named and _matches_purpose(forbidden, command_run.command)


def _file_violation(file_write: FileWrite, forbidden: Prohibition) -> str:
    """Whether a file has in it what is forbidden; neither comments nor texts to read count."""
    if file_write.path.endswith(_PROSE_SUFFIXES):
        return ""
    fits = _matches_prohibition(forbidden, f"{file_write.path}\n{_code_lines(file_write)}")
    return f"uses {forbidden.description}" if fits else ""


def _writes_file(call: ToolCall, name: str) -> bool:
    """Whether a call changes the file of this name."""
    if call.name == RUN_COMMAND:
        command = parsed_command(call)
        written = [text.path for text in command.texts]
        written += [path for program in command.simple for path in _changed_files(program)]
        return any(shell_commands.same_path(path, name) for path in written)
    path = str(call.arguments.get("path") or call.arguments.get("filename") or "")
    return is_known_to_write(call.name) and shell_commands.same_path(path, name)


def _changed_files(simple: SimpleCommand) -> list[str]:
    """Files that a program changes or takes away. A copy of a file beside itself changes none."""
    paths = [simple.path_in_folder(word) for word in simple.words[1:] if not word.startswith("-")]
    if simple.program in ("rm", "mv", "truncate"):
        return paths
    if simple.program == "cp" and len(paths) > 1:
        onto_itself = any(shell_commands.same_path(paths[-1], source) for source in paths[:-1])
        return [] if onto_itself else paths[-1:]
    return list(simple.changes)


def _matches_prohibition(forbidden: Prohibition, text: str) -> bool:
    """Whether a text names it, and its purpose where it has one."""
    return _names_forbidden(forbidden, text) and _matches_purpose(forbidden, text)


def _matches_purpose(forbidden: Prohibition, text: str) -> bool:
    return forbidden.purpose[:_PURPOSE_LETTERS] in text.lower()


def _names_forbidden(forbidden: Prohibition, text: str) -> bool:
    """Whether a text names it (`lora` also in `use_lora`) and does not only turn it off."""
    if forbidden.what.casefold() not in text.casefold():  # most texts, and 10 times as fast
        return False
    name = re.escape(forbidden.what)
    off = (
        rf"(?<![\w.-])(?:--?(?:no|disable|without|skip)[-_][\w-]{{0,40}}?{name}[\w-]{{0,40}}"
        rf"|[\w.-]{{0,40}}?{name}[\w.-]{{0,40}}['\"]?(?:[ \t]*[=:][ \t]*|[ \t]+)['\"]?"
        r"(?:false|0|no|none|off|null)(?![\w.]))"
    )
    rest = re.sub(off, " ", text, flags=re.I)
    return bool(re.search(rf"(?<![^\W_]){name}(?![^\W_])", rest, re.I))


def _code_lines(file_write: FileWrite) -> str:
    lines = file_write.content.splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def _module_run(simple: SimpleCommand) -> str:
    """The package whose module is run: `vllm` of `python -m vllm.serve`."""
    return simple.script.partition("/")[0].removesuffix(".py") if "-m" in simple.words else ""


def _call_text(call: ToolCall) -> str:
    return "\n".join([call.name, *map(str, call.arguments.values())])


class _ProhibitingGuidance(NamedTuple):
    """Guidance that forbids something."""

    step: int
    """The step whose observation it was joined to."""
    text: str
    forbidden: Prohibition
    pattern: re.Pattern[str] | None
    """Of the task, in place of what the words forbid."""

    @property
    def is_passing(self) -> bool:
        """Whether it is about this moment: a thing that is forbidden for good has a name."""
        return self.pattern is None and self.forbidden.is_passing


def contradicted_guidance(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
    """An action does what guidance forbids: after the guidance, or before it, where the guidance
    condemns what was done. Found in its words (`do not use X`, `stop …ing`, `avoid X`, `no X`,
    `leave X alone`; also files with X in them, and their runs; after `read X first` what is done
    before X is read) or by the task's patterns. Guidance that allows it again ends that. A call
    alone (`stop sleeping`, `do not finish`), and what is not to be done `first` or `for now`, is
    forbidden for the moment: what was done right before, in steps one after another, and what is
    done right after, until something else is done or a person speaks again; no sleep while a job
    runs. What is kept, removed or turned off (`cp`, `git`, `--x False`) is not used.
    """
    yield from _files_not_read_first(trace, settings)
    guidance = list(_prohibiting_guidance(trace, settings))
    events = agent_history(trace) if guidance else []
    for message in guidance:
        if message.pattern is not None:
            violations = list(violations_by_pattern(trace, events, message.pattern))
        else:
            violations = list(violations_by_words(trace, events, message.forbidden))
        if message.is_passing:
            violating = {violation.step for violation in violations}
            forbidden_steps = _steps_forbidden_for_now(trace, message, violating, settings)
        else:
            forbidden_steps = _steps_forbidden_for_good(trace, message, settings)
        for violation in violations:
            if violation.step in forbidden_steps:
                when = "before" if violation.step <= message.step else "after"
                source_text = (
                    f"{when} a person said in step {message.step}: {excerpt(message.text)}"
                )
                yield RuleFinding(violation.step, f"{violation.reason}, {source_text}")


def _files_not_read_first(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
    """Steps that act although a person wanted a file to be read first."""
    if not settings.guidance_found:
        return
    for at, step in enumerate(trace.steps):
        for guidance in step.guidance:
            for path in files_to_read_first(guidance.text):
                for number in _steps_before_reading(trace, at, path, settings.guidance_call_steps):
                    reason = f"{path} was not read first, as a person said in step {step.step}"
                    yield RuleFinding(number, f"{reason}: {excerpt(guidance.text)}")


def _steps_before_reading(trace: RolloutTrace, at: int, path: str, most: int) -> list[int]:
    acted: list[int] = []
    for record, step in trace.pairs[at + 1 :]:
        results = zip(step.calls, record.results, strict=True)
        if any(blind_edit_rule.shows_file(call, path, result.text) for call, result in results):
            return acted
        if any(can_change_files(call) for call in step.calls):
            acted.append(step.step)
        if len(acted) == most or record.guidance:
            return acted
    return acted


def _prohibiting_guidance(
    trace: RolloutTrace, settings: RuleSettings
) -> Iterator[_ProhibitingGuidance]:
    for step in trace.steps:
        for guidance in step.guidance:
            if settings.guidance_found:
                for forbidden in find_prohibitions(guidance.text):
                    yield _ProhibitingGuidance(step.step, guidance.text, forbidden, None)
            for pattern in settings.guidance:
                if re.search(pattern.said, guidance.text, re.I):
                    prohibition = Prohibition("any", pattern.action)
                    action = re.compile(pattern.action, re.I)
                    yield _ProhibitingGuidance(step.step, guidance.text, prohibition, action)


def _steps_forbidden_for_good(
    trace: RolloutTrace, message: _ProhibitingGuidance, settings: RuleSettings
) -> set[int]:
    """Steps that a lasting prohibition is about: until later guidance allows it again."""
    first = message.step - settings.guidance_steps
    later = (step for step in trace.steps if step.step > message.step)
    last = next((step.step for step in later if _allows_again(step, message)), float("inf"))
    return {step.step for step in trace.steps if first < step.step <= last}


def _allows_again(step: StepRecord, message: _ProhibitingGuidance) -> bool:
    permissions = (find_permissions(guidance.text) for guidance in step.guidance)
    allowed = (permission.what.lower() for permission in chain.from_iterable(permissions))
    return message.forbidden.what.lower() in allowed


def _steps_forbidden_for_now(
    trace: RolloutTrace, message: _ProhibitingGuidance, violating: set[int], settings: RuleSettings
) -> set[int]:
    """Steps that a passing prohibition is about, of those that did it."""
    acts = [
        step
        for step in trace.observed_steps
        if any(call.name not in THINKING_ACTIONS for call in step.calls)
    ]
    past = [step for step in acts if step.step <= message.step]
    coming = [step for step in acts if step.step > message.step]
    waits = _steps_with_running_jobs(trace) if message.forbidden.what == "sleep" else set[int]()
    forbidden_steps: set[int] = set()
    if past and past[-1].step == message.step and message.step not in violating:
        past.pop()  # a person spoke of the step before
    violating = violating - waits
    if message.forbidden.what != "sleep" or not any_starts_detached(past):  # it may have run
        for step in past[::-1][: settings.guidance_call_steps]:
            if step.step not in violating or step.step <= message.step - settings.guidance_steps:
                break
            forbidden_steps.add(step.step)
    guided_steps = {step.step for step in trace.steps if step.guidance}
    for step in coming[: settings.guidance_call_steps]:
        if step.step in violating:
            forbidden_steps.add(step.step)
        elif _does_something_else(step):
            break
        if step.step in guided_steps:
            break
    return forbidden_steps


def _steps_with_running_jobs(trace: RolloutTrace) -> set[int]:
    """Steps in which a command that was left running may have run."""
    running = all_jobs(trace)
    return {
        step.step
        for step in trace.observed_steps
        if any(
            job.step < step.step and (job.ended_in_step is None or job.ended_in_step >= step.step)
            for job in running
        )
    }


def _does_something_else(step: ObservedStep) -> bool:
    """Whether a step does something about it: it changes files, or runs what does not only show."""
    return step.changed is not False or any(
        call.name == RUN_COMMAND and not parsed_command(call).views for call in step.calls
    )
