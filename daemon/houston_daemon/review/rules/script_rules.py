"""The rules of scripts: written instead of one that the task provides, or sampling with
transformers where vLLM is there.

A script is provided if the settings or the instructions name it, or if it was shown before anything
could have made it. An offending script is masked from its creation to every run, unless it makes
training data or was never run.
"""

import re
from collections.abc import Iterator

from houston_daemon.review.attention_signals import starts_detached
from houston_daemon.review.attention_window import ObservedCall, ObservedStep, command_of
from houston_daemon.review.rollout_trace import RolloutTrace, RuleFinding
from houston_daemon.review.rules import shell_commands
from houston_daemon.review.rules.shell_commands import name_of_path, normal_path
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
from houston_shared.records import StepRecord
from houston_shared.task_tables import RuleSettings

SCRIPT_PATH = re.compile(r"(?<![\w./-])[\w./-]*\w\.(?:py|sh)\b")
"""The path of a script."""
_SHELL_WRITES_SCRIPT = re.compile(r"(?:(?<!>)>|\btee)[ \t]*[\"']?([\w./-]+\.(?:py|sh))\b")
"""A script that the shell writes, not one to which it appends."""
_COPYING_PROGRAMS = frozenset({"cp", "mv", "ln", "install"})
_OUTSIDE_WORKSPACE = re.compile(r"(?<![\w.])(?:/(?!workspace\b|dev/null\b)|~|\.\./)")
"""A place that no snapshot shows."""


def provided_scripts(trace: RolloutTrace, settings: RuleSettings) -> dict[str, str]:
    """File names, each with a path: scripts that the settings name, that the instructions name and
    the agent did not create, or that were shown before anything could have made them.
    """
    created = {path for step in trace.steps for path in _created_scripts(step)}
    named = map(normal_path, SCRIPT_PATH.findall(trace.instructions))
    existing = [
        path for path in named if not any(is_path_of(other_path, path) for other_path in created)
    ]
    provided = {name_of_path(path): normal_path(path) for path in (*settings.provided, *existing)}
    for path in _first_shown_scripts(trace):
        provided.setdefault(name_of_path(path), normal_path(path))
    return provided


def is_path_of(path: str, script: str) -> bool:
    """Whether a path is that of a script."""
    return path == script or path.endswith(f"/{script}")


def _first_shown_scripts(trace: RolloutTrace) -> Iterator[str]:
    """Scripts that were shown while nothing could have made them."""
    own: set[str] = set()
    for record, observed in trace.pairs:
        own |= {name_of_path(path) for path in _created_scripts(record)}
        for result, call in zip(record.results, observed.calls, strict=True):
            if _may_make_scripts(call, observed):
                return  # also what it shows itself may be what it has just made
            if call.success:
                yield from (
                    path
                    for path in _shown_scripts(call, result.text)
                    if name_of_path(path) not in own
                )


def _created_scripts(record: StepRecord) -> Iterator[str]:
    """Scripts that a step made, in the workspace and as far as its words and its snapshot say."""
    closed = record.observation
    changes = {normal_path(file.path): file.kind for file in (closed.files if closed else ())}
    yield from (path for path, kind in changes.items() if kind == "added")
    for result in record.results:
        if result.success and result.fields.get("change") == "created":
            yield normal_path(str(result.fields.get("path", "")))
        if result.call.name == RUN_COMMAND:
            paths = map(normal_path, _scripts_written_by(command_of(result.call)))
            yield from (path for path in paths if changes.get(path) != "changed")


def _scripts_written_by(command: str) -> Iterator[str]:
    """Scripts that a command line names as what it writes."""
    yield from _SHELL_WRITES_SCRIPT.findall(command)
    if any(program in command for program in _COPYING_PROGRAMS):
        for program in shell_commands.parse_command(command).simple:
            *sources, last = program.words or ("",)
            copied = program.program in _COPYING_PROGRAMS and last.endswith((".py", ".sh"))
            if copied and name_of_path(last) not in map(name_of_path, sources):  # else it was there
                yield last


def _may_make_scripts(call: ObservedCall, step: ObservedStep) -> bool:
    """Whether a call could have made scripts whose names it does not tell."""
    if call.kind in ("file", "parsed") or not can_change_files(call):
        return False
    command = command_of(call)
    ended = call.fields.get("running") is not True and not starts_detached(command)
    return not (step.changed is False and ended and not _OUTSIDE_WORKSPACE.search(command))


def _shown_scripts(call: ObservedCall, text: str) -> list[str]:
    """Scripts that an observation shows to be there."""
    path = str(call.fields.get("path", ""))
    if call.kind == "file":
        return [] if call.fields.get("change") else SCRIPT_PATH.findall(path)
    if ".py" not in text and ".sh" not in text:
        return []
    if call.kind in ("listing", "found"):
        folder = f"{path}/" if call.kind == "listing" and path not in (".", "") else ""
        return [f"{folder}{name}" for name in SCRIPT_PATH.findall(text)]
    lists = call.kind == "command" and any(
        program.program in ("ls", "find", "tree") for program in parsed_command(call).simple
    )
    return SCRIPT_PATH.findall(text.partition("\n")[2]) if lists else []


