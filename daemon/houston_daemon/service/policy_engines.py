"""Engines by name, those of full weights among them: named after the policy, made as its base's.

`policy@3` with full weights has an engine of its own: kind, command, GPUs and settings of the
engine for which it was activated, with its own folder as the model.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from houston_daemon.engines.model import model_path
from houston_daemon.engines.process import EngineProcess
from houston_daemon.recorder.people.policies import full_settings
from houston_daemon.service.engine_child import started_with
from houston_daemon.service.engine_places import engine_log, state_file
from houston_daemon.training.policies import lineage
from houston_shared.config import Loaded
from houston_shared.config_engine import Engine
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home
from houston_shared.policy_names import policies_folder
from houston_shared.store.queries import policies
from houston_shared.store.queries.policies import Policy
from houston_shared.store.reader import Reader


def engine_of(loaded: Loaded, name: str, behind: frozenset[str] = frozenset()) -> Engine:
    """The engine called `name`. Raises ConfigurationError where there is none.

    behind: engines that are made as this one is, so that it cannot be made as one of them.
    """
    if "@" not in name or name in loaded.config.engines:
        return loaded.engine(name)
    try:
        with Reader(loaded.home) as reader:
            found = reader.run(policies.full_engine(name))
            known = reader.run(policies.every())
    except HoustonError as problem:
        raise ConfigurationError(str(problem)) from problem
    if found is None:
        return loaded.engine(name)
    policy, named = found
    if named in (behind := behind | {name}):
        raise ConfigurationError(
            f"Policy {name} was activated for the engine {named}, whose own settings come from it.",
            next="houston policy activate POLICY --engine NAME, with an engine of houston.toml",
        )
    like = engine_of(loaded, named, behind)
    instead = lineage.folders(loaded.home, lineage.bases(policy, known), known)
    if serves := model_folder(like):  # a copy of such a model, maybe, that nobody trained from
        instead |= {os.path.realpath(serves)}
    folder = str(policies_folder(loaded.home) / policy.folder)
    settings = full_settings(msgspec.to_builtins(like), policy, folder, instead)
    del settings["own_policy"]
    return msgspec.convert(settings, Engine)


def kept(home: Home, full: Iterable[Policy]) -> list[str]:
    """Policies whose own engine was started before and still runs."""
    return [one.name for one in full if one.folder and _runs(home, one)]


def _runs(home: Home, policy: Policy) -> bool:
    """Whether what is recorded under its name serves it: a home may have been built anew."""
    folder = os.path.realpath(policies_folder(home) / policy.folder)
    if folder not in map(os.path.realpath, started_with(home, policy.name)):
        return False
    state, log = state_file(home, policy.name), engine_log(home, policy.name)
    return EngineProcess(policy.name, [], "", state, log).adopt()


def is_child(engine: Engine) -> bool:
    """Whether the daemon starts this engine itself."""
    return engine.kind in ("embedded", "vllm") and not engine.url


def model_folder(engine: Engine) -> Path | None:
    """Where the model of a child of ours lies; None where only the server knows."""
    if engine.model and Path(engine.model).is_dir():
        return Path(engine.model)
    for word in engine.command:
        if (Path(word) / "config.json").is_file():
            return Path(word)
    return None if engine.model or engine.command or engine.url else model_path()
