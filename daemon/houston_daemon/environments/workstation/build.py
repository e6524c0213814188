"""Puts a workstation together from a rollout's specification: host, state, actions."""

from pathlib import Path

from houston_daemon.environments.kind import Making
from houston_daemon.environments.local import local_host
from houston_daemon.environments.workstation.arrival import arrival
from houston_daemon.environments.workstation.closing import mark
from houston_daemon.environments.workstation.environment import Workstation
from houston_daemon.environments.workstation.evaluation.evaluator import Evaluation
from houston_daemon.environments.workstation.evaluation.slots import Slots
from houston_daemon.environments.workstation.families import families
from houston_daemon.environments.workstation.hosts.making import places
from houston_daemon.environments.workstation.state import StateFile
from houston_shared.config_hosts import LOCAL
from houston_shared.terminal_folder import rollout_folder


def build(making: Making) -> Workstation:
    """A workstation on the task's hosts; nothing is touched before `open`."""
    spec, task, characters = making.spec, making.task, making.characters
    root, folder = Path(spec.host_root), Path(spec.task.folder)
    state = StateFile(rollout_folder(root, spec.rollout) / "workstation.json")
    hosts = places(making, state)
    first = hosts.first
    here = None if LOCAL in task.hosts else local_host(spec, task, making.owner)

    scored = hosts.of({"host": task.evaluate.host})

    async def before_evaluation() -> str:
        touched = scored.files.take_touched()
        return await mark(scored.host, scored.state(), touched, "evaluation")

    # Slots are held here: their files name the host that the evaluations run on.
    name = task.name if scored.host.name == LOCAL else f"{task.name}@{scored.host.name}"
    slots = Slots(root, name, task.evaluate.slots, making.waiting_for_slot)
    return Workstation(
        task,
        hosts,
        state,
        source=folder / task.workspace.source if task.workspace.source else None,
        evaluation=Evaluation(scored.host, task, folder, slots, before_evaluation),
        characters=characters,
        families=families(spec, task, first, here, lambda: state.now, characters),
        arrival=lambda: arrival(spec, hosts),
        here=here,
    )
