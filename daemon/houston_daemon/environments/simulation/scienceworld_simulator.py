"""ScienceWorld as a program: its simulator in Java, called through Py4J. Run in a child process.

The package's Python class computes every valid action after every step and opens two ports without
a key; this module uses the same simulator directly, with a key and a bounded heap. Scala's random
generator gets a seed before every step, so that a rebuilt world takes the same course whatever
looks were taken between steps.
"""

import zlib
from collections.abc import Sequence
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from scienceworld.constants import BASEPATH, JAR_PATH

from houston_daemon.environments.simulation.simulator_protocol import Opened, Outcome, Seen, serve

_JAVA = [
    "-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData",
    "-XX:+IgnoreUnrecognizedVMOptions", "-XX:+UnlockExperimentalVMOptions",
    # Objects lie in sets in the order of their hashes, which differ from run to run; one for all.
    "-XX:hashCode=2",
]  # fmt: skip


def connect(options: Sequence[str] = _JAVA) -> tuple[Any, Any]:
    """A new Java machine, which ends with this process: Scala's random numbers, the simulator."""
    port, key, process = launch_gateway(
        classpath=JAR_PATH, cwd=BASEPATH, javaopts=list(options), die_on_exit=True,
        enable_auth=True, return_proc=True,
    )  # fmt: skip
    gateway = JavaGateway(
        gateway_parameters=GatewayParameters(auto_field=True, port=port, auth_token=key),
        java_process=process,
    )
    random = getattr(getattr(gateway.jvm.scala.util, "Random$"), "MODULE$")
    return random, gateway.jvm.scienceworld.runtime.pythonapi.PythonInterface()


class ScienceWorld:
    """One variation of one task. See `simulator_protocol.World`."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._random, self._world = connect()
        self._seed = zlib.crc32(f"{settings['task']}:{settings['variation']}".encode())
        self._turns = 0
        self._random.setSeed(self._seed)
        names = (settings["task"], settings["variation"], settings["simplifications"])
        self._world.load(*names, False)
        self._random.setSeed(self._seed)
        self._world.reset()
        place = str(self._world.step("look around"))
        self._place = place if settings.get("first_look", True) else ""

    def opened(self) -> Opened:
        """Goal and first look."""
        goal = self._world.freeActionTaskDesc().strip().removeprefix("Task Description:")
        return Opened(" ".join(goal.split()), self._place)

    def do(self, action: str) -> Seen:
        """One turn; a score below 0 is a failure, which ends the world with 0."""
        self._turns += 1
        self._random.setSeed(self._seed + self._turns)
        text = self._world.step(action)
        score = round(100 * self._world.getScore())
        outcome: Outcome = ""
        if score < 0:
            outcome = "lost"
        elif self._world.getCompleted():
            outcome = "won" if score >= 100 else "lost"
        return Seen(text, float(min(100, max(0, score))), outcome, self._world.getNumMoves())

    def show(self, aspect: str) -> list[str]:
        """Look around, the inventory, or every valid action."""
        if aspect == "actions":
            return sorted(self._world.getValidActionObjectCombinations())
        if aspect == "inventory":
            return [self._world.freeActionInventory()]
        return [self._world.freeActionLook()]


if __name__ == "__main__":
    serve(ScienceWorld)
