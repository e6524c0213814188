"""The actions of a simulated world: what the agent does in it, and free looks that cost no turn."""

from typing import Annotated, ClassVar

from msgspec import Meta

from houston_daemon.environments.arguments import Arguments


class SimulationAction(Arguments, frozen=True, kw_only=True):
    """Base of the actions of a simulated world."""

    family: ClassVar[str] = "simulation"


class Act(SimulationAction, frozen=True, kw_only=True):
    """Do one thing in the world, in its own words."""

    name: ClassVar[str] = "act"
    action: Annotated[
        str, Meta(min_length=1, max_length=200, description="The command, e.g. open door.")
    ]


class LookAround(SimulationAction, frozen=True, kw_only=True):
    """Describe where you are; takes no turn."""

    name: ClassVar[str] = "look_around"


class Inventory(SimulationAction, frozen=True, kw_only=True):
    """List what you carry; takes no turn."""

    name: ClassVar[str] = "inventory"


class ListActions(SimulationAction, frozen=True, kw_only=True):
    """List commands that the world understands now; takes no turn."""

    name: ClassVar[str] = "list_actions"
    containing: Annotated[
        str, Meta(max_length=100, description="Only commands with these words; empty for all.")
    ] = ""
    most: Annotated[int, Meta(ge=1, le=500, description="Most commands.")] = 50


class Finish(SimulationAction, frozen=True, kw_only=True):
    """End the task with the score that it has."""

    name: ClassVar[str] = "finish"


SIMULATION_ACTIONS: tuple[type[SimulationAction], ...] = (
    Act, LookAround, Inventory, ListActions, Finish,
)  # fmt: skip
