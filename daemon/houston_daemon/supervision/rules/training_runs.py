"""Commands that train, or are given GPUs: which GPUs each uses, as far as the words say it.

Lines of the agent's shell scripts are runs like others (`history`); of a Python script it reads
which GPUs it takes by itself. What a configuration file says is not known.
"""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from houston_daemon.supervision.attention.window import cut
from houston_daemon.supervision.rules.history import Event, Ran, Wrote
from houston_daemon.supervision.rules.jobs import Key, left, where
from houston_daemon.supervision.rules.shell import Simple
from houston_daemon.supervision.trace import Trace

VISIBLE = "CUDA_VISIBLE_DEVICES"
_TRAINS = re.compile(
    r"(^|[\W_])(pre)?(train|sft|dpo|grpo|ppo|rlhf|finetune|fine_tune|fine-tune)(er|ing)?([\W_\d]|$)",
    re.I,
)
_LAUNCHERS = frozenset({"torchrun", "accelerate", "deepspeed"})
_TRAINERS = frozenset({"llamafactory-cli", "swift", "trl"})
_PROCESSES = re.compile(
    r"--?(?:nproc[_-]per[_-]node|num[_-]processes|num[_-]gpus|n[_-]?gpus?|gpus)\Z"
)
_INCLUDE = re.compile(r"(?:--include[= ])\S*?:([\d,]+)")
_SMALL = re.compile(
    r"(^|[\W_])(debug|dry|smoke|tiny|sanity)([\W_]|$)|--?max[_-]steps[= ]\d{1,2}( |$)"
)
"""A short run that only looks whether it works: systematic debugging is kept."""
_LORA = re.compile(r"(^|[\W_])(use[_-])?(q?lora|peft)(?![\w-]*[= ](?:false|none|0)\b)", re.I)
_LORA_CODE = re.compile(r"\bLoraConfig\(|\bget_peft_model\(")
_TAKES = re.compile(rf"{VISIBLE}[\"']\s*\]?\s*[=,]\s*[\"']([\d, ]*)[\"']")
"""Code that gives itself GPUs."""
_ASIDE = re.compile(r"(?<![&>|<])&(?![&>|])|\b(?:nohup|setsid|disown)\b")


class Use(NamedTuple):
    """A run and the GPUs that it is given."""

    step: int
    host: str
    known: bool
    """Whether its words say which GPUs, and not a variable or a program."""
    gpus: frozenset[str] | None
    """Which; None where nothing restricts it."""
    processes: int | None
    """How many of them it uses, where the command says so."""
    trains: bool
    lora: bool
    small: bool
    """Whether it only looks whether it works."""
    aside: bool
    """Whether its own command leaves it running in the background."""
    words: str
    file: Wrote | None
    """The file of the agent that says so, where that is not the command itself."""


def uses(trace: Trace, events: Iterable[Event], more: Iterable[str]) -> list[Use]:
    """Every run that trains or is given GPUs, in order. more: patterns of commands that train."""
    patterns = [re.compile(one, re.I) for one in more]
    runs: dict[int, list[Ran]] = {}
    for event in events:
        if isinstance(event, Ran):
            runs.setdefault(id(event.seen), []).append(event)
    devices: dict[Key, str] = {}
    found: list[Use] = []
    first = trace.task.hosts[0]
    for call in (one for step in trace.seen for one in step.calls):
        session = where(call, first)
        for ran in runs.get(id(call), ()):
            if ran.simple.program in ("", "export", "unset"):
                if ran.within is None and not ran.simple.apart:
                    _keep(ran.simple, session, devices)
            elif ran.source is None or not ran.script.endswith(".sh"):  # else its lines come
                seen = ran.simple.environment.get(VISIBLE, devices.get(session))
                found.append(_use(ran, seen, patterns))
        for gone in left(call, first):
            devices.pop(gone, None)
    return [use for use in found if use.trains or use.gpus is not None or not use.known]


def _keep(simple: Simple, session: Key, devices: dict[Key, str]) -> None:
    """Note what a session's programs see from here on."""
    if simple.program == "unset" and VISIBLE in simple.words:
        devices.pop(session, None)
    for value in _exported(simple):
        devices[session] = value


def _exported(simple: Simple) -> Iterator[str]:
    """What a session's programs see from here on."""
    for word in simple.words:
        name, equals, value = word.partition("=")
        if name == VISIBLE and equals:
            yield value
    if not simple.words and VISIBLE in simple.environment:
        yield simple.environment[VISIBLE]


def _use(event: Ran, devices: str | None, patterns: list[re.Pattern[str]]) -> Use:
    simple = event.simple
    words = " ".join(simple.words)
    code = event.source.content if event.source is not None else ""
    if taken := _TAKES.search(code):
        devices = taken[1]
    prefix = f"{VISIBLE}={devices} " if devices is not None else ""
    known = not any(sign in (devices or "") for sign in "$`")
    gpus = _gpus(devices) if known else None
    return Use(
        step=event.step,
        host=event.host,
        known=known,
        gpus=gpus,
        processes=_processes(simple, words, devices),
        trains=gpus != frozenset() and _trains(simple, words, patterns),
        lora=bool(_LORA.search(words) or _LORA_CODE.search(code)),
        small=bool(_SMALL.search(words)),
        aside=bool(_ASIDE.search(event.command)),
        words=cut(prefix + words),
        file=event.source if taken else event.within,
    )


def _trains(simple: Simple, words: str, patterns: list[re.Pattern[str]]) -> bool:
    if simple.views:
        return False
    name = simple.script.rpartition("/")[2]
    return (
        simple.program in _LAUNCHERS
        or bool(name and _TRAINS.search(name))
        or (simple.program in _TRAINERS and bool(_TRAINS.search(words)))
        or any(pattern.search(words) for pattern in patterns)
    )


def _gpus(devices: str | None) -> frozenset[str] | None:
    if devices is None:
        return None
    return frozenset(one.strip() for one in devices.split(",") if one.strip() not in ("", "-1"))


def _processes(simple: Simple, words: str, devices: str | None) -> int | None:
    """Processes that a command starts, one for each GPU."""
    if included := _INCLUDE.search(words):
        return len([one for one in included[1].split(",") if one])
    for at, word in enumerate(simple.words):
        name, equals, value = word.partition("=")
        if _PROCESSES.fullmatch(name):
            value = value if equals else "".join(simple.words[at + 1 : at + 2])
            return int(value) if value.isdigit() else None
    return 1 if simple.program == "torchrun" and devices is None else None
