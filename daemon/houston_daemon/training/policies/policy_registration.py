"""Registers trained weights as a policy: its number, its folder in the home, its entry in the
journal.

A trainer calls it at its end, and so does `houston policy import`. A home registers one policy at a
time. A folder without a journal entry was left by a killed registration. It is registered first, so
that its number is not lost and no second policy is made of it.
"""

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_daemon.training.policies import policy_files
from houston_daemon.training.policies.policy_files import combine_hashes, hash_files, model_hash
from houston_daemon.training.runs.run_folder import TrainingRunSpec
from houston_shared.config import LoadedConfiguration, load_configuration
from houston_shared.control_client import ControlClient, require_daemon
from houston_shared.control_messages import RegisterPolicy
from houston_shared.errors import AnswerLost, HoustonError, NoAnswer
from houston_shared.hub_models import hub_origin
from houston_shared.policy_and_run_files import (
    DEFAULT_FAMILY,
    PolicyName,
    check_family_name,
    parse_policy_name,
    policies_folder,
)
from houston_shared.store import policy_queries
from houston_shared.store.store_reader import Reader
from houston_shared.store.training_event_bodies import PolicyRegistered

ANSWER_SECONDS = 60.0
REGISTRATION_LOCK = ".registering.lock"
MAX_NUMBERS_TRIED = 20
"""Numbers that others may take in between."""


class RegistrationResult(NamedTuple):
    """What became of weights."""

    name: str
    """`policy@N`."""
    existed: bool
    """Whether that policy was there before."""


def register_run_policy(
    spec: TrainingRunSpec[Any],
    output: Path,
    metrics: Any,
    *,
    parent: str = "",
    manifest: str = "",
) -> str:
    """The policy that a finished run became; asked again, the same one.

    output: its files. metrics: a record or a table. The rest, and what is raised, as of
    `register_policy`.
    """
    return register_policy(
        load_configuration(spec.home, os.environ.get("HOUSTON_CONFIG")),
        output,
        Path(spec.recipe.base),
        name=spec.name,
        base_hash=spec.base_hash,
        run=spec.run,
        parent=parent,
        manifest=manifest,
        recipe=msgspec.to_builtins(spec.recipe),
        metrics=msgspec.to_builtins(metrics),
    ).name


def register_policy(
    loaded: LoadedConfiguration,
    folder: Path,
    base: Path,
    *,
    name: str = DEFAULT_FAMILY,
    base_hash: str = "",
    run: str = "",
    parent: str = "",
    manifest: str = "",
    recipe: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
    note: str = "",
    origin: str = "",
) -> RegistrationResult:
    """Register the adapter or model in `folder`, which stays as it is.

    A second call for the same training run, or for an import of the same files, returns the same
    policy.

    base: folder of the model that an adapter fits, or that full weights were trained from.
    base_hash: hash of that model as training began; it need not be there any more. Empty: its
    present hash. run: training run, empty for an import. parent: policy that training began from;
    empty for the base model. manifest: SHA-256 of the data's manifest. recipe, metrics: kept with
    it, as JSON. origin: where on the hub it was pulled from. Needs the daemon. Raises HoustonError.
    """
    check_family_name(name)
    require_daemon(loaded.home)
    with _lock_policies(loaded):
        _register_leftovers(loaded)
        if run and (existing := _policy_of_run(loaded, run)):
            return RegistrationResult(existing, True)
        policy, copied = _describe_files(loaded, folder, base, base_hash)
        if not run and (existing := _find_same_files(loaded, policy, name)):
            return RegistrationResult(existing, True)
        policy = msgspec.structs.replace(
            policy,
            run=run,
            parent=parent or f"{name}@1",
            manifest=manifest,
            recipe=dict(recipe or {}),
            metrics=dict(metrics or {}),
            note=note,
            origin=origin,
        )
        return RegistrationResult(_register_new(loaded, policy, name, copied), False)


