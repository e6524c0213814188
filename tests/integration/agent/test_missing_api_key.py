"""A key that is missing where the daemon was started makes rollouts wait, never fail."""

import socket

import pytest

from tests.support.station import Station


@pytest.mark.slow
def test_a_rollout_waits_for_its_key_over_a_restart(station: Station) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        station.home.mkdir()
        (station.home / "houston.toml").write_text(
            '[engines.far]\nkind = "chat"\nmodel = "m"\napi_key_env = "FAR_KEY"\n'
            f'url = "http://127.0.0.1:{server.getsockname()[1]}/v1"\n'
        )
        station.start()
        (rollout,) = station.rollout(station.task(), "far")
        station.until(
            lambda: "export FAR_KEY=…" in station.show(rollout)["activity"], why="it says so"
        )
        assert station.show(rollout)["state"] == "running"
        station.environment["FAR_KEY"] = "secret"
        station.run("daemon", "restart")
        station.until(
            lambda: "FAR_KEY" not in station.show(rollout)["activity"], why="the key is there"
        )
        assert station.show(rollout)["state"] in ("running", "paused")
        station.run("rollout", "cancel", rollout)
        station.stop()
        database = (station.home / "houston.db").read_bytes()
        assert b"secret" not in database
