"""Committed pictures are what their scripts draw."""

import re
import runpy
from pathlib import Path

import pytest

FIGURES = Path(__file__).parents[1] / "figures"
SCRIPTS = sorted(FIGURES.glob("*.py"))


def coarse(svg):
    """The file with its numbers rounded: machines differ in the last digits."""
    return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}", svg)


def test_there_are_figures():
    assert SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_figure_is_up_to_date(script, tmp_path):
    drawn = tmp_path / "drawn.svg"
    runpy.run_path(str(script))["picture"]().save(drawn)
    committed = script.with_suffix(".svg").read_text("utf-8")
    assert coarse(drawn.read_text("utf-8")) == coarse(committed), f"run python {script.name}"


def test_every_committed_picture_has_its_script():
    assert {path.stem for path in FIGURES.glob("*.svg")} == {path.stem for path in SCRIPTS}
