"""A recorder on a home of its own for every test, as for the tests of the recorder."""

from tests.integration.recorder.conftest import station

__all__ = ["station"]
