"""What converts files made by others is limited in time, has no network, and leaves nothing."""

import contextlib
import itertools
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from houston_daemon.environments.workstation.document_converter import Converter, Unreadable
from houston_daemon.hosts.local_host import LocalHost


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[LocalHost]:
    """A rollout whose task allows the network."""
    made = LocalHost(tmp_path / "root", "r1", sandbox="bubblewrap", network=True, hidden=())
    await made.prepare(None)
    yield made
    await made.close()


async def test_a_document_that_takes_too_long_is_ended(host: LocalHost) -> None:
    name = "too-long-0d1f.tex"
    names = "abcdefgh"
    levels = [
        rf"\def\{one}{{" + rf"\{before}" * 10 + "}" for before, one in itertools.pairwise(names)
    ]
    # Ten million characters in a few: minutes of work.
    (host.workspace / name).write_text(r"\def\a{x}" + "".join(levels) + r"\h")
    with pytest.raises(Unreadable, match="within 1 s"):
        await Converter(host).convert("latex", f"{host.inside}/{name}", seconds=1)
    assert not any(name.encode() in command for command in _running())


async def test_a_converter_has_no_network_where_the_task_allows_one(host: LocalHost) -> None:
    asked = ["/bin/bash", "-c", "tail -n +3 /proc/net/dev | cut -d: -f1"]
    alone = await host.spawn(asked, seconds=20, writable=False, network=False)
    beside = await host.spawn(asked, seconds=20, writable=False)
    assert alone.stdout.split() == [b"lo"] and len(beside.stdout.split()) >= 1
    page = host.folder / "staging"
    page.mkdir()
    (page / "a.html").write_text("<p>words")
    found = await Converter(host).convert("html", str(page / "a.html"), folder=page)
    assert found.text == "words"


ODD_PAGES = {
    "an unsound base": (
        '<base href="http://["><p>words <a href="x">on</a>',
        "words on[1]",
    ),
    "a list from past any number": (f'<ol start="{"9" * 5_000}"><li>words</ol>', "words"),
    "large, with such a base": ('<base href="http://["><p>words' + " " * 3_100_000, "words"),
    "large and empty": ("<!--" + "x" * 3_100_000 + "-->", ""),
}


async def test_odd_pages_are_read_all_the_same(host: LocalHost) -> None:
    staging = host.folder / "staging"
    staging.mkdir()
    for name, (page, text) in ODD_PAGES.items():
        (staging / "a.html").write_text(page)
        found = await Converter(host).convert(
            "html", str(staging / "a.html"), base="http://here.example/", folder=staging
        )
        assert found.text == text, name
        assert all(url == "http://here.example/x" for _, url in found.links), name


async def test_a_converter_that_breaks_is_a_sentence(
    host: LocalHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unreadable, match="cannot be read: No such file"):
        await Converter(host).convert("html", f"{host.inside}/none.html")
    monkeypatch.setitem(sys.modules, "pypdfium2", None)
    with pytest.raises(Unreadable, match=r"houston-agents\[envs\]"):
        await Converter(host).convert("pdf", f"{host.inside}/a.pdf")


def _running() -> Iterator[bytes]:
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            yield file.read_bytes()
