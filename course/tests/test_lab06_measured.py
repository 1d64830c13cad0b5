"""What lab 6's notebook measures: memory and bytes of each stage, and how far PyTorch's own is."""

import re

import pytest
from executed import of, printed

LAB = "lab06-zero"
NUMBERS = 16 * (16 * 16 + 16)  # of sixteen layers
BATCH = 2 * 16 / NUMBERS  # a sample and its label, in Ψ
n = 4
KEPT = (5, 2 + 3 / n, 1 + 4 / n, 5 / n)  # weights 1 Ψ, gradients 1, states 3; shards count 1/n
BEGUN = (4, 1 + 3 / n, 1 + 3 / n, 4 / n)  # the same without gradients
SENT = tuple(units * (n - 1) / n for units in (2, 2, 2, 3))


@pytest.fixture
def says(executed):
    return {cell.id: printed(cell) for cell in executed(LAB).cells}


@pytest.mark.parametrize("lab", [of(LAB)])
def test_each_stage_holds_its_shards_and_a_few_layers_and_sends_what_it_should(lab, says):
    shown = r"at first ([\d.]+) Ψ, at most ([\d.]+) Ψ, sent ([\d.]+) Ψ"
    rows = [tuple(map(float, row)) for row in re.findall(shown, says["zero3_step-look"])]
    assert len(rows) == 4
    for (first, most, sent), begun, kept, right in zip(rows, BEGUN, KEPT, SENT, strict=True):
        assert first == pytest.approx(begun + BATCH, abs=0.006)
        assert kept < most < kept + 8 / 16
        assert sent == right
    assert [f"{kept:.2f} Ψ" for kept in KEPT] == re.findall(
        r"[\d.]+ Ψ", says["zero3_step-look"].partition("by the formula:")[2]
    )


@pytest.mark.parametrize("lab", [of(LAB)])
def test_on_real_processes_it_is_adamw_and_pytorchs_own(lab, says):
    rows = re.findall(r"ZeRO-(\d): ([\d.]+) Ψ sent, off AdamW by (\S+)", says["real-yours"])
    assert [(stage, sent) for stage, sent, _ in rows] == [
        ("1", "1.00"),
        ("2", "1.00"),
        ("3", "1.50"),
    ]
    theirs = re.findall(r"off your ZeRO-(\d) by (\S+)", says["real-torch"])
    assert [stage for stage, _ in theirs] == ["1", "3"]
    assert all(float(off) < 1e-13 for *_, off in (*rows, *theirs))
    half = NUMBERS // 2
    assert says["real-torch"].count(f"moments of [{half}, {half}] of {NUMBERS:,} numbers") == 2
    assert "collectives: {'gather': 32, 'scatter': 16}" in says["real-torch"]
    assert "Warning" not in says["real-torch"]
