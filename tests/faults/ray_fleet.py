"""A daemon under test whose workers run on the nodes of a Ray cluster, all on this machine."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from houston_daemon.recorder.disk import host_keys
from houston_shared import wire
from houston_shared.config import load_configuration
from houston_shared.config_sections import RecorderSettings
from houston_shared.control_messages import NodeStatus, Status
from tests.faults.daemon_under_test import Ground
from tests.faults.engine_proxy import free_port
from tests.support.lossy_link import LossyLink
from tests.support.ray_nodes import RayNodes
from tests.support.relay import Relay


@dataclass(frozen=True, slots=True)
class Links:
    """To the machine of node `b`, which is a network namespace: Ray's, and the recorder's."""

    ray: LossyLink
    recorder: LossyLink


class Fleet:
    """A daemon whose workers run on two nodes, `a` and `b`."""

    relay: Relay | None = None
    """Between the recorder and workers, where these reach it over TCP on one machine."""

    def __init__(
        self,
        folder: Path,
        cpus: float = 0.5,
        rollouts_per_worker: int = 1,
        silent_seconds: float = 120.0,
        over_tcp: bool = False,
        links: Links | None = None,
        more: str = "",
    ) -> None:
        """over_tcp: workers reach the recorder as those of other machines do, through `relay`.
        links: they reach it so through these, and `b` is behind them. more: of the
        configuration."""
        self.ground = Ground(folder / "ground", "", rollouts_per_worker)
        address = links.ray.here if links else ""
        self.nodes = RayNodes(self.ground.environment, address=address)
        self.nodes.add("a")
        if links:
            self.nodes.add_behind(links.ray, "b")
        else:
            self.nodes.add("b")
        table = f"[ray]\naddress = '{self.nodes.address}'\ncpus = {cpus}\n"
        if links:
            listen = f"tcp://{links.recorder.here}:{free_port()}"
            table += self._let_nodes_in(listen, listen)
        elif over_tcp:
            port = free_port()
            self.relay = Relay(port)
            reached = f"tcp://127.0.0.1:{self.relay.port}"
            table += self._let_nodes_in(f"tcp://127.0.0.1:{port}", reached)
        configuration = self.ground.home.configuration
        text = configuration.read_text() + table + more
        silent = f"[daemon]\nsilent_seconds = {silent_seconds}\n"
        configuration.write_text(text.replace("[daemon]\n", silent))
        self.ground.loaded = load_configuration(str(self.ground.home.path), environment={})
        self.ground.started()

    def _let_nodes_in(self, listen: str, reached: str) -> str:
        """Do what `houston host add` does for them; more of the configuration's `[ray]`, and
        where the recorder listens. reached: its address, as nodes have it."""
        settings = RecorderSettings(listen=listen, address=reached)
        endpoint = host_keys.add_host(self.ground.home, settings, "nodes")
        file = self.ground.folder / "nodes.endpoint.json"
        file.write_bytes(msgspec.json.encode(endpoint))
        return f"endpoint = '{file}'\n[recorder]\nlisten = '{listen}'\n"

    def close(self) -> None:
        self.ground.close()
        self.nodes.close()
        if self.relay:
            self.relay.close()

    @property
    def status(self) -> Status:
        status = self.ground.ask(wire.AskStatus())
        assert isinstance(status, Status)
        return status

    def node(self, name: str) -> NodeStatus | None:
        """A node as the status has it."""
        found = [node for node in self.status.nodes if node.labels.get("name") == name]
        return found[0] if found else None

    def running_on(self, name: str) -> tuple[str, ...]:
        node = self.node(name)
        return node.rollouts if node else ()

    def work(self, task: tuple[Path, str], count: int = 8) -> list[str]:
        """Start rollouts, and wait until each has closed a step and both nodes have some."""
        rollouts = self.ground.rollouts(task, count)
        self.ground.until(lambda: all(self.steps(each) for each in rollouts), 120, "all work")
        return rollouts

    def steps(self, rollout: str) -> int:
        return int(self.ground.query("SELECT steps FROM rollouts WHERE id = ?", rollout)[0][0])

    def lease(self, rollout: str) -> int:
        return int(self.ground.query("SELECT lease FROM rollouts WHERE id = ?", rollout)[0][0])

    def worker(self, rollout: str) -> int:
        """Process id of a rollout's worker."""
        (pid,) = self.ground.own(f"--rollout {rollout}")
        return pid

    def pause_reason(self, rollout: str) -> str:
        ((state, reason),) = self.ground.query(
            "SELECT state, reason FROM rollouts WHERE id = ?", rollout
        )
        return str(reason) if state == "paused" else ""
