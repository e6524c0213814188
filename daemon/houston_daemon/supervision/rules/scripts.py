"""Rules about the scripts that an agent writes and runs: instead of one that the task gives, or
with transformers where vLLM should sample.
"""

import re
from collections.abc import Iterator

from houston_daemon.supervision.rules import shell
from houston_daemon.supervision.rules.finding import Finding
from houston_daemon.supervision.rules.given import SCRIPT, file_name, provided, there
from houston_daemon.supervision.rules.history import Event, Ran, Wrote, follow, history
from houston_daemon.supervision.trace import Trace
from houston_shared.task_rules import Rules

_WORDS = re.compile(r"[A-Z]?[a-z]+|\d+")
_MORE = (
    "new my own custom simple simplified fixed fix alt alternative copy modified mod improved"
    " better final v ver version basic manual direct hf transformers local tmp temp rewritten self"
)
_VARIANTS = frozenset(_MORE.split())
"""Words that a name has more than the script it stands for; more GPUs or machines are none."""
_FOR_TRAINING = re.compile(
    r"rollout|rejection|\btrain(?:ing)?[_ -]?(?:set|data|split)"
    r"|\btrain\.(?:jsonl?|csv|tsv|parquet|txt)"
    r"|(?:split|subset)\W{1,4}train",
    re.I,
)
"""What serves the rollout of training data (APOLLO, appendix E: such a script is kept)."""
_LOADS = re.compile(
    r"\bAutoModel(?:For(?:CausalLM|Seq2SeqLM|Vision2Seq|ImageTextToText))?\.from_pretrained"
    r"|\bpipeline\(\s*[\"']text-?2?\w*gen"
)
_VLLM_CODE = re.compile(r"\bLLM\(")
"""A script that makes vLLM's engine samples with that; what else it loads, it may merge or save."""
_SAMPLES = re.compile(r"\.generate\(|\bpipeline\(")
_TRAINS = re.compile(r"\bTrainer\b|Trainer\(|\.backward\(|\boptim(?:izer)?\b|\bloss\b")
_VLLM = re.compile(r"\bvllm\b", re.I)
_NO_VLLM = re.compile(r"No module named '?vllm|vllm: command not found")


def ignored_script(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """The agent wrote a script of its own in place of one that the task gives, and ran that: its
    creation, its edits and its runs. Given is what the settings or the instructions name, and what
    was shown before any command could have made it. A script that uses the given one, that makes
    training data, or that is written because the given one fails is none; neither is one that was
    not run.
    """
    given = provided(trace, settings)
    failed: set[str] = set()
    faults: dict[str, str] = {}
    ran: set[str] = set()
    events = history(trace)
    for event in events:
        if isinstance(event, Ran):
            name = file_name(event.script)
            (failed.discard if event.seen.success else failed.add)(name)
            ran |= {path for path in faults if shell.same(path, event.script)}
        elif instead := _instead(event, given, failed):
            faults.setdefault(event.path, instead)

    def fault(wrote: Wrote) -> str:
        return f"is run in place of {faults[wrote.path]}" if wrote.path in ran else ""

    yield from follow(events, fault)


def transformers_inference(trace: Trace, settings: Rules) -> Iterator[Finding]:
    """A script samples with transformers where vLLM is there: from its creation, or the edit that
    makes it so, to every run. Scripts that train, or that sample with vLLM, are none.
    """
    if _has_vllm(trace, settings):
        events = history(trace)
        yield from follow(events, lambda wrote: _slow(wrote.content))
        for event in events:
            if isinstance(event, Ran) and (why := _slow(event.simple.inline)):
                yield Finding(event.step, f"a program on the command line {why}")


def _slow(content: str) -> str:
    inference = _LOADS.search(content) and _SAMPLES.search(content)
    other = _TRAINS.search(content) or _VLLM_CODE.search(content)
    return "samples with transformers and not with vLLM" if inference and not other else ""


def _has_vllm(trace: Trace, settings: Rules) -> bool:
    gpus = any(trace.gpus.values()) or trace.task.mapped.gpus
    there = settings.vllm or gpus or bool(_VLLM.search(trace.instructions))
    texts = (result.text for step in trace.steps for result in step.results)
    return there and not any("vllm" in text and _NO_VLLM.search(text) for text in texts)


def _instead(event: Event, given: dict[str, str], failed: set[str]) -> str:
    """The given script that a new file stands for; empty where it stands for none."""
    if not isinstance(event, Wrote) or event.how not in ("created", "shell"):
        return ""
    if not SCRIPT.fullmatch(event.name) or _FOR_TRAINING.search(event.content):
        return ""
    for name, path in given.items():
        elsewhere = event.name == name and "/" in path and not there(event.path, path)
        if not elsewhere and (name == event.name or not _variant(event.name, name)):
            continue
        stem = name.rpartition(".")[0]
        uses = re.search(
            rf"\b{re.escape(name)}|\b(?:import|from)\s+[\w.]*\b{re.escape(stem)}\b", event.content
        )
        if not uses and name not in failed:
            return path
    return ""


def _variant(name: str, given: str) -> bool:
    """Whether a name is that of a given script and words that say `another`."""
    mine = [word.lower() for word in _WORDS.findall(name.rpartition(".")[0])]
    theirs = [word.lower() for word in _WORDS.findall(given.rpartition(".")[0])]
    more = set(mine) - set(theirs)
    return (
        set(theirs) <= set(mine)
        and bool(theirs)
        and all(word in _VARIANTS or word.isdigit() for word in more)
    )
