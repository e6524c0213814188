"""Tiny matrices on one thread: several would only wait for each other, in children too."""

import os
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    before, os.environ["OMP_NUM_THREADS"] = torch.get_num_threads(), "1"
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    del os.environ["OMP_NUM_THREADS"]
