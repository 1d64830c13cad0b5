"""Lab 1 is arithmetic: nothing of it needs torch until it measures."""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "source" / "lab01-memory-math" / "lab01-memory-math.ipynb"


def code_cells() -> list[tuple[str, str]]:
    """The code cells in order, solved and without hidden regions: (id, text)."""
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    hidden = re.compile(r"### BEGIN HIDDEN TESTS.*?### END HIDDEN TESTS", re.DOTALL)
    return [
        (cell["id"], hidden.sub("", "".join(cell["source"])))
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def imports_torch(text: str) -> bool:
    return bool(re.search(r"^\s*(import|from) torch\b|distlab\.seeds", text, re.MULTILINE))


def test_only_the_measured_part_imports_torch():
    names = [name for name, text in code_cells() if imports_torch(text)]
    assert all(name.startswith("saved_activation_bytes") for name in names), names


def test_the_rest_runs_solved_without_torch(monkeypatch):
    parts = [t for n, t in code_cells() if not n.startswith("saved_activation_bytes")]
    program = "from IPython.display import display\n" + "\n".join(parts)
    program += "\nimport sys\nassert 'torch' not in sys.modules, 'torch was imported'\n"
    monkeypatch.setenv("DISTLAB_CHECK", "off")
    monkeypatch.setenv("MPLBACKEND", "agg")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
