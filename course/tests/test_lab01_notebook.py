"""Lab 1 is arithmetic: nothing of it needs torch until it measures."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "source" / "lab01-memory-math" / "lab01-memory-math.ipynb"
FIGURES = {  # recomputed figures of the arithmetic part that need no kernel to be read
    "70B on TP 8, PP 8, ZeRO-1": ("weights and gradients: 4.375 GB", "with ZeRO-1: 5.195 GB"),
    "its optimiser states, and all without ZeRO-1": ("0.820 GB", "without ZeRO-1: 17.5 GB"),
    "a product on a roofline": ("62.1         21.0%", "1,365.3        100.0%"),
    "Llama 3.1 405B": ("6ND = 3.79e+25 FLOP in 30.84 million hours: 34.5%", "it ran: 40.4%"),
    "days": ("78 days of 16,384 GPUs", "Behemoth on 24,576 H100 at 40 %: 62 days"),
}


def is_measured(cell: str) -> bool:
    """The cells that measure: an exercise of its own, and the trace that the last one looks at."""
    return cell.startswith("saved_activation_bytes") or cell == "peak_from_trace-look"


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
    """Whether a cell brings torch in by itself, or by what it calls."""
    own = re.search(r"^\s*(import|from) torch\b|distlab\.seeds", text, re.MULTILINE)
    return bool(own) or bool(re.search(r"\brecording\(", text))


def run(parts: list[str], after: str = "") -> subprocess.CompletedProcess:
    program = "\n".join(["from IPython.display import display", *parts, after])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISTLAB_CHECK", "off")
        patch.setenv("MPLBACKEND", "agg")
        command = [sys.executable, "-c", program]
        return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def arithmetic() -> subprocess.CompletedProcess:
    parts = [text for name, text in code_cells() if not is_measured(name)]
    return run(parts, "import sys\nassert 'torch' not in sys.modules, 'torch was imported'")


def test_only_the_measured_part_imports_torch():
    names = [name for name, text in code_cells() if imports_torch(text)]
    assert "peak_from_trace-look" in names
    assert all(map(is_measured, names)), names


def test_the_rest_runs_solved_without_torch(arithmetic):
    assert arithmetic.returncode == 0, arithmetic.stderr[-2000:]


@pytest.mark.parametrize("name", FIGURES)
def test_the_rest_prints_what_was_recomputed(arithmetic, name):
    for figure in FIGURES[name]:
        assert figure in arithmetic.stdout


@pytest.mark.slow
def test_layers_that_run_again_keep_their_input_and_peak_with_one_layer():
    needed = ("setup", "peak_from_trace", "peak_from_trace-look")
    parts = [text for name, text in code_cells() if name in needed or "saved" in name]
    done = run(parts)
    assert done.returncode == 0, done.stderr[-2000:]
    pattern = r"(.+): ([\d.]+) sbh kept, ([\d.]+) a layer, peak ([\d.]+) sbh"
    found = re.findall(pattern, done.stdout)
    (whole, kept, each, peak), (again, again_kept, again_each, again_peak) = found
    assert (whole, again) == ("all kept", "run again")
    assert 114 <= float(each) < 114.5
    assert (again_kept, again_each) == ("16.00", "2.00")
    assert float(peak) > float(kept)
    # What eight layers keep, one layer's 114, and gradients of its activations.
    assert 8 * 2 + 114 < float(again_peak) < 8 * 2 + 114 + 20
