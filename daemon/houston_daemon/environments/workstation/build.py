"""Puts a workstation together from a rollout's specification: host, state, actions."""

from pathlib import Path

from houston_daemon.environments.protocol import WaitingForSlot
from houston_daemon.environments.workstation.arrival import arrival
from houston_daemon.environments.workstation.closing import mark
from houston_daemon.environments.workstation.command.family import CommandActions, CommandLimits
from houston_daemon.environments.workstation.command.sessions import Sessions
from houston_daemon.environments.workstation.environment import Workstation
from houston_daemon.environments.workstation.evaluation.evaluator import Evaluation
from houston_daemon.environments.workstation.evaluation.slots import Slots
from houston_daemon.environments.workstation.families import families
from houston_daemon.environments.workstation.files.confine import Confined
from houston_daemon.environments.workstation.files.family import FileActions
from houston_daemon.environments.workstation.state import StateFile
from houston_daemon.hosts.branching import Past
from houston_daemon.hosts.limits import limits
from houston_daemon.hosts.local import LocalHost
from houston_shared.records import RolloutSpec
from houston_shared.secret_values import restored
from houston_shared.task import Task
from houston_shared.terminal_folder import rollout_folder


def build(
    spec: RolloutSpec,
    task: Task,
    characters: int,
    waiting_for_slot: WaitingForSlot | None,
    owner: str = "",
) -> Workstation:
    """A workstation on this machine; nothing is touched before `open`.

    owner: the home whose rollout it is; no other may drive it meanwhile.
    """
    root, folder = Path(spec.host_root), Path(spec.task.folder)
    host = local_host(spec, task, owner)
    state = StateFile(rollout_folder(root, spec.rollout) / "workstation.json")
    sessions = Sessions(host, lambda: state.now)
    budget = task.budget
    limits = CommandLimits(budget.command_seconds, budget.input_silence_seconds, characters)
    files = FileActions(Confined(host.workspace), lambda: state.now, characters)

    async def before_evaluation() -> str:
        return await mark(host, state.now, files.take_touched(), "evaluation")

    slots = Slots(root, task.name, task.evaluate.slots, waiting_for_slot)
    return Workstation(
        task,
        host,
        state,
        source=folder / task.workspace.source if task.workspace.source else None,
        commands=CommandActions(host, sessions, limits),
        files=files,
        sessions=sessions,
        evaluation=Evaluation(host, task, folder, slots, before_evaluation),
        characters=characters,
        families=families(spec, task, host, files, lambda: state.now, characters),
        arrival=lambda: arrival(spec, host.workspace),
    )


def local_host(spec: RolloutSpec, task: Task, owner: str = "") -> LocalHost:
    """This machine as the task maps it."""
    mapped = task.mapped
    return LocalHost(
        Path(spec.host_root),
        spec.rollout,
        sandbox=mapped.kind,
        network=mapped.network,
        hidden=tuple(map(Path, spec.hidden)),
        read=tuple(map(Path, mapped.read)),
        devices=tuple(map(Path, mapped.devices)),
        gpus=mapped.gpus,
        # A task gives a key by its name: stored is the name, the agent's programs get the value.
        environment={key: restored(value) for key, value in task.environment_variables.items()},
        limits=limits(mapped.processes, mapped.memory_mb, mapped.file_mb, mapped.workspace_mb),
        owner=owner,
        past=past(spec),
    )


def past(spec: RolloutSpec) -> Past | None:
    """Where the workspace of a branch comes from; None for a rollout from its task's folder."""
    origin = spec.origin
    return Past(spec.parent, origin.snapshot) if origin and origin.snapshot else None
