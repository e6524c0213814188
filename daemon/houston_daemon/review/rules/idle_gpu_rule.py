"""The rule of training commands that leave GPUs of their host idle.

It reads which GPUs each training run is given: from CUDA_VISIBLE_DEVICES, the number of
processes, and scripts that set them. Runs on the other GPUs at the same time are counted in;
short trial runs are not held against a step. What a configuration file says is not known.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

from houston_daemon.review.attention_window import excerpt
from houston_daemon.review.rollout_trace import RolloutTrace, RuleFinding
from houston_daemon.review.rules.background_jobs import (
    BackgroundJob,
    SessionKey,
    all_jobs,
    renewed_sessions,
    session_of_call,
)
from houston_daemon.review.rules.shell_commands import SimpleCommand, name_of_path
from houston_daemon.review.rules.written_files import (
    CommandRun,
    FileWrite,
    HistoryEvent,
    agent_history,
)
from houston_shared.task_tables import RuleSettings

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
_TRAINING_NAME = re.compile(
    r"(^|[\W_])(pre)?(train|sft|dpo|grpo|ppo|rlhf|finetune|fine_tune|fine-tune)(er|ing)?([\W_\d]|$)",
    re.I,
)
_LAUNCHER_PROGRAMS = frozenset({"torchrun", "accelerate", "deepspeed"})
_TRAINER_PROGRAMS = frozenset({"llamafactory-cli", "swift", "trl"})
_PROCESS_COUNT_FLAG = re.compile(
    r"--?(?:nproc[_-]per[_-]node|num[_-]processes|num[_-]gpus|n[_-]?gpus?|gpus)\Z"
)
_DEEPSPEED_INCLUDE = re.compile(r"(?:--include[= ])\S*?:([\d,]+)")
_TRIAL_RUN = re.compile(
    r"(^|[\W_])(debug|dry|smoke|tiny|sanity)([\W_]|$)|--?max[_-]steps[= ]\d{1,2}( |$)"
)
"""A short run that only looks whether it works: systematic debugging is kept."""
_LORA_FLAG = re.compile(
    r"(^|[\W_])(use[_-])?(q?lora|peft)(?![\w-]{0,40}[= ](?:false|none|0)\b)", re.I
)
_LORA_CODE = re.compile(r"\bLoraConfig\(|\bget_peft_model\(")
_SETS_VISIBLE_DEVICES = re.compile(rf"{VISIBLE_DEVICES}[\"']\s*\]?\s*[=,]\s*[\"']([\d, ]*)[\"']")
"""Code that gives itself GPUs."""
_IN_BACKGROUND = re.compile(r"(?<![&>|<])&(?![&>|])|\b(?:nohup|setsid|disown)\b")


class GpuUse(NamedTuple):
    """A run and the GPUs that it is given."""

    step: int
    host: str
    gpus_known: bool
    """Whether its words say which GPUs, and not a variable or a program."""
    gpus: frozenset[str] | None
    """Which; None where nothing restricts it."""
    processes: int | None
    """How many of them it uses, where the command says so."""
    trains: bool
    lora: bool
    is_trial: bool
    """Whether it only looks whether it works."""
    in_background: bool
    """Whether its own command leaves it running in the background."""
    words: str
    script: FileWrite | None
    """The file of the agent that says so, where that is not the command itself."""


def gpu_uses(
    trace: RolloutTrace, events: Iterable[HistoryEvent], more: Iterable[str]
) -> list[GpuUse]:
    """Every run that trains or is given GPUs, in order. more: patterns of commands that train."""
    patterns = [re.compile(pattern, re.I) for pattern in more]
    runs: dict[int, list[CommandRun]] = {}
    for event in events:
        if isinstance(event, CommandRun):
            runs.setdefault(id(event.call), []).append(event)
    devices: dict[SessionKey, str] = {}
    uses: list[GpuUse] = []
    first = trace.task.hosts[0]
    for call in (call for step in trace.observed_steps for call in step.calls):
        session = session_of_call(call, first)
        for run in runs.get(id(call), ()):
            if run.program.program in ("", "export", "unset"):
                if run.in_script is None and not run.program.in_subshell:
                    _note_exports(run.program, session, devices)
            elif run.source is None or not run.script.endswith(".sh"):  # else its lines come
                visible = run.program.environment.get(VISIBLE_DEVICES, devices.get(session))
                uses.append(_gpu_use(run, visible, patterns))
        for renewed in renewed_sessions(call, first):
            devices.pop(renewed, None)
    return [use for use in uses if use.trains or use.gpus is not None or not use.gpus_known]


def _note_exports(
    simple: SimpleCommand, session: SessionKey, devices: dict[SessionKey, str]
) -> None:
    """Note what a session's programs see from here on."""
    if simple.program == "unset" and VISIBLE_DEVICES in simple.words:
        devices.pop(session, None)
    for value in _exported_devices(simple):
        devices[session] = value


