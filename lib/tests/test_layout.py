"""A job and its layouts: what they say of themselves, and which are refused."""

import pytest

from distlab.hardware import DGX_H100
from distlab.layout import Job, Layout
from distlab.model import GPT3_175B


def test_a_layout_says_how_many_gpus_it_fills():
    assert Layout(8, 8, 16).gpus == 1024
    assert Layout(2, 3, 5, context=4).gpus == 120
    assert str(Layout(2, 3, 5)) == "2×3×5"


@pytest.mark.parametrize("name", ["t", "p", "d", "v", "microbatch", "context"])
def test_a_layout_of_nothing_is_refused(name):
    sizes = {"t": 2, "p": 2, "d": 2} | {name: 0}
    with pytest.raises(ValueError, match=f"A layout's {name} is at least 1, not 0"):
        Layout(**sizes)


def test_unknown_ways_are_refused():
    with pytest.raises(ValueError, match="'none', 'selective' or 'full', not 'some'"):
        Layout(1, 1, 1, recompute="some")
    with pytest.raises(ValueError, match=r"stages 0 \(none\) to 3, not 4"):
        Layout(1, 1, 1, zero=4)


@pytest.mark.parametrize("name", ["batch", "seq", "gpus", "params"])
def test_a_job_of_nothing_is_refused(name):
    sizes = {"batch": 8, "seq": 16, "gpus": 4, "params": 1e9} | {name: 0}
    with pytest.raises(ValueError, match=r"at least 1, not 0|have 0 parameters"):
        Job(model=GPT3_175B, cluster=DGX_H100, **sizes)