_NAME_WORDS = re.compile(r"[A-Z]?[a-z]+|\d+")
_VARIANT_NAMES = (
    "new my own custom simple simplified fixed fix alt alternative copy modified mod improved"
    " better final v ver version basic manual direct hf transformers local tmp temp rewritten self"
)
_VARIANT_WORDS = frozenset(_VARIANT_NAMES.split())
"""Words that a name has more than the script it stands for; more GPUs or machines are none."""
_FOR_TRAINING = re.compile(
    r"rollout|rejection|\btrain(?:ing)?[_ -]?(?:set|data|split)"
    r"|\btrain\.(?:jsonl?|csv|tsv|parquet|txt)"
    r"|(?:split|subset)\W{1,4}train",
    re.I,
)
"""What serves the rollout of training data (APOLLO, appendix E: such a script is kept)."""
_LOADS_TRANSFORMERS = re.compile(
    r"\bAutoModel(?:For(?:CausalLM|Seq2SeqLM|Vision2Seq|ImageTextToText))?\.from_pretrained"
    r"|\bpipeline\(\s*[\"']text-?2?\w*gen"
)
_VLLM_CODE = re.compile(r"\bLLM\(")
"""A script that makes vLLM's engine samples with that; what else it loads, it may merge or save."""
_SAMPLES_TEXT = re.compile(r"\.generate\(|\bpipeline\(")
_TRAINS_MODEL = re.compile(r"\bTrainer\b|Trainer\(|\.backward\(|\boptim(?:izer)?\b|\bloss\b")
_VLLM = re.compile(r"\bvllm\b", re.I)
_NO_VLLM = re.compile(r"No module named '?vllm|vllm: command not found")


def ignored_script(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
    """The agent wrote a script of its own in place of one that the task gives, and ran that: its
    creation, its edits and its runs. Given is what the settings or the instructions name, and what
    was shown before any command could have made it. A script that uses the given one, that makes
    training data, or that is written because the given one fails is none; neither is one that was
    not run.
    """
    provided = provided_scripts(trace, settings)
    failed: set[str] = set()
    faults: dict[str, str] = {}
    ran: set[str] = set()
    events = agent_history(trace)
    for event in events:
        if isinstance(event, CommandRun):
            name = name_of_path(event.script)
            (failed.discard if event.call.success else failed.add)(name)
            ran |= {path for path in faults if shell_commands.same_path(path, event.script)}
        elif instead := _replaced_script(event, provided, failed):
            faults.setdefault(event.path, instead)

    def fault(file_write: FileWrite) -> str:
        return f"is run in place of {faults[file_write.path]}" if file_write.path in ran else ""

    yield from follow_faulty_files(events, fault)


def transformers_inference(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
    """A script samples with transformers where vLLM is there: from its creation, or the edit that
    makes it so, to every run. Scripts that train, or that sample with vLLM, are none.
    """
    if _has_vllm(trace, settings):
        events = agent_history(trace)
        yield from follow_faulty_files(
            events, lambda file_write: _transformers_sampling(file_write.content)
        )
        for event in events:
            if isinstance(event, CommandRun) and (
                reason := _transformers_sampling(event.program.inline)
            ):
                yield RuleFinding(event.step, f"a program on the command line {reason}")


def _transformers_sampling(content: str) -> str:
    inference = _LOADS_TRANSFORMERS.search(content) and _SAMPLES_TEXT.search(content)
    trains_or_serves = _TRAINS_MODEL.search(content) or _VLLM_CODE.search(content)
    return (
        "samples with transformers and not with vLLM" if inference and not trains_or_serves else ""
    )


def _has_vllm(trace: RolloutTrace, settings: RuleSettings) -> bool:
    gpus = any(trace.gpus.values()) or trace.task.mapped.gpus
    available = settings.vllm or gpus or bool(_VLLM.search(trace.instructions))
    texts = (result.text for step in trace.steps for result in step.results)
    return available and not any("vllm" in text and _NO_VLLM.search(text) for text in texts)


def _replaced_script(event: HistoryEvent, provided: dict[str, str], failed: set[str]) -> str:
    """The given script that a new file stands for; empty where it stands for none."""
    if not isinstance(event, FileWrite) or event.kind not in ("created", "shell"):
        return ""
    if not SCRIPT_PATH.fullmatch(event.name) or _FOR_TRAINING.search(event.content):
        return ""
    for name, path in provided.items():
        elsewhere = event.name == name and "/" in path and not is_path_of(event.path, path)
        if not elsewhere and (name == event.name or not _is_variant_name(event.name, name)):
            continue
        stem = name.rpartition(".")[0]
        uses = re.search(
            rf"\b{re.escape(name)}|\b(?:import|from)\s+[\w.]*\b{re.escape(stem)}\b", event.content
        )
        if not uses and name not in failed:
            return path
    return ""


def _is_variant_name(name: str, original: str) -> bool:
    """Whether a name is that of a given script and words that say `another`."""
    words, original_words = (
        {word.lower() for word in _NAME_WORDS.findall(file.rpartition(".")[0])}
        for file in (name, original)
    )
    more = words - original_words
    return (
        bool(original_words)
        and original_words <= words
        and all(word in _VARIANT_WORDS or word.isdigit() for word in more)
    )