def _exported_devices(simple: SimpleCommand) -> Iterator[str]:
    """What a session's programs see from here on."""
    for word in simple.words:
        name, equals, value = word.partition("=")
        if name == VISIBLE_DEVICES and equals:
            yield value
    if not simple.words and VISIBLE_DEVICES in simple.environment:
        yield simple.environment[VISIBLE_DEVICES]


def _gpu_use(event: CommandRun, devices: str | None, patterns: list[re.Pattern[str]]) -> GpuUse:
    simple = event.program
    words = " ".join(simple.words)
    code = event.source.content if event.source is not None else ""
    if match := _SETS_VISIBLE_DEVICES.search(code):
        devices = match[1]
    prefix = f"{VISIBLE_DEVICES}={devices} " if devices is not None else ""
    gpus_known = not any(sign in (devices or "") for sign in "$`")
    gpus = _listed_gpus(devices) if gpus_known else None
    return GpuUse(
        step=event.step,
        host=event.host,
        gpus_known=gpus_known,
        gpus=gpus,
        processes=_process_count(simple, words, devices),
        trains=gpus != frozenset() and _is_training(simple, words, patterns),
        lora=bool(_LORA_FLAG.search(words) or _LORA_CODE.search(code)),
        is_trial=bool(_TRIAL_RUN.search(words)),
        in_background=bool(_IN_BACKGROUND.search(event.command)),
        words=excerpt(prefix + words),
        script=event.source if match else event.in_script,
    )


def _is_training(simple: SimpleCommand, words: str, patterns: list[re.Pattern[str]]) -> bool:
    if simple.views:
        return False
    name = name_of_path(simple.script)
    return (
        simple.program in _LAUNCHER_PROGRAMS
        or bool(name and _TRAINING_NAME.search(name))
        or (simple.program in _TRAINER_PROGRAMS and bool(_TRAINING_NAME.search(words)))
        or any(pattern.search(words) for pattern in patterns)
    )


def _listed_gpus(devices: str | None) -> frozenset[str] | None:
    if devices is None:
        return None
    return frozenset(gpu.strip() for gpu in devices.split(",") if gpu.strip() not in ("", "-1"))


def _process_count(simple: SimpleCommand, words: str, devices: str | None) -> int | None:
    """Processes that a command starts, one for each GPU."""
    if included := _DEEPSPEED_INCLUDE.search(words):
        return len([gpu for gpu in included[1].split(",") if gpu])
    for at, word in enumerate(simple.words):
        name, equals, value = word.partition("=")
        if _PROCESS_COUNT_FLAG.fullmatch(name):
            value = value if equals else "".join(simple.words[at + 1 : at + 2])
            return int(value) if value.isdigit() else None
    return 1 if simple.program == "torchrun" and devices is None else None


