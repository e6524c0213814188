"""A recorder that listens on TCP, and a relay in front of it, for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.recorder.disk import host_keys
from houston_shared.config import Configuration
from houston_shared.config_sections import RecorderSettings
from houston_shared.recorder_endpoint import RecorderEndpoint
from tests.faults.engine_proxy import free_port
from tests.integration.agent.rig import Rig
from tests.support.relay import Relay


class RemoteRig(Rig):
    """A rig whose recorder listens on `port`, too."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        settings = RecorderSettings(listen=f"tcp://127.0.0.1:{self.port}")
        super().__init__(folder, Configuration(recorder=settings))
        self.relay = Relay(self.port)

    def add_host(self, name: str = "gpu2", replace: bool = False) -> RecorderEndpoint:
        """Keys for a host whose workers connect through the relay."""
        settings = RecorderSettings(
            listen=self.configuration.recorder.listen,
            address=f"tcp://127.0.0.1:{self.relay.port}",
        )
        return host_keys.add_host(self.home, settings, name, replace)

    def close(self) -> None:
        self.relay.close()
        super().close()


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[RemoteRig]:
    made = RemoteRig(tmp_path)
    yield made
    made.close()
