"""Tests of one exercise run in one worker, so that its corpus of wrong answers is run once."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        exercise = getattr(item, "callspec", None) and item.callspec.params.get("exercise")
        if exercise is not None and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(exercise.id))
