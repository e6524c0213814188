"""Which addresses a page may come from: named, redirected to, resolved, or through a proxy."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_daemon.environments.workstation import checked_network
from houston_shared.task import SandboxSettings, TaskBrowseSettings
from tests.integration.environments.opened import opened, use
from tests.support import web as pages
from tests.support.web import Web, moved, plain

WEB = TaskBrowseSettings(hosts=("*",))
METADATA = "http://169.254.169.254/latest/"


@pytest.fixture(scope="module")
def site() -> Iterator[Web]:
    """What runs on this machine and must not be reached."""
    with pages.web() as server:
        server.pages["/text"] = plain("private words")
        yield server


async def test_private_addresses_are_refused_unless_the_task_allows_them(
    tmp_path: Path, site: Web
) -> None:
    station = await opened(tmp_path, browse=WEB)
    port = site.server_port
    asked = len(site.asked)
    for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "127.1",
                 "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "0.0.0.0",
                 "169.254.169.254", "[fe80::1]", "10.0.0.1", "100.100.100.200", "[fd00::1]",
                 "127\u30020\u30020\u30021", "user@127.0.0.1", "127.0.0.1."):  # fmt: skip
        result = await station("web_browse", url=f"http://{host}:{port}/text")
        assert not result.success, host
        refused = ("does not allow" in result.text or "in disguise" in result.text
                   or "no address" in result.text)  # fmt: skip
        assert refused, (host, result.text)
    assert len(site.asked) == asked, "no request was sent"
    await station.environment.close(ended=True)


def test_what_is_no_public_address_is_refused() -> None:
    for address in ("1.1.1.1", "2606:4700::1111"):
        assert not checked_network.refusal_of_address(address)
    for address in (
        "0.0.0.0", "10.1.2.3", "100.64.0.1", "127.0.0.1", "168.63.129.16", "169.254.169.254",
        "172.16.0.1", "192.0.0.192", "192.168.1.1", "224.0.0.1", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::7f00:1", "::ffff:1.1.1.1", "64:ff9b::101:101", "64:ff9b:1::1",
        "2001::1", "2002:7f00:1::", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0",
        "fec0::1", "ff02::1", "no address",
    ):  # fmt: skip
        assert checked_network.refusal_of_address(address), address


@pytest.fixture
def public(monkeypatch: pytest.MonkeyPatch) -> None:
    """127.0.0.2 counts as an address of the Internet, of which a test has none."""
    refusal = checked_network.refusal_of_address
    monkeypatch.setattr(
        checked_network, "refusal_of_address", lambda at: at != "127.0.0.2" and refusal(at)
    )


@pytest.mark.usefixtures("public")
async def test_a_redirect_does_not_lead_inside(tmp_path: Path, site: Web) -> None:
    station = await opened(tmp_path, browse=WEB)
    with pages.web("127.0.0.2") as outside:
        outside.pages["/fine"] = plain("public words")
        mapped = site.url("/text", "[::ffff:7f00:1]")
        for number, target in enumerate((site.url("/text"), METADATA, mapped)):
            outside.pages[f"/{number}"] = moved(target)
        assert "public words" in (await station("web_browse", url=outside.url("/fine"))).text
        asked = len(site.asked)
        for number in range(3):
            result = await station("web_browse", url=outside.url(f"/{number}"))
            assert not result.success and "does not allow" in result.text
        assert len(site.asked) == asked
    await station.environment.close(ended=True)


@pytest.mark.usefixtures("public")
async def test_a_name_that_changes_its_address_is_connected_to_as_checked(
    tmp_path: Path, site: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: each connection resolves once, and goes to what that answer was."""
    answers = [["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1", "127.0.0.2"]]
    real = socket.getaddrinfo

    def resolve(host: Any, *arguments: Any, **more: Any) -> Any:
        if host not in ("rebind.test", b"rebind.test"):
            return real(host, *arguments, **more)
        return [one for found in answers.pop(0) for one in real(found, *arguments, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    station = await opened(tmp_path, browse=WEB)
    with pages.web("127.0.0.2", site.server_port) as outside:
        outside.pages["/text"] = plain("public words")
        outside.pages["/other"] = plain("more public words")
        asked = len(site.asked)
        first = await station("web_browse", url=site.url("/text", "rebind.test"))
        assert "public words" in first.text and len(answers) == 2
        second = await station("web_browse", url=site.url("/json", "rebind.test"))
        assert "does not allow" in second.text and len(answers) == 1
        third = await station("web_browse", url=site.url("/other", "rebind.test"))
        assert "more public words" in third.text, "of several only the public one is used"
        assert len(site.asked) == asked and outside.asked == ["/text", "/other"]
    await station.environment.close(ended=True)


async def test_only_a_configured_proxy_is_used(
    tmp_path: Path, site: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pages.web() as proxy:
        target = "http://only-the-proxy-knows.test/page"
        proxy.pages[target] = plain("through the proxy")
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "MY_PROXY"):
            monkeypatch.setenv(name, proxy.url())
        station = await opened(tmp_path, browse=WEB)
        result = await station("web_browse", url=target)
        assert not result.success and proxy.asked == []
        await station.environment.close(ended=False)
        await use(station, {"browse": {"proxy_env": "MY_PROXY"}})
        assert "through the proxy" in (await station("web_browse", url=target)).text
        inside = await station("web_browse", url=site.url("/text"))
        assert "does not allow" in inside.text and proxy.asked == [target]
        await station.environment.close(ended=True)


async def test_a_task_names_the_hosts_that_may_be_fetched(tmp_path: Path, site: Web) -> None:
    """Also where a redirect or a kept page of another rollout would lead elsewhere."""
    site.pages["/away"] = moved(site.url("/text", "127.0.0.1"))
    allowed = await opened(
        tmp_path, browse=TaskBrowseSettings(private_addresses=True, hosts=("LOCAL*",))
    )
    assert (await allowed("web_browse", url=site.url("/text", "localhost"))).success
    for path, host in (("/text", "127.0.0.1"), ("/away", "localhost")):
        result = await allowed("web_browse", url=site.url(path, host))
        assert not result.success and "no pages of 127.0.0.1; its hosts: LOCAL*" in result.text
    await allowed.environment.close(ended=True)
    none = await opened(tmp_path, "r2", browse=TaskBrowseSettings(private_addresses=True, hosts=()))
    kept = await none("web_browse", url=site.url("/text", "localhost"))
    assert not kept.success and "This task has no web" in kept.text
    await none.environment.close(ended=True)


@pytest.mark.parametrize(
    ("sandbox", "web"),
    [("bubblewrap", False), (SandboxSettings(network=True), True), ("none", True)],
    ids=["no network", "network", "no sandbox"],
)
async def test_pages_are_open_only_where_commands_reach_the_network_too(
    tmp_path: Path, site: Web, sandbox: Any, web: bool
) -> None:
    """An address carries out what an agent writes into it; the task's author said no network."""
    asked = len(site.asked)
    station = await opened(
        tmp_path, sandbox=sandbox, browse=TaskBrowseSettings(private_addresses=True)
    )
    result = await station("web_browse", url=site.url("/text"))
    assert result.success is web and len(site.asked) == asked + web, result.text
    assert web or "This task has no web" in result.text
    await station.environment.close(ended=True)
