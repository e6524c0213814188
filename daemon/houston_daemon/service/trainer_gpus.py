"""GPUs of trainers: leased like everybody's; an engine's are refused unless both sides share.

A trainer beside an engine on one GPU takes memory that the engine counts on, and slows every
rollout: nobody gets that without having asked.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

from houston_daemon.service.gpus import GpuLedger
from houston_shared.config import Loaded
from houston_shared.config_hosts import LOCAL
from houston_shared.errors import ConfigurationError
from houston_shared.gpu_file import visible

_KIND = "trainer:"
_ENGINE = "engine:"


class Without(NamedTuple):
    """Why a run has no GPUs."""

    why: str
    waits: bool
    """Whether it may have them later."""


class TrainerGpus:
    """What trainers have; used from the supervisor's thread only."""

    def __init__(
        self, loaded: Loaded, ledger: GpuLedger, engines: Callable[[], Collection[str]]
    ) -> None:
        """engines: names of the engines that run now."""
        self._loaded = loaded
        self._ledger = ledger
        self._engines = engines

    def lease(self, run: str, wanted: int, share: bool) -> Without | None:
        """Have them (None), or why not. Raises HoustonError when the ledger cannot be written."""
        if not wanted:
            return None
        if why := self._refused(run, wanted, share):
            return Without(why, False)
        found = self._ledger.lease(_KIND + run, {LOCAL: wanted}, share)
        return Without(found, True) if isinstance(found, str) else None

    def of(self, run: str) -> tuple[int, ...]:
        """Numbers of what it has."""
        return self._ledger.of(_KIND + run).get(LOCAL, ())

    def visible(self, run: str) -> dict[str, str]:
        """The environment in which it sees its GPUs, and no other; none: it sees none."""
        return visible(self.of(run))

    def free(self, run: str) -> None:
        """Give them back."""
        self._ledger.release(_KIND + run)

    def keep(self, runs: Collection[str]) -> None:
        """Free what trainers of other runs than these have, or wait for: a run may have ended with
        no process of this daemon. Raises HoustonError when the ledger cannot be written."""
        held = {_KIND + run for run in runs}
        self._ledger.keep(lambda one: not one.startswith(_KIND) or one in held)

    def _refused(self, run: str, wanted: int, share: bool) -> str:
        """Why it can never have them as things are; empty where it can."""
        there = self._loaded.gpus(LOCAL)
        if wanted > there:
            return f"it asks for {wanted} GPUs and this host has {there} (`gpus` of [hosts])"
        if self.of(run):
            return ""
        blind = sorted(name for name in self._engines() if self._sees_all(name))
        if blind and not share:
            return (
                f"engine {blind[0]} leases no GPU and sees all of them: train with --share-gpus, "
                f"or set `engines.{blind[0]}.gpus`"
            )
        leases = [one for one in self._ledger.told().leases if one.host == LOCAL]
        held = {
            one.gpu: one.holder.removeprefix(_ENGINE)
            for one in leases
            if one.holder.startswith(_ENGINE) and not (share and one.shared)
        }
        if there - len(held) < wanted:
            names = ", ".join(sorted(set(held.values())))
            other = "" if share else "train with --share-gpus and "
            return (
                f"it asks for {wanted} of {there} GPUs, and {len(held)} are used by engine {names}:"
                f" {other}set `engines.{names}.gpus_shared`, or end that engine"
            )
        return ""

    def _sees_all(self, name: str) -> bool:
        try:
            engine = self._loaded.engine(name)
        except ConfigurationError:  # one of full weights: it has what its base's engine has
            return False
        return engine.kind in ("embedded", "vllm") and not engine.url and not engine.gpus
