"""Loads the set-up's two scripts, which belong to no package."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "lib"))


@pytest.fixture
def repository() -> Path:
    return ROOT
