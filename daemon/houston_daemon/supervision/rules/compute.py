"""The rule about commands that train on a part of the GPUs that are there."""

import re
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from houston_daemon.supervision.rules.finding import Finding
from houston_daemon.supervision.rules.history import Event, Ran, history
from houston_daemon.supervision.rules.jobs import Job, jobs
from houston_daemon.supervision.rules.training_runs import Use, uses
from houston_daemon.supervision.trace import Trace
from houston_shared.task_rules import Rules

_SHOWN = re.compile(r"^(?:\| +\d+ +NVIDIA |GPU \d+: )", re.M)
Ends: TypeAlias = Mapping[int, float]
"""By step that left a command running, the step that saw it ended; infinity where none did."""
_NEAR = 3
"""Steps after which nobody knows any more whether a command in the background still runs."""


def idle_compute(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """A training command leaves GPUs of its host idle: by CUDA_VISIBLE_DEVICES, by the number of
    processes, or, where the task says so, by LoRA; also where the agent's script says it, which is
    masked too. Runs on the other GPUs at the same time are counted in; short runs that only try
    whether it works are none, and what a variable names is not known.
    """
    events = history(trace)
    there = _there(trace, settings, events)
    found = uses(trace, events, settings.training)
    ends = _ends(jobs(trace))
    for use in found:
        total = there.get(use.host, 0)
        if not use.trains or not use.known or use.small or total <= 1:
            continue
        if why := _idle(use, total, found, ends, settings.lora_gpus):
            yield Finding(use.step, why)
            if use.file is not None:
                yield Finding(use.file.step, f"{use.file.path}, run in step {use.step}: {why}")


def _idle(use: Use, total: int, among: list[Use], ends: Ends, lora: int) -> str:
    """How a run leaves GPUs idle, in words; empty where it does not."""
    mine = total if use.gpus is None else len(use.gpus)
    mine = mine if use.processes is None else min(mine, use.processes)
    there = (one for one in among if one.host == use.host and one is not use)
    beside = [one for one in there if _beside(one, use, ends)]
    if not all(one.known for one in beside):
        return ""
    if mine + len(_others(use, beside)) < total:
        return f"{mine} of {total} GPUs are used: {use.words}"
    if use.lora and 0 < lora <= total:
        return f"LoRA on a host with {total} GPUs: {use.words}"
    return ""


def _others(use: Use, beside: list[Use]) -> frozenset[str]:
    """GPUs, none of the run's own, of what goes on beside it."""
    used = (one.gpus or frozenset() for one in beside)
    return frozenset[str]().union(*used) - (use.gpus or frozenset())


def _beside(one: Use, other: Use, ends: Ends) -> bool:
    """Whether two runs went on at the same time, whichever began first."""
    first, second = sorted((one, other), key=lambda use: use.step)
    if first.step == second.step or (first.aside and second.step - first.step <= _NEAR):
        return True
    return ends.get(first.step, 0) > second.step


def _ends(running: list[Job]) -> Ends:
    ends: dict[int, float] = {}
    for job in running:
        end = float("inf") if job.end is None else job.end
        ends[job.step] = max(ends.get(job.step, 0), end)
    return ends


def _there(trace: Trace, settings: Rules, events: list[Event]) -> dict[str, int]:
    """GPUs by the host that calls name; the first has no name where none is given."""
    first = trace.task.hosts[0]
    found = {name: count for name, count in trace.gpus.items() if count}
    if first in found:
        found[""] = found[first]
    if settings.gpus:
        for name in ("", *trace.task.hosts):
            found.setdefault(name, settings.gpus)
    for event in events:
        if not isinstance(event, Ran) or event.simple.program != "nvidia-smi":
            continue
        if count := len(_SHOWN.findall(event.result.text)):
            found.setdefault(event.host, count)
    return found
