"""From a rollout's specification to its hosts: this machine, and those over SSH."""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from houston_daemon.environments.kind import Making
from houston_daemon.environments.local import local_host, variables
from houston_daemon.environments.workstation.command.family import CommandActions, CommandLimits
from houston_daemon.environments.workstation.command.sessions import Sessions
from houston_daemon.environments.workstation.files.confine import Confined
from houston_daemon.environments.workstation.files.family import FileActions
from houston_daemon.environments.workstation.hosts.documents_there import DocumentsThere
from houston_daemon.environments.workstation.hosts.files_there import FilesThere
from houston_daemon.environments.workstation.hosts.place import Files, Place, Places
from houston_daemon.environments.workstation.parse.converter import Converter
from houston_daemon.environments.workstation.parse.documents import Documents, DocumentsHere
from houston_daemon.environments.workstation.state import State, StateFile
from houston_daemon.hosts.branching import Past
from houston_daemon.hosts.local import LocalHost
from houston_daemon.hosts.ssh import left
from houston_daemon.hosts.ssh.host import SshHost
from houston_daemon.hosts.ssh.messages import Hello
from houston_daemon.hosts.ssh.settings import settings_of
from houston_shared.config_hosts import LOCAL
from houston_shared.errors import ConfigurationError
from houston_shared.records import RolloutSpec
from houston_shared.task import Task


def places(making: Making, state: StateFile) -> Places:
    """The hosts of a rollout in the task's order; nothing is touched yet."""
    names = making.task.hosts
    first, *others = (
        _place(making, name, _state_of(state, name, name == names[0])) for name in names
    )
    return Places(first, *others)


def _state_of(state: StateFile, name: str, first: bool) -> Callable[[], State]:
    if first:
        return lambda: state.now
    return lambda: state.now.beside.setdefault(name, State())


def _place(making: Making, name: str, state: Callable[[], State]) -> Place:
    spec, task, characters = making.spec, making.task, making.characters
    host: LocalHost | SshHost
    files: Files
    documents: Documents
    if name == LOCAL:
        leased = making.gpus.get(LOCAL, ())
        host = local_host(spec, task, making.owner, past(spec, task, name), leased)
        files = FileActions(Confined(host.workspace), state, characters)
        documents = DocumentsHere(host, Converter(host))
    else:
        host = ssh_host(making, name)
        files = FilesThere(host, characters)
        documents = DocumentsThere(host)
    sessions = Sessions(host, state)
    budget = task.budget
    allowed = CommandLimits(budget.command_seconds, budget.input_silence_seconds, characters)
    commands = CommandActions(host, sessions, allowed)
    return Place(host, state, sessions, commands, files, documents)


def ssh_host(making: Making, name: str) -> SshHost:
    """Another machine as the task maps it."""
    spec, task, leased = making.spec, making.task, making.gpus.get(name, ())
    mapped, settings = task.mapped, settings_of(spec.hosts[name])
    before = past(spec, task, name)
    hello = Hello(
        version=version("houston-agents"),
        rollout=spec.rollout,
        root=settings.host_root,
        key=spec.host_key,
        owner=f"{spec.host_key}:{making.owner}",
        lease=making.lease,
        sandbox=mapped.kind,
        network=mapped.network,
        read=mapped.read,
        devices=mapped.devices,
        gpus=mapped.gpus or bool(leased),
        environment=variables(task, leased),
        processes=mapped.processes,
        memory_mb=mapped.memory_mb,
        shm_mb=mapped.shm_mb,
        file_mb=mapped.file_mb,
        workspace_mb=mapped.workspace_mb,
        together_mb=settings.memory_mb,
        activate=_there(task.activate, name),
        past=None if before is None else (before.rollout, before.commit),
    )
    folder = Path(spec.task.folder)
    data = {mount: folder / path for mount, path in task.data.mounts.items()}
    note = left.place(Path(spec.host_root), spec.rollout, name)
    return SshHost(name, settings, hello, data, note)


def _there(environment: str, host: str) -> str:
    """An environment to activate on another machine: it has to be there already."""
    if environment and not environment.startswith("/"):
        raise ConfigurationError(
            f"`activate` names {environment!r}, beside the task file, which is not on {host}.",
            next="Name the absolute path that the environment has on every host of the task.",
        )
    return environment


def past(spec: RolloutSpec, task: Task, host: str) -> Past | None:
    """Where a branch's workspace on a host comes from; None for a copy of the task's folder."""
    origin = spec.origin
    if origin is None:
        return None
    commit = origin.snapshot if host == task.hosts[0] else origin.snapshots.get(host, "")
    return Past(spec.parent, commit) if commit else None
