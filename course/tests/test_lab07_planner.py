"""What lab 7 says of the full planner is what the planner says."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from arithmetic import code_cells
from click.testing import CliRunner

from distlab import planner
from distlab.cli import main
from distlab.layout import Layout
from distlab.planner.published import runs

LAB = "lab07-3d-search"
NOTEBOOK = Path(__file__).parents[2] / "source" / LAB / f"{LAB}.ipynb"
CELLS = dict(code_cells(LAB))
TEXT = {
    cell["id"]: " ".join("".join(cell["source"]).split())
    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
}


@pytest.fixture(scope="module")
def names() -> dict:
    """What the notebook has defined where the planner's section begins, and its helpers."""
    found: dict = {"display": lambda *_: None}
    for cell in ("setup", "idea-numbers", "state-numbers", "layout_bytes", "step_time"):
        exec(CELLS[cell], found)
    exec(CELLS["planner-search"].partition("found =")[0], found)
    exec(CELLS["planner-published"].partition("with when_written")[0], found)
    return found


def test_one_layout_counted_twice(names):
    said = TEXT["planner-same-box"]
    way = Layout(8, 8, 16)
    full = planner.estimate(names["JOB"], way)
    assert "Gradients are summed in FP32: 4 bytes." in said
    assert full.memory["gradients"] == pytest.approx(2 * full.memory["weights"])
    assert "Layers' inputs lie whole on all t GPUs, unless sequence parallelism" in said
    shared = planner.estimate(names["JOB"], replace(way, sequence_parallel=True))
    assert shared.memory["activations"] < full.memory["activations"] / 3
    assert "This program sends TP beside the products" in said
    assert full.times["TP"] == 0 < names["step_time"](names["JOB"], way)["tp"]
    assert "Most stages have 16 layers" in said
    layers = planner.estimate(names["LLAMA"], way).layers
    assert layers.count(16) == 6
    assert 126 / 8 == 15.75


def test_the_search_in_full(names):
    said = TEXT["planner-search-box"]
    found = planner.plan(names["BIG"], names["LLAMA_3"])
    used = Layout(8, 16, 128, v=8, sequence_parallel=True, recompute="none", zero=2)
    assert "Nothing is recomputed" in said
    assert found.best.layout.recompute == "none"
    assert "fits only if gradients are sharded too" in said
    assert found.why_not(used) is None
    assert "of 80 GB" in found.why_not(replace(used, zero=1))
    assert "Faster ones cut sequences between GPUs" in said
    time_s = planner.estimate(names["BIG"], used, names["LLAMA_3"]).step_time_s
    faster = [e for e in found.shapes if e.step_time_s < time_s * (1 - 1e-9)]
    assert faster
    assert all(e.layout.context > 1 for e in faster)


def test_predictions_and_measurements(names):
    said = TEXT["planner-published-box"]
    found = [run for table in names["TABLES"] for run in runs(table) if run.layout.context == 1]
    assert f"Four published tables, {len(found)} runs" in TEXT["planner-search-box"]
    assert len(names["TABLES"]) == 4
    ratios = [names["lecture_time_s"](run) / run.step_time_s for run in found]
    full = [
        planner.estimate(run.job, run.layout, run.stack).step_time_s / run.step_time_s
        for run in found
    ]
    assert sum(abs(ratio - 1) for ratio in full) / len(full) < 0.05
    assert sum(abs(ratio - 1) for ratio in ratios) / len(ratios) > 0.15
    (most,) = re.findall(r"in 2021, its times are off by up to (\d+) %", said)
    in_2021 = [r for r, run in zip(ratios, found, strict=True) if "2021" in run.table]
    assert f"{max(abs(r - 1) for r in in_2021):.0%}" == f"{most}%"
    low, high = re.findall(r"need (\d+) to (\d+) % less time", said)[0]
    little = [1 - 1 / r for r, run in zip(ratios, found, strict=True)
              if run.layout.recompute != "full"]  # fmt: skip
    assert (f"{min(little):.0%}", f"{max(little):.0%}") == (f"{low}%", f"{high}%")


def test_a_cluster_that_is_too_small_is_told_what_would_do(names, capsys):
    exec(CELLS["planner-fewest"], names | {"planner": planner})
    said = capsys.readouterr().out
    assert "fits in no layout of 64 GPUs" in said
    gpus = int(re.findall(r"In whole nodes, (\d+) GPUs would do", said)[0])
    least = 18 * 405e9 / 80e9  # FP32 gradients: 18 bytes of state for each parameter
    assert least < gpus < 1.2 * least


def test_the_command_runs_as_it_is_written():
    (command,) = re.findall(r"`distlab (plan [^`]+)`", TEXT["planner-published-box"])
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == 0, result.output
    assert "Llama 3.1 405B on 16,384 × H100" in result.stdout
