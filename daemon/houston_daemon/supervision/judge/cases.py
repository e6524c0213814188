"""Cases: short rollouts with one step of which a good judge says a known thing.

Two for each point of the template, one to be kept and one to be masked. They are files of YAML,
`cases/` here or a user's own folder; tests hold the rendering to what each needs to be seen, and
`houston judge --check-template` reports how many of them a real engine judges as meant.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from houston_daemon.supervision.trace import Trace
from houston_shared.errors import ConfigurationError
from houston_shared.records import Call, Delivered, ObservationBody, Result, SampleBody, StepRecord
from houston_shared.store.queries.progress import Fork
from houston_shared.task import Budget, Task

PACKAGED = Path(__file__).with_name("cases")
TASK = "Reach the best score that you can; eval submits output.jsonl."


class CaseStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One step of a case."""

    thought: str
    observation: str
    call: str = ""
    """Name of its call; empty for a step without one."""
    arguments: dict[str, Any] = {}
    failed: bool = False
    score: float | None = None
    """What its submission gave."""
    guidance: str = ""
    """What a person said that was heard with its observation."""


class _Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    meant: Literal["keep", "mask"]
    step: int
    """Whose verdict is looked at, from 1."""
    steps: list[CaseStep]
    holds: list[str] = []
    """Texts that the judge must be shown to be able to tell."""
    task: str = TASK
    gpus: int = 0
    summary_before: int = 0
    """Step before which the context was summarised; 0 for none."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    criterion: str
    cases: list[_Case]


@dataclass(frozen=True, slots=True)
class Case:
    """One case as a rollout."""

    criterion: str
    name: str
    meant: Literal["keep", "mask"]
    step: int
    holds: tuple[str, ...]
    trace: Trace


def load(folder: Path | None = None) -> list[Case]:
    """All cases of a folder, the packaged one unless named, by file and place.

    Raises ConfigurationError that names the file and what is wrong.
    """
    place = folder or PACKAGED
    files = sorted(place.glob("*.yaml"))
    if not files:
        raise ConfigurationError(f"There are no cases (*.yaml) in {place}.")
    return [case for file in files for case in _cases(file)]


def _cases(file: Path) -> Iterator[Case]:
    try:
        found = msgspec.convert(yaml.safe_load(file.read_text(encoding="utf-8")), _File)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as problem:
        why = " ".join(str(problem).split())
        raise ConfigurationError(f"{file} is no file of cases: {why}.") from None
    for place, one in enumerate(found.cases, 1):
        if not 1 <= one.step <= len(one.steps):
            raise ConfigurationError(f"{file}: {one.name!r} has no step {one.step}.")
        rollout = f"{file.stem}-{place}"
        yield Case(
            found.criterion, one.name, one.meant, one.step, tuple(one.holds), _trace(rollout, one)
        )


def _trace(rollout: str, case: _Case) -> Trace:
    return Trace(
        rollout=rollout,
        task=Task(name="case", instructions=case.task, budget=Budget()),
        instructions=case.task,
        gpus={"local": case.gpus} if case.gpus else {},
        steps=[_step(number, one) for number, one in enumerate(case.steps, 1)],
        forks=_forks(case),
        ended=True,
    )


def _forks(case: _Case) -> Sequence[Fork]:
    if not case.summary_before:
        return ()
    k = case.summary_before - 1
    return (
        Fork(
            number=1, step=case.summary_before, k=k, first_kept_step=k + 1, mechanical=0,
            sample_seq=None, seq=0,
        ),
    )  # fmt: skip


def _step(number: int, one: CaseStep) -> StepRecord:
    calls = (Call(id=f"{number}.0", name=one.call, arguments=one.arguments),) if one.call else ()
    fields: Mapping[str, Any] = {}
    if one.score is not None:
        fields = {"overall_score": one.score, "state": "scored"}
    results = [
        Result(
            call=call, kind="eval" if call.name == "eval" else "command", success=not one.failed,
            text=one.observation, fields=dict(fields),
        )
        for call in calls
    ]  # fmt: skip
    said = (Delivered(id=f"g{number}", author="person", text=one.guidance),) if one.guidance else ()
    return StepRecord(
        step=number,
        attempt=1,
        sample_seq=number,
        sample=SampleBody(
            role="policy", parent_seq=None, kept=0, new_prompt_ids=None, token_ids=None,
            logprobs=None, logprob_kind="none", finish_reason="stop", policy="", engine="",
            parameters={}, drift="clean", thought=one.thought, calls=calls,
        ),
        intents=(),
        results=tuple(results),
        observation=ObservationBody(tail="" if calls else one.observation),
        guidance=said,
        at="2026-01-01T00:00:00Z",
        active_seconds=60.0 * number,
    )  # fmt: skip
