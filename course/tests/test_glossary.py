"""The glossary's numbers are the course's: units, formats, and what a ledger counts."""

from pathlib import Path

import pytest
import torch

from distlab import run
from distlab.hardware import DGX_H100, H100_SXM
from distlab.memory import MIXED_ADAM

TEXT = " ".join((Path(__file__).parents[1] / "glossary.md").read_text("utf-8").split())
N, S = 4, 96  # ranks, bytes that each passes

SENT = {  # as it is written: what one rank sends
    "all-reduce 2(n−1)/n · S": ("all_reduce", [2 * 3 * S // 4] * N),
    "reduce-scatter (n−1)/n · S": ("reduce_scatter", [3 * S // 4] * N),
    "all-gather (n−1) · S, S being the rank's own part": ("all_gather", [3 * S] * N),
    "all-to-all (n−1)/n · S": ("all_to_all", [3 * S // 4] * N),
    "broadcast S, but for the last to hear it": ("broadcast", [S, S, S, 0]),
}


@pytest.mark.parametrize("words", SENT)
def test_ring_bytes_are_those_of_a_ledger(words):
    operation, sent = SENT[words]
    assert words in TEXT

    def call(comm):
        getattr(comm, operation)(torch.ones(S // 4))

    ledger = run(call, N).ledger
    assert [ledger.ring_bytes(rank=rank) for rank in range(N)] == sent


def test_units_and_formats_are_as_the_glossary_says():
    assert f"80 GB are {80e9 / 2**30:.1f} GiB" in TEXT
    assert f"400 Gb/s are {DGX_H100.network.rate_bytes_per_s / 1e9:.0f} GB/s" in TEXT
    assert f"on an H100 are {H100_SXM.nvlink.rate_bytes_per_s / 1e9:.0f} GB/s each way" in TEXT
    assert f"ends at {torch.finfo(torch.float16).max:,.0f}" in TEXT
    for dtype, bits in ((torch.bfloat16, 8), (torch.float16, 11)):
        assert torch.finfo(dtype).eps == 2 ** (1 - bits)
    kept = MIXED_ADAM.weight, MIXED_ADAM.gradient, MIXED_ADAM.optimiser
    assert "Bytes per parameter: {} + {} + {}".format(*kept) in TEXT
    assert f"K = {kept[2]} is the optimiser's part, {sum(kept)} the whole" in TEXT
