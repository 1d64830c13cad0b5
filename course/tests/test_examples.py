"""The examples run: as a notebook, and as a file under torchrun."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"
TOOL = runpy.run_path(str(EXAMPLES / "to_notebook.py"))
TEXTS = TOOL["texts"]()
SLOW = [pytest.mark.slow, pytest.mark.xdist_group("processes")]


def test_there_are_examples_and_every_notebook_has_its_text():
    assert TEXTS
    assert {p.stem for p in EXAMPLES.glob("*.ipynb")} == {p.stem for p in TEXTS}


@pytest.mark.parametrize("text", TEXTS, ids=lambda path: path.stem)
def test_a_notebook_is_what_its_text_gives(text):
    stored = text.with_suffix(".ipynb").read_text("utf-8")
    assert stored == TOOL["notebook"](text.read_text("utf-8")), "run python to_notebook.py"
    nbformat.validate(nbformat.reads(stored, as_version=4))


def says_that_losses_are_equal(out: str) -> None:
    gaps = [float(gap) for gap in re.findall(r"at most (\S+) apart", out)]
    assert len(gaps) == 2, out
    assert max(gaps) <= 1e-10, out  # the labs' limit for many steps: rounding, in float64
    assert "equal ledgers: True" in out
    assert "all ranks agree: True" in out
    first, last = map(float, re.search(r"first and last: (\S+) (\S+)", out).groups())
    assert last < 0.8 * first, out


@pytest.mark.parametrize("name", [pytest.param("train_small_transformer", marks=SLOW)])
def test_simulator_and_gloo_train_to_equal_losses_in_a_notebook(name):
    nb = nbformat.read(EXAMPLES / f"{name}.ipynb", as_version=4)
    resources = {"metadata": {"path": str(EXAMPLES)}}
    NotebookClient(nb, timeout=300, resources=resources).execute()
    outputs = [o for c in nb.cells if c.cell_type == "code" for o in c.outputs]
    says_that_losses_are_equal("".join(o.text for o in outputs if o.get("name") == "stdout"))


@pytest.mark.parametrize("name", [pytest.param("train_small_transformer", marks=SLOW)])
def test_the_same_file_runs_under_torchrun(name, tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node", "4", str(EXAMPLES / f"{name}.py")]
    env = {k: v for k, v in os.environ.items() if not k.startswith("COV_")}
    env["TMPDIR"] = str(tmp_path)  # torchrun leaves a folder of logs
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env=env
    )
    assert done.returncode == 0, done.stderr[-3000:]
    says_that_losses_are_equal(done.stdout)
