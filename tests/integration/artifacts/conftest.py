"""A server of S3 for these tests, a prefix of it for each, and the same of a folder."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from houston_daemon.artifacts.artifact_store import ArtifactStore
from tests.support import s3_server
from tests.support.s3_server import Line

BUCKET = "laboratory"


@pytest.fixture(scope="session")
def server() -> Iterator[Line]:
    with s3_server.served() as line:
        s3_server.make_bucket(line, BUCKET)
        yield line


@pytest.fixture
def line(server: Line, monkeypatch: pytest.MonkeyPatch) -> Iterator[Line]:
    """The server, whose keys this process has."""
    for name, value in s3_server.environment(server).items():
        monkeypatch.setenv(name, value)
    server.fault = ""
    yield server
    server.fault = ""


@pytest.fixture
def url(line: Line) -> str:
    """A prefix that nobody has written to."""
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def store(url: str) -> ArtifactStore:
    return ArtifactStore(url)


@pytest.fixture(params=["s3", "file"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    """A prefix over S3, then a folder."""
    if request.param == "file":
        return ArtifactStore(f"file://{tmp_path}/store")
    return ArtifactStore(request.getfixturevalue("url"))
