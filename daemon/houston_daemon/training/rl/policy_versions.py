"""Gives each version of a policy in training to the engine that samples with it.

A version is a registered policy (`policy@n`) that the running engine loads. Every call may be
repeated: weights that are registered already give the same policy, and an active policy stays
active.
"""

import itertools
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from houston_daemon.training.policies.policy_registration import register_policy
from houston_daemon.training.sft.training_run import cast_to_base
from houston_shared.backoff import RetryPolicy
from houston_shared.config import LoadedConfiguration
from houston_shared.control_client import engine_state, send_with_retry
from houston_shared.control_messages import ActivatePolicy
from houston_shared.errors import HoustonError
from houston_shared.policy_and_run_files import RunVersion
from houston_shared.store import policy_queries
from houston_shared.store.policy_queries import ActivationRow
from houston_shared.store.store_reader import Reader

POLL_SECONDS = 0.02
ACTIVATION_SECONDS = 900.0
"""For an engine that was killed to be back with what it is asked for."""
ENGINE_RETURN_SECONDS = 600.0
"""How long an engine that refuses is asked again: one that dies as it is given a policy is started
again by the daemon, which takes minutes for a large model."""
_RETRIES = RetryPolicy(first_wait=1.0, max_wait=30.0)


class WeightSync(NamedTuple):
    """How weights came from the trainer to the engine, through files; in seconds."""

    policy: str
    saving: float = 0.0
    """Writing adapter or model."""
    registering: float = 0.0
    """Making it a policy of the home: hashing and copying."""
    loading: float = 0.0
    """Until the engine has answered with it."""

    @property
    def seconds(self) -> dict[str, float]:
        """By name; `syncing` is all of it."""
        parts = {"saving": self.saving, "registering": self.registering, "loading": self.loading}
        return {"syncing": sum(parts.values()), **parts}


class PolicyVersions:
    """Registers and activates versions of one run. Blocks."""

    def __init__(
        self,
        loaded: LoadedConfiguration,
        engine: str,
        run: str,
        family: str,
        parent: str,
        base: Path,
        base_hash: str,
        tell: Callable[[str], None],
        full: bool = False,
    ) -> None:
        """family: of the policies; parent: what the run began from, empty for the base model.
        tell: called with a line for people while the engine refuses. full: versions are whole
        models, not adapters."""
        self._loaded = loaded
        self._engine = engine
        self._run = run
        self._family = family
        self._parent = parent
        self._base = base
        self._base_hash = base_hash
        self._tell = tell
        self._full = full

    def publish(self, save: Callable[[str], None], place: Path, update: int) -> "WeightSync":
        """Save the weights at `place`, register them and have the engine sample with them.

        save: writes them into the folder it is given. Raises HoustonError.
        """
        began = time.monotonic()
        weights = save_weights(save, place, self._base if self._full else None)
        saved = time.monotonic()
        name = self.register(weights, update)
        registered = time.monotonic()
        self.activate(name, f"{self._run}/{update}")
        loaded = time.monotonic()
        return WeightSync(name, saved - began, registered - saved, loaded - registered)

    def register(self, weights: Path, update: int) -> str:
        """Register the version that an update begins with; its name. Raises HoustonError."""
        return register_policy(
            self._loaded,
            weights,
            self._base,
            name=self._family,
            base_hash=self._base_hash,
            parent=self._parent,
            note=RunVersion(self._run, update).note,
        ).name

    def activate(self, policy: str, key: str) -> None:
        """Have new rollouts of the engine sample with a policy; empty: with its own model.

        Returns once the engine has answered with it. Raises HoustonError where it cannot.
        What is active already is asked for again where the daemon has not brought the engine up.
        """
        with Reader(self._loaded.home) as reader:
            active = reader.run(policy_queries.find_active_policy(self._engine))
            activations = reader.run(policy_queries.list_activations(self._engine))
        if active == policy and engine_state(self._loaded.home, self._engine):
            return
        # Keys that an earlier start of this run used up are answered with what came of them then.
        used_seqs = {row.seq for row in activations if row.state != "asked"}
        give_up = time.monotonic() + ENGINE_RETURN_SECONDS
        refused = 0
        for number in itertools.count():
            activation = self._request_activation(policy, f"{key}/{number}")
            if activation.seq in used_seqs:
                continue
            if activation.state == "active":
                return
            refusal = f"Engine {self._engine} does not take {policy or 'its own model'}:"
            if time.monotonic() > give_up:
                raise HoustonError(
                    f"{refusal} {activation.reason}.",
                    "Training stops here; its checkpoints stay.",
                    f"houston train show {self._run}",
                )
            self._tell(f"{refusal} {activation.reason} Houston asks again.")
            refused += 1
            time.sleep(_RETRIES.wait(refused))

    def _request_activation(self, policy: str, request: str) -> ActivationRow:
        """What came of an activation, once that is known."""
        message = ActivatePolicy(request=request, engine=self._engine, policy=policy)
        answer = send_with_retry(
            self._loaded.home,
            message,
            "Its activation may have been requested.",
            "houston policy list",
        )
        end = time.monotonic() + ACTIVATION_SECONDS
        with Reader(self._loaded.home) as reader:
            while time.monotonic() < end:
                row = reader.run(policy_queries.find_activation(answer.seq))
                if row is not None and row.state != "asked":
                    return row
                time.sleep(POLL_SECONDS)
        raise HoustonError(
            f"Engine {self._engine} has not answered with {policy} for"
            f" {ACTIVATION_SECONDS / 60:.0f} minutes.",
            "Training stops here; its checkpoints stay.",
            "houston daemon status",
        )


def save_weights(save: Callable[[str], None], place: Path, base: Path | None = None) -> Path:
    """Save an adapter or model at `place`, completely or not at all.

    save: writes it into the folder it is given. base: for a whole model, the model whose dtype and
    tokenizer it gets; None for an adapter.
    """
    unfinished = place.with_name(f".{place.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    save(str(unfinished))
    (unfinished / "training_args.bin").unlink(missing_ok=True)  # a pickle, for nobody
    if base is None:
        _sort_config(unfinished / "adapter_config.json")
    else:
        cast_to_base(unfinished, base)
    if place.exists():
        shutil.rmtree(place)
    unfinished.replace(place)
    return place


def _sort_config(file: Path) -> None:
    """Write the modules of an adapter in one order: PEFT has them in a set, which each process
    lists another way, and the same adapter must be the same files after a kill."""
    config = json.loads(file.read_text(encoding="utf-8"))
    if isinstance(config["target_modules"], list):
        config["target_modules"].sort()
    file.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
