"""What the tests of labs without torch share: solved cells, run in a process of their own."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MEASURED = {  # cells that measure, by the beginning of their ids: they alone may bring in torch
    "lab01-memory-math": ("saved_activation_bytes", "peak_from_trace-look"),
    "lab05-layer-partitioning": ("profile_layers",),
    "lab07-3d-search": ("hierarchical_all_reduce", "train_3d"),
}


def code_cells(lab: str) -> list[tuple[str, str]]:
    """The code cells in order, solved and without hidden regions: (id, text)."""
    path = ROOT / "source" / lab / f"{lab}.ipynb"
    cells = json.loads(path.read_text("utf-8"))["cells"]
    hidden = re.compile(r"### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", re.DOTALL)
    return [
        (cell["id"], hidden.sub("", "".join(cell["source"])))
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def is_measured(lab: str, cell: str) -> bool:
    """Whether a cell belongs to what the lab measures."""
    return cell.startswith(MEASURED[lab])


def run(parts: list[str], after: str = "") -> subprocess.CompletedProcess:
    """Runs cells in a fresh process, and something after them."""
    program = "\n".join(["from IPython.display import display", *parts, after])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISTLAB_CHECK", "off")
        patch.setenv("MPLBACKEND", "agg")
        command = [sys.executable, "-c", program]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@cache
def without_torch(lab: str) -> subprocess.CompletedProcess:
    """Runs all cells but the measured ones; fails if torch is there in the end."""
    parts = [text for name, text in code_cells(lab) if not is_measured(lab, name)]
    return run(parts, "import sys\nassert 'torch' not in sys.modules, 'torch was imported'")
