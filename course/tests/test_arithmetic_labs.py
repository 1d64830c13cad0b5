"""Labs 1 and 5 are arithmetic: nothing of them needs torch until they measure."""

import re

import pytest
from arithmetic import MEASURED, code_cells, is_measured, without_torch

every_lab = pytest.mark.parametrize("lab", MEASURED)


def imports_torch(text: str) -> bool:
    """Whether a cell brings torch in by itself, or by what it calls."""
    own = re.search(r"^\s*(import|from) torch\b|distlab\.seeds", text, re.MULTILINE)
    return bool(own) or bool(re.search(r"\brecording\(", text))


@every_lab
def test_only_the_measured_part_imports_torch(lab):
    names = [name for name, text in code_cells(lab) if imports_torch(text)]
    assert all(is_measured(lab, name) for name in names), names
    for start in MEASURED[lab]:
        assert any(name.startswith(start) for name in names), f"{start} measures nothing"


@every_lab
def test_the_rest_runs_solved_without_torch(lab):
    done = without_torch(lab)
    assert done.returncode == 0, done.stderr[-2000:]
