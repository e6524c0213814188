"""A real chat endpoint that answers what a test says: for judges and critics."""

from collections.abc import Iterator

import pytest

from tests.engines.chat_server import ChatServer


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    made = ChatServer()
    made.start()
    yield made
    made.stop()
