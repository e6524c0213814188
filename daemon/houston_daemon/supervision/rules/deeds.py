"""Which steps of a rollout do what guidance forbids, whenever they do it.

A thing is run where it is the program or the script; it is used where a program is given it, or a
file has it in it. What keeps copies, removes, or turns it off uses nothing.
"""

import re
from collections.abc import Iterator

from houston_daemon.supervision.attention.window import THINKING, cut
from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.finding import Finding
from houston_daemon.supervision.rules.history import COMMAND, Event, Ran, Wrote, follow
from houston_daemon.supervision.rules.prohibitions import Forbidden
from houston_daemon.supervision.rules.shell import Simple
from houston_daemon.supervision.trace import Trace
from houston_shared.records import Call

_STEM = 5
"""Letters of a purpose that must be found: `infer` of inference."""
_KEEP = "cp mv tar git rsync scp zip unzip gzip gunzip rm rmdir mkdir touch chmod ln sed pkill kill"
_KEEPS = frozenset(_KEEP.split())
"""Programs that use nothing of what they name."""
_DROPS = re.compile(r"\bpip3?\s+(?:uninstall|show|list|freeze)\b")
_PROSE = (".md", ".rst", ".txt", ".log")
_SCRIPTS = (".py", ".sh")


def by_pattern(trace: Trace, events: list[Event], pattern: re.Pattern[str]) -> Iterator[Finding]:
    """Calls with text that a task's pattern fits; files with such lines, and their runs."""
    for step in trace.steps:
        for call in step.sample.calls:
            found = None if call.name in THINKING else pattern.search(_text(call))
            if found:
                yield Finding(step.step, cut(found[0]))

    def has(wrote: Wrote) -> str:
        found = pattern.search(_code(wrote))
        return f"has {cut(found[0])} in it" if found else ""

    yield from follow(events, has)


def by_words(trace: Trace, events: list[Event], forbidden: Forbidden) -> Iterator[Finding]:
    """Steps that do what plain words forbid."""
    for step in trace.steps:
        if why := next((why for call in step.sample.calls if (why := _does(call, forbidden))), ""):
            yield Finding(step.step, why)
    if forbidden.manner not in ("use", "run"):
        return
    does = _uses if forbidden.manner == "use" else _runs
    for event in events:
        if isinstance(event, Ran) and does(event, forbidden):
            yield Finding(event.step, f"{COMMAND} with {forbidden.words}")
    if forbidden.manner == "use":
        yield from follow(events, lambda wrote: _holds(wrote, forbidden))


def _does(call: Call, forbidden: Forbidden) -> str:
    """In words, what of a call by itself is forbidden; empty where nothing is."""
    if call.name in THINKING:
        return ""
    manner = forbidden.manner
    if call.name.lower() == forbidden.what.lower() and manner in ("call", "use", "run"):
        return call.name
    if manner not in ("write", "read", "touch") or not _fits(forbidden, _text(call)):
        return ""
    does = call.name == "open_file"
    if manner == "write" or (manner == "touch" and call.name != "open_file"):
        does = _writes(call, forbidden.what)
    if manner == "touch" and call.name == COMMAND:
        read = shell.read(str(call.arguments.get("command", ""))).simple
        does = any(shell.same(one.of(word), forbidden.what) for one in read for word in one.words)
    return f"{call.name} with {forbidden.words}" if does else ""


def _runs(ran: Ran, forbidden: Forbidden) -> bool:
    """Whether it is the program or the script that is run, with the words that are forbidden."""
    wanted = [one for one in shell.read(forbidden.what).simple if one.words]
    if len(wanted) != 1:
        return False
    what, simple = wanted[0], ran.simple
    if what.script:
        named = bool(simple.script) and shell.same(simple.script, what.script)
    else:
        named = what.program in (simple.program, _stem(simple.script), _module(simple))
    more = {word for word in what.words[1:] if not word.endswith(_SCRIPTS)}
    return named and more <= set(simple.words) and _purpose(forbidden, ran.command)


def _uses(ran: Ran, forbidden: Forbidden) -> bool:
    """Whether a program that does something is given it."""
    simple, words = ran.simple, " ".join(ran.simple.words)
    if ran.within or simple.views or simple.program in _KEEPS or _DROPS.search(words):
        return False
    given = [f"{name}={value}" for name, value in simple.environment.items()]
    named = _names(forbidden, "\n".join([words, simple.inline, *given]))
    return named and _purpose(forbidden, ran.command)


def _holds(wrote: Wrote, forbidden: Forbidden) -> str:
    """Whether a file has in it what is forbidden; neither comments nor texts to read count."""
    if wrote.path.endswith(_PROSE):
        return ""
    fits = _fits(forbidden, f"{wrote.path}\n{_code(wrote)}")
    return f"uses {forbidden.words}" if fits else ""


def _writes(call: Call, what: str) -> bool:
    """Whether a call changes the file of this name."""
    if call.name == COMMAND:
        command = shell.read(str(call.arguments.get("command", "")))
        written = [one.path for one in command.texts]
        written += [path for one in command.simple for path in _changed(one)]
        return any(shell.same(path, what) for path in written)
    path = str(call.arguments.get("path") or call.arguments.get("filename") or "")
    return call.name in ("edit_file", "create_file") and shell.same(path, what)


def _changed(simple: Simple) -> list[str]:
    """Files that a program changes or takes away. A copy of a file beside itself changes none."""
    paths = [simple.of(word) for word in simple.words[1:] if not word.startswith("-")]
    if simple.program in ("rm", "mv", "truncate"):
        return paths
    if simple.program == "cp" and len(paths) > 1:
        kept = any(shell.same(paths[-1], one) for one in paths[:-1])
        return [] if kept else paths[-1:]
    return list(simple.changes)


def _fits(forbidden: Forbidden, text: str) -> bool:
    """Whether a text names it, and its purpose where it has one."""
    return _names(forbidden, text) and _purpose(forbidden, text)


def _purpose(forbidden: Forbidden, text: str) -> bool:
    return forbidden.purpose[:_STEM] in text.lower()


def _names(forbidden: Forbidden, text: str) -> bool:
    """Whether a text names it (`lora` also in `use_lora`) and does not only turn it off."""
    if forbidden.what.casefold() not in text.casefold():  # most texts, and 10 times as fast
        return False
    name = re.escape(forbidden.what)
    off = (
        rf"(?<![\w.-])(?:--?(?:no|disable|without|skip)[-_][\w-]{{0,40}}?{name}[\w-]{{0,40}}"
        rf"|[\w.-]{{0,40}}?{name}[\w.-]{{0,40}}['\"]?(?:[ \t]*[=:][ \t]*|[ \t]+)['\"]?"
        r"(?:false|0|no|none|off|null)(?![\w.]))"
    )
    left = re.sub(off, " ", text, flags=re.I)
    return bool(re.search(rf"(?<![^\W_]){name}(?![^\W_])", left, re.I))


def _code(wrote: Wrote) -> str:
    lines = wrote.content.splitlines()
    return "\n".join(line for line in lines if not line.lstrip().startswith("#"))


def _stem(script: str) -> str:
    return script.rpartition("/")[2].rpartition(".")[0]


def _module(simple: Simple) -> str:
    """The package whose module is run: `vllm` of `python -m vllm.serve`."""
    return simple.script.partition("/")[0].removesuffix(".py") if "-m" in simple.words else ""


def _text(call: Call) -> str:
    return "\n".join([call.name, *map(str, call.arguments.values())])
