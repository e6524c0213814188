"""Results of `houston evaluate` and `houston suite run`, as files of a home: reads them, and
compares a policy before and after.

The daemon's `suites` computes statistics (pass@k, intervals over worlds, tests). Here are only the
figures for a list or a screen: shares that were solved, and which worlds changed.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from houston_shared.errors import HoustonError, NotFound
from houston_shared.home import Home

if TYPE_CHECKING:
    from houston_shared.wilson_interval import ConfidenceInterval

SOLVED = 100.0
"""The whole score."""


class SuiteAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout of a world."""

    rollout: str
    state: str
    """`finished`, or how else it ended."""
    score: float
    """0 to 100, the last that it had; 0 where it had none."""
    steps: int
    failures: int
    """Calls that failed, in all attempts at its steps."""
    no_action: int
    """Answers from which no call could be read."""

    @property
    def solved(self) -> bool:
        """Whether it has the whole score."""
        return self.score >= SOLVED


class SuiteWorld(msgspec.Struct, frozen=True, kw_only=True):
    """One task of the suite."""

    index: int
    attempts: tuple[SuiteAttempt, ...]
    name: str = ""
    """Name of its task; empty in files from before names were kept."""

    @property
    def title(self) -> str:
        """As people read it."""
        return self.name or str(self.index)


class SuiteRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a suite, as its file has it."""

    suite: str
    version: int
    split: str
    engine: str
    policy: str
    """As it sampled; empty for the engine's own model."""
    purify: str = ""
    """How failed calls were corrected ahead, as it was asked for; empty where they were not."""
    agent: str = ""
    """Which agent was asked for; empty for the tasks' own."""
    temperature: float | None = None
    """At which it was asked to sample; None for the tasks' own."""
    started_at: str
    seconds: float
    """From the first rollout queued to the last one ended."""
    worlds: tuple[SuiteWorld, ...]


def suites_folder(home: Home) -> Path:
    """Where tasks of suites lie in a home, and what their runs gave: `SUITE/NAME.json`."""
    return home.path / "suites"


def read_run(file: Path) -> SuiteRun:
    """A kept run. Raises HoustonError where the file is none."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=SuiteRun)
    except FileNotFoundError:
        raise NotFound(f"There is no result {file}.", next="houston suite list") from None
    except (OSError, msgspec.MsgspecError) as problem:
        raise HoustonError(
            f"{file} is not a result of houston evaluate or houston suite run: {problem}."
        ) from None


class KeptRun(NamedTuple):
    """A run and its name, `SUITE/NAME`."""

    name: str
    run: SuiteRun


def list_kept_runs(home: Home) -> list[KeptRun]:
    """Every run that a home has kept, the oldest first; files that are none are left out.

    A file that has not changed is read once in a process.
    """
    runs: list[KeptRun] = []
    for file in suites_folder(home).glob("*/*.json"):
        try:
            stat = file.stat()
            run = _read_unchanged(file, stat.st_mtime_ns, stat.st_size)
        except (OSError, HoustonError):  # it is gone, or another program's
            continue
        runs.append(KeptRun(f"{file.parent.name}/{file.stem}", run))
    return sorted(runs, key=lambda each: each.run.started_at)


@lru_cache(maxsize=256)
def _read_unchanged(file: Path, modified_ns: int, size: int) -> SuiteRun:
    return read_run(file)


class SuiteFigures(NamedTuple):
    """What one run says."""

    name: str
    """`SUITE/NAME`."""
    policy: str
    """As it sampled; empty for the engine's own model."""
    worlds: int
    solved: float
    """Mean over the worlds of the share of attempts that were solved: pass@1."""
    interval: "ConfidenceInterval | None"
    """Of 95 %; None where worlds were tried several times, or there are none."""
    score: float
    """Mean, 0 to 100."""
    failures: float
    """Failed calls of a rollout, mean."""


class SuiteOutcome(NamedTuple):
    """How a policy does on a suite, and how what it comes from did."""

    suite: str
    split: str
    after: SuiteFigures
    before: SuiteFigures | None
    """Of the nearest ancestor that was evaluated alike; None where none was."""
    gained: int = 0
    """Worlds that are solved after and were not before."""
    lost: int = 0


def suite_outcomes(
    runs: Sequence[KeptRun], policy: str, ancestors: Iterable[str]
) -> list[SuiteOutcome]:
    """Results of a policy: its newest run of each suite, split and decoding.

    policy: as it samples, empty for an engine's own model. ancestors: the policies that it comes
    from, nearest first, as they sample.
    """
    newest = {_kind_of(entry.run): entry for entry in runs if entry.run.policy == policy}
    outcomes: list[SuiteOutcome] = []
    for kind, entry in newest.items():
        before = next(
            (
                earlier
                for ancestor in ancestors
                for earlier in reversed(runs)
                if ancestor != policy and _is_baseline(earlier.run, entry.run, ancestor)
            ),
            None,
        )
        gained, lost = _count_flips(before.run, entry.run) if before else (0, 0)
        outcomes.append(
            SuiteOutcome(
                entry.run.suite,
                kind[2],
                _figures(entry),
                _figures(before) if before else None,
                gained,
                lost,
            )
        )
    return outcomes


def _kind_of(run: SuiteRun) -> tuple[str, int, str, str, float | None, str]:
    """What two runs have alike that can be held against each other."""
    return run.suite, run.version, run.split, run.agent, run.temperature, run.purify


def _is_baseline(earlier: SuiteRun, run: SuiteRun, ancestor: str) -> bool:
    """Whether a run is of that ancestor, and alike. An engine's own model is that engine's."""
    return (
        earlier.policy == ancestor
        and _kind_of(earlier) == _kind_of(run)
        and (bool(ancestor) or earlier.engine == run.engine)
    )


def _figures(kept: KeptRun) -> SuiteFigures:
    from statistics import fmean  # milliseconds that other readers do not pay

    from houston_shared.wilson_interval import wilson_interval

    worlds = [world.attempts for world in kept.run.worlds if world.attempts]
    attempts = [attempt for world in worlds for attempt in world]
    solved = [fmean(attempt.solved for attempt in world) for world in worlds]
    tried_once = worlds and all(len(world) == 1 for world in worlds)
    return SuiteFigures(
        kept.name,
        kept.run.policy,
        len(worlds),
        fmean(solved) if solved else 0.0,
        wilson_interval(round(sum(solved)), len(worlds)) if tried_once else None,
        fmean(attempt.score for attempt in attempts) if attempts else 0.0,
        fmean(attempt.failures for attempt in attempts) if attempts else 0.0,
    )


def _count_flips(before: SuiteRun, after: SuiteRun) -> tuple[int, int]:
    was, now = solved_worlds(before), solved_worlds(after)
    both = was.keys() & now.keys()
    return (
        sum(now[index] and not was[index] for index in both),
        sum(was[index] and not now[index] for index in both),
    )


def solved_worlds(run: SuiteRun) -> dict[int, bool]:
    """By world, whether more than half of its attempts solved it."""
    return {
        world.index: 2 * sum(attempt.solved for attempt in world.attempts) > len(world.attempts)
        for world in run.worlds
    }
