"""The homes whose rows consumers read: those of the tests of exports."""

from tests.training.export.conftest import scene
from tests.training.export.test_run_rows import ran

__all__ = ["ran", "scene"]
