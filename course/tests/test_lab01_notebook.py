"""What lab 1 prints of its arithmetic, and what its measured part finds."""

import re

import pytest
from arithmetic import code_cells, run, without_torch

LAB = "lab01-memory-math"
FIGURES = {  # recomputed figures of the arithmetic part that need no kernel to be read
    "70B on TP 8, PP 8, ZeRO-1": ("weights and gradients: 4.375 GB", "with ZeRO-1: 5.195 GB"),
    "its optimiser states, and all without ZeRO-1": ("0.820 GB", "without ZeRO-1: 17.5 GB"),
    "a product on a roofline": ("62.1         21.0%", "1,365.3        100.0%"),
    "Llama 3.1 405B": ("6ND = 3.79e+25 FLOP in 30.84 million hours: 34.5%", "it ran: 40.4%"),
    "days": ("78 days of 16,384 GPUs", "Behemoth on 24,576 H100 at 40 %: 62 days"),
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_arithmetic_prints_what_was_recomputed(name):
    for figure in FIGURES[name]:
        assert figure in without_torch(LAB).stdout


@pytest.mark.slow
def test_layers_that_run_again_keep_their_input_and_peak_with_one_layer():
    needed = ("setup", "peak_from_trace", "peak_from_trace-look")
    parts = [text for name, text in code_cells(LAB) if name in needed or "saved" in name]
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
