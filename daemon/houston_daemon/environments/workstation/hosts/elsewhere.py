"""Actions that can be done only where Houston runs, offered to a rollout that works elsewhere."""

from houston_daemon.environments.arguments import Arguments
from houston_daemon.environments.observation import Failed, Observation
from houston_daemon.environments.protocol import Stop


class Elsewhere:
    """A family that says why it cannot, and what can be done instead."""

    def __init__(self, actions: tuple[type[Arguments], ...], host: str) -> None:
        self.actions = actions
        self._host = host

    async def act(self, arguments: Arguments, _: Stop) -> Observation:
        """Say so."""
        return Failed(
            error=f"{arguments.name} reads files of the machine that Houston runs on, and this "
            f"workspace is on {self._host}; run_command can convert them there."
        )
