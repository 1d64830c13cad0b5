"""seeds, the notebook helpers, rank ranges, and what importing costs."""

import subprocess
import sys

import pytest
import torch

from distlab import check, seeds
from distlab.errors import CheckFailed
from distlab.ledger import rank_ranges, ring_bytes
from distlab.notebook import expect_equal


def test_seeds_depend_on_the_key_alone():
    torch.manual_seed(0)
    a = seeds.integers((50,), "x", 1)
    torch.manual_seed(1)
    assert torch.equal(a, seeds.integers((50,), "x", 1))
    assert not torch.equal(a, seeds.integers((50,), "x", 2))
    assert not torch.equal(a, seeds.integers((50,), "x", "1"))
    assert torch.equal(seeds.normal((3,), "n"), seeds.normal((3,), "n"))
    assert seeds.seed_of("a", "bc") != seeds.seed_of("ab", "c")


def test_seeded_integers_are_whole_and_never_zero():
    x = seeds.integers((1000,), "y", low=-2, high=3)
    assert x.dtype == torch.float64
    assert set(x.tolist()) == {-2.0, -1.0, 1.0, 2.0, 3.0}
    with pytest.raises(ValueError, match="other than zero"):
        seeds.integers((1,), "y", low=0, high=0)
    with pytest.raises(TypeError, match="ints and strings"):
        seeds.generator(1.5)


def test_rank_ranges():
    assert rank_ranges([0, 1, 2, 5]) == "0-2, 5"
    assert rank_ranges([3, 2]) == "2, 3"
    assert rank_ranges([]) == ""


def test_ring_bytes_of_the_lecture():
    # GPT-3, one microbatch: an all-reduce of 50.3 MB over 8 GPUs sends 88.1 MB each.
    payload = 2048 * 12288 * 2
    assert round(payload / 1e6, 1) == 50.3
    assert round(float(ring_bytes("all_reduce", 8, payload)) / 1e6, 1) == 88.1
    assert ring_bytes("barrier", 8, 0) == 0


def test_expect_equal_is_calm_and_short():
    expect_equal(torch.ones(2), torch.ones(2), "same")
    expect_equal(3, 3, "same")
    expect_equal(torch.ones(2) + 1e-13, torch.ones(2), "close", tolerance=1e-12)
    wrong = [
        (torch.ones(2), torch.ones(3), "shape"),
        (torch.ones(2), torch.ones(2).double(), "dtype"),
        (torch.ones(2), torch.zeros(2), "0.0"),
        (torch.full((2,), float("nan")), torch.zeros(2), "nan"),
        (None, torch.zeros(2), "NoneType"),
        (4, 3, "4"),
        (True, 1, "True"),
        (torch.ones(100), torch.zeros(100), "100 numbers"),
        (torch.ones(2).double() * (1 + 1e-8), torch.ones(2).double(), "float32"),
    ]
    for got, expected, word in wrong:
        with pytest.raises(CheckFailed, match=word) as info:
            expect_equal(got, expected, "the sum on rank 0")
        lines = info.value._render_traceback_()
        assert lines[0] == "the sum on rank 0"
        assert len(lines) <= 3


def test_check_does_nothing_in_a_graded_kernel(monkeypatch, capsys):
    monkeypatch.setenv("DISTLAB_CHECK", "off")
    assert check("lab03.row_linear", None) is None
    assert capsys.readouterr().out == ""


def test_check_without_a_grader_says_what_happens(monkeypatch, capsys):
    monkeypatch.setattr("distlab.notebook.entry_points", lambda group: [])
    assert check("lab03.row_linear", None) is None
    assert "hidden tests run when it is graded" in capsys.readouterr().out


def test_check_hands_over_to_the_installed_grader(monkeypatch):
    calls = []

    class Grader:
        @staticmethod
        def load():
            return lambda exercise_id, objects: calls.append((exercise_id, objects))

    monkeypatch.setattr("distlab.notebook.entry_points", lambda group: [Grader])
    check("lab03.f_and_g", 1, 2)
    assert calls == [("lab03.f_and_g", (1, 2))]


def test_importing_distlab_brings_in_no_heavy_library():
    code = (
        "import sys, distlab; heavy = {'torch', 'matplotlib', 'ipywidgets', 'IPython'}; "
        "sys.exit(str(sorted(heavy & set(sys.modules))) if heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