_NVIDIA_SMI_GPU = re.compile(r"^(?:\| +\d+ +NVIDIA |GPU \d+: )", re.M)
JobEndSteps: TypeAlias = Mapping[int, float]
"""By step that left a command running, the step that saw it ended; infinity where none did."""
_BACKGROUND_STEPS = 3
"""Steps after which nobody knows any more whether a command in the background still runs."""


def idle_compute(trace: RolloutTrace, settings: RuleSettings) -> Iterator[RuleFinding]:
    """A training command leaves GPUs of its host idle: by CUDA_VISIBLE_DEVICES, by the number of
    processes, or, where the task says so, by LoRA; also where the agent's script says it, which is
    masked too. Runs on the other GPUs at the same time are counted in; short runs that only try
    whether it works are none, and what a variable names is not known.
    """
    events = agent_history(trace)
    gpus_of_host = _gpus_by_host(trace, settings, events)
    uses = gpu_uses(trace, events, settings.training)
    ends = _job_ends(all_jobs(trace))
    for use in uses:
        total = gpus_of_host.get(use.host, 0)
        if not use.trains or not use.gpus_known or use.is_trial or total <= 1:
            continue
        if reason := _idle_reason(use, total, uses, ends, settings.lora_gpus):
            yield RuleFinding(use.step, reason)
            if use.script is not None:
                yield RuleFinding(
                    use.script.step, f"{use.script.path}, run in step {use.step}: {reason}"
                )


def _idle_reason(use: GpuUse, total: int, uses: list[GpuUse], ends: JobEndSteps, lora: int) -> str:
    """How a run leaves GPUs idle, in words; empty where it does not."""
    used = total if use.gpus is None else len(use.gpus)
    used = used if use.processes is None else min(used, use.processes)
    same_host_uses = (other for other in uses if other.host == use.host and other is not use)
    overlapping = [other_use for other_use in same_host_uses if _overlap(other_use, use, ends)]
    if not all(other_use.gpus_known for other_use in overlapping):
        return ""
    if used + len(_gpus_of_others(use, overlapping)) < total:
        return f"{used} of {total} GPUs are used: {use.words}"
    if use.lora and 0 < lora <= total:
        return f"LoRA on a host with {total} GPUs: {use.words}"
    return ""


def _gpus_of_others(use: GpuUse, other_uses: list[GpuUse]) -> frozenset[str]:
    """GPUs, none of the run's own, of what goes on beside it."""
    used = (other_use.gpus or frozenset() for other_use in other_uses)
    return frozenset[str]().union(*used) - (use.gpus or frozenset())


def _overlap(use: GpuUse, other_use: GpuUse, ends: JobEndSteps) -> bool:
    """Whether two runs went on at the same time, whichever began first."""
    first, second = sorted((use, other_use), key=lambda run: run.step)
    if first.step == second.step or (
        first.in_background and second.step - first.step <= _BACKGROUND_STEPS
    ):
        return True
    return ends.get(first.step, 0) > second.step


def _job_ends(running: list[BackgroundJob]) -> JobEndSteps:
    ends: dict[int, float] = {}
    for job in running:
        end = float("inf") if job.ended_in_step is None else job.ended_in_step
        ends[job.step] = max(ends.get(job.step, 0), end)
    return ends


def _gpus_by_host(
    trace: RolloutTrace, settings: RuleSettings, events: list[HistoryEvent]
) -> dict[str, int]:
    """GPUs by the host that calls name; the first has no name where none is given."""
    first = trace.task.hosts[0]
    counts = {name: count for name, count in trace.gpus.items() if count}
    if first in counts:
        counts[""] = counts[first]
    if settings.gpus:
        for name in ("", *trace.task.hosts):
            counts.setdefault(name, settings.gpus)
    for event in events:
        if not isinstance(event, CommandRun) or event.program.program != "nvidia-smi":
            continue
        if count := len(_NVIDIA_SMI_GPU.findall(event.result.text)):
            counts.setdefault(event.host, count)
    return counts
