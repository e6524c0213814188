"""The table of the task file that says which rules mask steps, and how (docs/rules.md).

It knows no rule: names are checked where rules are (`supervision/rules/catalog`).
"""

import re
from collections.abc import Iterator
from typing import Annotated

import msgspec

from houston_shared.toml_file import Settings

RuleName = Annotated[str, msgspec.Meta(pattern="^[a-z][a-z0-9_]{0,39}$")]
Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=300)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Points = Annotated[float, msgspec.Meta(ge=0, le=100)]


class Contradiction(Settings, frozen=True):
    """`[[rules.guidance]]`: which actions contradict which guidance, as regular expressions without
    regard to case."""

    said: Pattern
    """Guidance that holds this forbids…"""
    action: Pattern
    """…actions that hold this: a name of a call, a command, a path, or text that is written."""


class Rules(Settings, frozen=True):
    """Which steps rules mask, so that nothing is learned from them (docs/rules.md)."""

    only: tuple[RuleName, ...] = ()
    """Rules that are looked at; empty for all."""
    off: tuple[RuleName, ...] = ()
    """Rules that are not."""
    packages: tuple[RuleName, ...] = ()
    """Rules that installed packages bring, which are looked at, too (docs/extending.md)."""
    error_patterns: tuple[Pattern, ...] = ()
    """`error_observation`: regular expressions; an observation with a line that one of them fits is
    an error, too."""
    blind_edit_steps: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 1
    """`blind_edit`: steps before an edit in which the file must have been looked at."""
    blind_replacements: bool = True
    """`blind_edit`: whether writing a whole file anew over one that is there is an edit."""
    provided: tuple[Pattern, ...] = ()
    """`ignored_script`: scripts that the task gives, as paths in the workspace, besides those that
    its instructions name and those that the agent found there."""
    vllm: bool = False
    """`transformers_inference`: vLLM is there. Left out, it is where the rollout has GPUs or the
    instructions name it."""
    gpus: Count = 0
    """`idle_compute`: GPUs of a host where the task leases none; 0: as many as `nvidia-smi` showed
    to the agent."""
    training: tuple[Pattern, ...] = ()
    """`idle_compute`: regular expressions of further commands that train."""
    lora_gpus: Count = 0
    """`idle_compute`: a host with at least so many GPUs is not for LoRA; 0: LoRA is never idle."""
    guidance: tuple[Contradiction, ...] = ()
    """`contradicted_guidance`: patterns besides those that guidance itself says, such as
    `{ said = "full fine-tuning", action = "lora" }`."""
    guidance_found: bool = True
    """`contradicted_guidance`: whether to find what guidance forbids in its words (`do not use
    X`)."""
    guidance_steps: Count = 10_000
    """`contradicted_guidance`: steps before the guidance that it may condemn; 0: it speaks only of
    what comes."""
    guidance_call_steps: Count = 3
    """`contradicted_guidance`: steps right before and right after guidance that forbids something
    for the moment (`stop sleeping`, `do not finish`) which it may condemn."""
    max_score: Points = 100.0
    """`after_best`: the highest score that this task can give; 100 is what surpasses the reference
    (APOLLO, appendices B.4 and E)."""
    high_score: Points = 50.0
    """`lowered_score`: only a best score above this is one to lose; from a lower one a drop is
    exploration."""
    score_drop: Points = 1.0
    """`lowered_score`: points below the best."""

    def trouble(self) -> str:
        """What no value of one key alone can say, as a sentence; empty where nothing is wrong."""
        if self.only and self.off:
            return "`rules.only` and `rules.off` are not given together."
        for key, pattern in self._patterns():
            try:
                re.compile(pattern)
            except re.error as problem:
                return f"`rules.{key}` has {pattern!r}, which is no regular expression: {problem}."
        return ""

    def _patterns(self) -> Iterator[tuple[str, str]]:
        yield from (("error_patterns", one) for one in self.error_patterns)
        yield from (("training", one) for one in self.training)
        for one in self.guidance:
            yield from (("guidance", one.said), ("guidance", one.action))
