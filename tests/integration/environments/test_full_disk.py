"""A disk that what the agent did has filled: looking, freeing it and finishing need no room."""

from pathlib import Path

from houston_daemon.environments.mcp.mcp_step_changes import StepChanges
from houston_daemon.hosts.local_host import LocalHost
from tests.integration.environments.opened import opened
from tests.support.small_disk import fill, mounted


async def test_a_full_disk_is_said_and_can_be_freed(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    with mounted(tmp_path / "root", 24):
        station = await opened(tmp_path)
        try:
            await station("create_file", filename="notes.txt", content="first\n")
            large = fill(station.workspace).name
            shown = await station("open_file", path="notes.txt", context_lines=7)
            assert "1 first" in shown.text, "what was done is told, not that it cannot be noted"
            assert shown.fields["limits"] == ["disk"]
            assert "create_file replaces by an empty one" in shown.text
            thought = await station("think", thought="The disk is full.")
            assert thought.success, thought.text
            refused = await station("create_file", filename="more.txt", content="x" * 8_000)
            assert "No space left on device" in refused.text
            freed = await station("create_file", filename=large, content="")
            assert freed.success and "limits" not in freed.fields, freed.text
            assert (await station("create_file", filename="more.txt", content="x" * 8_000)).success
            fill(station.workspace)
            assert (await station("finish")).fields["finished"]
        finally:
            (station.workspace / large).unlink(missing_ok=True)
            await station.environment.close(ended=True)


async def test_servers_are_called_on_a_full_disk(tmp_path: Path) -> None:
    async def nothing() -> tuple[str, ...]:
        return ()

    host = LocalHost(tmp_path / "root", "r1", sandbox="bubblewrap", network=False, hidden=())
    (tmp_path / "root").mkdir()
    with mounted(tmp_path / "root", 24):
        await host.prepare(None)
        steps = StepChanges(host, host.folder / "mcp-steps.json", nothing)
        await steps.open()
        await steps.close(1)
        large = fill(host.workspace)
        steps.run()
        large.unlink()
        (host.workspace / "made.txt").write_text("x")
        assert [file.path for file in (await steps.close(2)).files] == ["made.txt"]
        await host.close()
