"""What tests of the course share."""

import os
from collections.abc import Callable
from functools import cache, partial

import nbformat
import pytest
from executed import executed_in


@pytest.fixture(scope="session")
def executed(tmp_path_factory) -> Callable[[str], nbformat.NotebookNode]:
    """A lab's solved notebook with its outputs: one kernel per lab and session, for all workers."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    return cache(partial(executed_in, folder))
