"""The rule about commands that train on a part of the GPUs that are there."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from houston_daemon.supervision.attention.window import cut
from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.finding import Finding
from houston_daemon.supervision.rules.history import Ran, Wrote, history
from houston_daemon.supervision.rules.jobs import Job, jobs
from houston_daemon.supervision.rules.shell import Simple
from houston_daemon.supervision.trace import Trace
from houston_shared.task_rules import Rules

_TRAINS = re.compile(
    r"(^|[\W_])(pre)?(train|sft|dpo|grpo|ppo|rlhf|finetune|fine_tune|fine-tune)(er|ing)?([\W_\d]|$)",
    re.I,
)
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed"})
_PROCESSES = re.compile(
    r"--?(?:nproc[_-]per[_-]node|num[_-]processes|num[_-]gpus|n[_-]?gpus?|gpus)\Z"
)
_SMALL = re.compile(
    r"(^|[\W_])(debug|dry|smoke|tiny|sanity)([\W_]|$)|--?max[_-]steps[= ]\d{1,2}( |$)"
)
"""A short run that only looks whether it works: systematic debugging is kept."""
_LORA = re.compile(r"(^|[\W_])(use[_-])?(q?lora|peft)(?![\w-]*[= ](?:false|none|0)\b)", re.I)
_SHOWN = re.compile(r"^(?:\| +\d+ +NVIDIA |GPU \d+: )", re.M)
_NEAR = 3
"""Steps within which runs on other GPUs belong together: one is started after the other."""
_NODE = frozenset({"0"})


class _Use(NamedTuple):
    """A run and the GPUs that it is given."""

    step: int
    host: str
    gpus: frozenset[str] | None
    """Which, None where nothing restricts it."""
    processes: int | None
    """How many of them, where the command says so."""
    trains: bool
    lora: bool
    words: str
    small: bool


def idle_compute(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """A training command leaves GPUs of its host idle: by CUDA_VISIBLE_DEVICES, by the number of
    processes, or, where the task says so, by LoRA. Runs on the other GPUs at the same time are
    counted in; short runs that only try whether it works are none.
    """
    there = _gpus(trace, settings)
    uses = _uses(trace, settings)
    running = jobs(trace)
    for use in uses:
        total = there.get(use.host, 0)
        if not use.trains or use.small or total <= 1:
            continue
        used = _with_others(use, uses, running)
        named = (
            use.processes if use.processes is not None else len(used) if used is not None else total
        )
        if named < total and (used is None or len(used) < total):
            yield Finding(use.step, f"{named} of {total} GPUs are used: {use.words}")
        elif use.lora and 0 < settings.lora_gpus <= total:
            yield Finding(use.step, f"LoRA on a host with {total} GPUs: {use.words}")


def _gpus(trace: Trace, settings: Rules) -> dict[str, int]:
    """GPUs by the host that calls name: the first has no name there."""
    first = trace.task.hosts[0]
    known = {name: count for name, count in trace.gpus.items() if count}
    found = {("" if name == first else name): count for name, count in known.items()}
    if first in known:
        found[first] = known[first]
    if settings.gpus:
        for name in ("", *trace.task.hosts):
            found.setdefault(name, settings.gpus)
    for event in history(trace):
        if isinstance(event, Ran) and event.simple.program == "nvidia-smi":
            count = len(_SHOWN.findall(event.result.text))
            found |= {event.host: count} if count and event.host not in found else {}
    return found


def _uses(trace: Trace, settings: Rules) -> list[_Use]:
    """Every run that trains or is given GPUs, those inside of shell scripts of the agent, too."""
    more = [re.compile(one, re.I) for one in settings.training]
    scripts: dict[tuple[str, str], str] = {}
    sessions: dict[tuple[str, str], str] = {}
    found: list[_Use] = []
    for event in history(trace):
        if isinstance(event, Wrote):
            scripts[event.host, shell.normal(event.path)] = event.content
            continue
        session = (event.host, str(event.seen.arguments.get("session_id", "main")))
        devices = event.simple.environment.get("CUDA_VISIBLE_DEVICES", sessions.get(session))
        if not event.simple.words or event.simple.program == "export":
            if devices is not None:
                sessions[session] = devices
            assigned = [w for w in event.simple.words if w.startswith("CUDA_VISIBLE_DEVICES=")]
            if assigned:
                sessions[session] = assigned[-1].partition("=")[2]
            continue
        for simple in _inside(event, scripts):
            own = simple.environment.get("CUDA_VISIBLE_DEVICES", devices)
            found.append(_use(event, simple, own, more))
    return [use for use in found if use.trains or use.gpus is not None]


def _inside(event: Ran, scripts: dict[tuple[str, str], str]) -> list[Simple]:
    """A run, or the commands of the shell script that it runs."""
    if event.script.endswith(".sh"):
        for (host, path), content in scripts.items():
            if host == event.host and shell.same(path, event.script):
                return [one for one in shell.read(content).simple if one.words]
    return [event.simple]


def _use(event: Ran, simple: Simple, devices: str | None, more: list[re.Pattern[str]]) -> _Use:
    words = " ".join(simple.words)
    named = " ".join([simple.script.rpartition("/")[2], *simple.words[:4]])
    trains = not simple.views and (
        simple.program in _LAUNCHERS
        or bool(simple.script and _TRAINS.search(simple.script.rpartition("/")[2]))
        or bool(re.search(r"\b(?:llamafactory-cli|swift|trl) ", named) and _TRAINS.search(words))
        or any(pattern.search(words) for pattern in more)
    )
    count = _count(simple.words)
    gpus = None
    if devices is not None:
        gpus = frozenset(one.strip() for one in devices.split(",") if one.strip() not in ("", "-1"))
    elif simple.program == "torchrun" and count is None:
        count = 1  # its default
    return _Use(
        event.step, event.host, gpus, count, trains, bool(_LORA.search(words)),
        cut(f"{'CUDA_VISIBLE_DEVICES=' + devices + ' ' if devices is not None else ''}{words}"),
        bool(_SMALL.search(words)),
    )  # fmt: skip


def _count(words: tuple[str, ...]) -> int | None:
    """Processes that a command starts, one for each GPU."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not _PROCESSES.fullmatch(name):
            continue
        value = value if equals else words[at + 1] if at + 1 < len(words) else ""
        if value.isdigit():
            return int(value)
    return None


def _with_others(use: _Use, uses: list[_Use], running: list[Job]) -> frozenset[str] | None:
    """GPUs of a run and of those that go on beside it."""
    if use.gpus is None:
        return None
    used = use.gpus
    for other in uses:
        if other.gpus is None or other.host != use.host or other is use:
            continue
        near = abs(other.step - use.step) <= _NEAR
        if near or _beside(other.step, use.step, running):
            used |= other.gpus
    return used


def _beside(one: int, other: int, running: list[Job]) -> bool:
    """Whether a command of the one step still ran at the other, whichever was first."""
    first, second = sorted((one, other))
    return any(job.step == first and (job.end is None or job.end > second) for job in running)
