"""Tests of one exercise run in one worker, so that what they share is made once."""

import pytest

from distgrade.exercise import Exercise


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items):
    for item in items:
        params = item.callspec.params.values() if hasattr(item, "callspec") else ()
        of = [value for value in params if isinstance(value, Exercise)]
        if of and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(of[0].id))