@contextlib.contextmanager
def _lock_policies(loaded: LoadedConfiguration) -> Iterator[None]:
    """Hold the home's policies; the kernel lets go of them with this process."""
    folder = policies_folder(loaded.home)
    folder.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(folder / REGISTRATION_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _describe_files(
    loaded: LoadedConfiguration, folder: Path, base: Path, base_hash: str
) -> tuple[PolicyRegistered, list[Path]]:
    """What the files are, and which of them make the policy."""
    weights = policy_files.find_weights(folder)
    copied = list(weights.files)
    if weights.kind != "lora" and not (folder / "tokenizer.json").is_file():
        names = {file.name for file in copied}
        copied += [file for file in policy_files.tokenizer_files(base) if file.name not in names]
    hashes = hash_files(copied)
    policy = PolicyRegistered(
        by="",
        name="",
        kind=weights.kind,
        base=str(base.absolute()),
        base_hash=base_hash or model_hash(base, loaded.home),
        base_origin=hub_origin(base),
        hash=combine_hashes(hashes) if weights.kind == "lora" else "",
        engines=weights.engines,
        files=hashes,
        rank=weights.rank,
        version=version("houston-agents"),
    )
    return policy, copied


def _find_same_files(loaded: LoadedConfiguration, policy: PolicyRegistered, family: str) -> str:
    """The policy of the family that has these very files; empty for none."""
    with Reader(loaded.home) as reader:
        for row in reader.run(policy_queries.list_policies()):
            if (row.family, row.kind, row.base_hash) != (family, policy.kind, policy.base_hash):
                continue
            registration = reader.run(policy_queries.read_policy_registration(row))
            has_folder = (policies_folder(loaded.home) / row.folder).is_dir()
            if registration is not None and registration.files == policy.files and has_folder:
                return row.name
    return ""


def _register_new(
    loaded: LoadedConfiguration, policy: PolicyRegistered, family: str, copied: list[Path]
) -> str:
    policy = _place_numbered(loaded, policy, family, copied)
    try:
        _tell_daemon(loaded, policy)
    except (NoAnswer, AnswerLost):
        raise  # it may be registered; if not, the next one does it
    except HoustonError:
        shutil.rmtree(policies_folder(loaded.home) / policy.folder, ignore_errors=True)
        raise
    return policy.name


def _place_numbered(
    loaded: LoadedConfiguration, policy: PolicyRegistered, family: str, copied: list[Path]
) -> PolicyRegistered:
    """Its files under the first free number: who makes the folder has it."""
    for _ in range(MAX_NUMBERS_TRIED):
        name = str(_next_number(loaded, family))
        policy = msgspec.structs.replace(policy, name=name, folder=name)
        place = policies_folder(loaded.home) / name
        try:
            policy_files.place_files(copied, place, policy)
            return policy
        except FileExistsError:
            continue
        except OSError as problem:
            raise HoustonError(
                f"The policy cannot be written to {place}: {problem}.",
                "It was not registered; its trained files stay where they are.",
            ) from problem
    raise HoustonError(f"Others took every number of {family} first.", "Nothing was registered.")


def _tell_daemon(loaded: LoadedConfiguration, policy: PolicyRegistered) -> None:
    if policy.kind in ("full", "reward"):
        place = policies_folder(loaded.home) / policy.folder
        policy = msgspec.structs.replace(policy, hash=model_hash(place, loaded.home))
    request = combine_hashes({policy.name: policy.run or combine_hashes(policy.files)})[:32]
    with ControlClient(loaded.home, ANSWER_SECONDS) as client:
        client.ask(RegisterPolicy(request=request, policy=policy))


def _register_leftovers(loaded: LoadedConfiguration) -> None:
    """Register folders that nobody took note of: who made one was killed before he said so.

    One that is refused stays as it lies: a home that was restored may have weights that its journal
    does not know.
    """
    policies = _unregistered_folders(loaded)
    for policy in sorted(policies, key=lambda policy: parse_policy_name(policy.name)):
        try:
            _tell_daemon(loaded, policy)
        except (NoAnswer, AnswerLost):
            raise
        except HoustonError:
            continue


def _unregistered_folders(loaded: LoadedConfiguration) -> Iterator[PolicyRegistered]:
    """What whole folders say that the journal does not know."""
    for file in policies_folder(loaded.home).glob(f"[!.]*/{policy_files.LINEAGE_FILE}"):
        try:
            policy = msgspec.json.decode(file.read_bytes(), type=PolicyRegistered)
            parse_policy_name(policy.name)
        except (OSError, msgspec.DecodeError, HoustonError):
            continue
        if policy.name == file.parent.name and not _registered_policy(loaded, policy.name):
            yield policy


def _policy_of_run(loaded: LoadedConfiguration, run: str) -> str:
    """What came of this run before; empty for nothing."""
    with Reader(loaded.home) as reader:
        policy = reader.run(policy_queries.find_policy_of_run(run))
    return policy.name if policy else ""


def _registered_policy(loaded: LoadedConfiguration, name: str) -> bool:
    with Reader(loaded.home) as reader:
        return reader.run(policy_queries.find_policy(name)) is not None


def _next_number(loaded: LoadedConfiguration, family: str) -> PolicyName:
    """The first number that neither the journal nor a folder has; 1 is the base model."""
    with Reader(loaded.home) as reader:
        rows = reader.run(policy_queries.list_policies())
    numbers = {row.number for row in rows if row.family == family}
    for folder in policies_folder(loaded.home).glob(f"{family}@*"):
        number = folder.name.rpartition("@")[2]
        numbers |= {int(number)} if number.isdigit() else set()
    return PolicyName(family, max(numbers | {1}) + 1)
