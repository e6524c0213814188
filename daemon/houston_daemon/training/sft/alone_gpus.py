"""GPUs of a trainer that no daemon starts: those that nobody has leased as it begins.

Only the daemon leases, and it is not told which GPUs such a trainer sees: whoever leases one later
may be given the same. It imports no torch.
"""

import os
from collections.abc import Collection

from houston_daemon.training.sft.recipe import NOT_TRAINED
from houston_shared import gpu_file
from houston_shared.config import Loaded
from houston_shared.config_hosts import LOCAL
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.gpu_file import Lease
from houston_shared.plural import many

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_ENGINE = "engine:"


def seen(loaded: Loaded, run: str, wanted: int, share: bool) -> dict[str, str]:
    """The environment in which it sees `wanted` GPUs, of those that CUDA_VISIBLE_DEVICES names.

    run: its id; empty for one that has none yet. share: engines' GPUs, too, where no other is left.
    Raises HoustonError where fewer are left.
    """
    said = os.environ.get(_VARIABLE)
    if not wanted:  # where this home knows of no GPUs, a person may still show it one
        return {} if said is not None and not loaded.gpus(LOCAL) else gpu_file.visible(())
    taken = [one for one in gpu_file.read(loaded.home).leases if _anothers(one, run)]
    if said is not None and not taken:
        return {}
    there = _named(said, taken) if said is not None else range(max(loaded.gpus(LOCAL), wanted))
    used = {one.gpu for one in taken if not (share and one.holder.startswith(_ENGINE))}
    engines = {one.gpu for one in taken} - used
    left = sorted((gpu for gpu in there if gpu not in used), key=lambda gpu: gpu in engines)
    if len(left) < wanted:
        raise _refusal(wanted, len(left), len(there), taken, share)
    return gpu_file.visible(left[:wanted])


def _anothers(lease: Lease, run: str) -> bool:
    """Whether somebody else has it; what a daemon that is gone has left for this run is its own."""
    return lease.host == LOCAL and lease.holder != f"trainer:{run}"


def _named(said: str, taken: list[Lease]) -> list[int]:
    """The GPUs that CUDA_VISIBLE_DEVICES names. Raises HoustonError for names that are no numbers:
    leases are kept by number."""
    words = [word.strip() for word in said.split(",") if word.strip() not in ("", "-1")]
    if not all(word.isdecimal() for word in words):
        raise HoustonError(
            f"{_VARIABLE} names GPUs otherwise than by number, and {_words(taken)}.",
            NOT_TRAINED,
            f"Name them by number: {_VARIABLE}=1",
            ExitCode.USAGE,
        )
    return [int(word) for word in words]


def _refusal(
    wanted: int, left: int, there: int, taken: Collection[Lease], share: bool
) -> HoustonError:
    beside = any(one.holder.startswith(_ENGINE) for one in taken) and not share
    return HoustonError(
        f"It asks for {many(wanted, 'GPU')}, and {left} of {there} can be had: {_words(taken)}.",
        NOT_TRAINED,
        "Train as a child of the daemon (houston daemon start, no --alone): it waits for its turn"
        + (", or beside engines with --share-gpus" if beside else ""),
        ExitCode.BUSY,
    )


def _words(taken: Collection[Lease]) -> str:
    return f"leased are {gpu_file.words(LOCAL, list(taken))}"
