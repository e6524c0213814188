"""The home's own places in a stored spec, as they lie today.

A spec names places of the home that its rollout began in. Meanwhile that one may have been moved,
copied or restored elsewhere, and this may be another machine.
"""

import os

import msgspec

from houston_daemon.hosts.sandbox.sandbox_profile import hidden_paths
from houston_daemon.recorder.handlers.training_handlers import build_own_engine_settings
from houston_daemon.recorder.recorder_store import Store
from houston_shared.policy_and_run_files import policies_folder
from houston_shared.records import RoleEngine, RolloutSpec, spec_of_role
from houston_shared.store import policy_queries


def with_places_of_today(store: Store, spec: RolloutSpec) -> RolloutSpec:
    """The spec with the policies of its engines where this home has them; what was hidden from its
    sandbox stays so, beside the places of this home."""
    roles = {
        role: msgspec.convert(
            _with_policy_here(store, spec_of_role(spec, role)), RoleEngine, from_attributes=True
        )
        for role in spec.role_engines
    }
    hidden = tuple(dict.fromkeys((*hidden_paths(store.home), *spec.hidden)))
    here = _with_policy_here(store, spec)
    return msgspec.structs.replace(here, role_engines=roles, hidden=hidden)


def _with_policy_here(store: Store, spec: RolloutSpec) -> RolloutSpec:
    policy = store.read(policy_queries.find_policy(spec.policy)) if spec.policy else None
    if policy is None or not policy.folder:
        return spec
    folder, settings = str(policies_folder(store.home) / policy.folder), spec.engine_settings
    if "own_policy" in settings:
        before = {os.path.realpath(settings["model"])}
        settings = build_own_engine_settings(settings, policy, folder, before)
    elif "adapters" in settings:
        settings = {**settings, "adapters": {policy.name: folder}}
    return msgspec.structs.replace(spec, engine_settings=settings)
