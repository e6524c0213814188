"""Making a policy of trained weights: its number, its folder in the home, its entry in the journal.

What a trainer calls at its end, and what `houston policy import` does. Called again for the same
training run (it died in between) it goes on where it was and makes no second policy.
"""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from houston_daemon.training.policies import files
from houston_daemon.training.policies.hashing import model_hash, of_files, together
from houston_shared.config import Loaded
from houston_shared.control_client import ControlClient
from houston_shared.errors import HoustonError
from houston_shared.policy_names import FAMILY, PolicyName, check_family, policies_folder
from houston_shared.store.bodies_training import PolicyRegistered
from houston_shared.store.queries import policies
from houston_shared.store.queries.policies import Policy
from houston_shared.store.reader import Reader
from houston_shared.wire import RegisterPolicy

ANSWER_SECONDS = 60.0
TRIES = 20
"""Numbers that others may take in between."""


def register(
    loaded: Loaded,
    folder: Path,
    base: Path,
    *,
    name: str = FAMILY,
    run: str = "",
    parent: str = "",
    manifest: str = "",
    recipe: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    note: str = "",
) -> str:
    """Register the adapter or model in `folder`, which stays as it is; returns `policy@N`.

    base: folder of the model that an adapter fits, or that full weights were trained from.
    run: training run, empty for an import. parent: policy that training began from; empty for the
    base model. manifest: SHA-256 of the data's manifest. recipe, metrics: kept with it, as JSON.
    Needs the daemon. Raises HoustonError.
    """
    check_family(name)
    there = _there(loaded, run)
    if there is not None:
        return there.name
    found = files.weights(folder)
    copied = list(found.files)
    if found.kind == "full" and not (folder / "tokenizer.json").is_file():
        mine = {file.name for file in copied}
        copied += [one for one in files.tokenizer_files(base) if one.name not in mine]
    hashes = of_files(copied)
    said = PolicyRegistered(
        by="",
        name="",
        kind=found.kind,
        base=str(base.absolute()),
        base_hash=model_hash(base, loaded.home),
        hash=together(hashes) if found.kind == "lora" else "",
        run=run,
        manifest=manifest,
        recipe=dict(recipe or {}),
        metrics=dict(metrics or {}),
        engines=found.engines,
        files=hashes,
        rank=found.rank,
        note=note,
        version=version("houston-agents"),
    )
    said = _placed(
        loaded, msgspec.structs.replace(said, parent=parent or f"{name}@1"), name, copied
    )
    if said.kind == "full":
        place = policies_folder(loaded.home) / said.folder
        said = msgspec.structs.replace(said, hash=model_hash(place, loaded.home))
    _tell(loaded, said)
    return said.name


def _placed(
    loaded: Loaded, said: PolicyRegistered, family: str, copied: list[Path]
) -> PolicyRegistered:
    """Its files under the first free number: who makes the folder has it."""
    for _ in range(TRIES):
        name = str(_next(loaded, family))
        said = msgspec.structs.replace(said, name=name, folder=name)
        place = policies_folder(loaded.home) / name
        try:
            files.place(copied, place, said)
            return said
        except FileExistsError:
            continue
        except OSError as problem:
            raise HoustonError(
                f"The policy cannot be written to {place}: {problem}.",
                "It was not registered; what was trained stays where it was.",
            ) from problem
    raise HoustonError(f"Others take every number of {family} first.", "Nothing was registered.")


def _tell(loaded: Loaded, said: PolicyRegistered) -> None:
    request = together({said.name: said.run or together(said.files)})[:32]
    with ControlClient(loaded.home, ANSWER_SECONDS) as client:
        client.ask(RegisterPolicy(request=request, policy=said))


def _there(loaded: Loaded, run: str) -> Policy | None:
    """What came of this run before; a folder that nobody took note of yet is registered now."""
    if not run:
        return None
    for file in sorted(policies_folder(loaded.home).glob(f"[!.]*/{files.LINEAGE}")):
        said = msgspec.json.decode(file.read_bytes(), type=PolicyRegistered)
        if said.run == run and not _known(loaded, said.name):
            if said.kind == "full":
                hash = model_hash(file.parent, loaded.home)
                said = msgspec.structs.replace(said, hash=hash)
            _tell(loaded, said)
    with Reader(loaded.home) as reader:
        return reader.run(policies.of_run(run))


def _known(loaded: Loaded, name: str) -> bool:
    with Reader(loaded.home) as reader:
        return reader.run(policies.one(name)) is not None


def _next(loaded: Loaded, family: str) -> PolicyName:
    """The first number that neither the journal nor a folder has; 1 is the base model."""
    with Reader(loaded.home) as reader:
        taken = {one.number for one in reader.run(policies.every()) if one.family == family}
    for folder in policies_folder(loaded.home).glob(f"{family}@*"):
        number = folder.name.rpartition("@")[2]
        taken |= {int(number)} if number.isdigit() else set()
    return PolicyName(family, max(taken | {1}) + 1)
