"""Numbers that lab 6's executed notebook prints, computed here from first principles."""

import pytest
from executed import of
from test_printed_facts import Fact, problems, texts

LAB = "lab06-zero"

params, n, each = 7.5e9, 64, 2 + 2 + 3 * 4
adam = 12 * params / n
stages = (each * params, 4 * params + adam, 2 * params + 2 * params / n + adam, each * params / n)
GB = 1e9
shard = -(-1_633 // 4)  # of the small MLP
small = (16, 4 + 12 * shard / 1_633, 2 + 14 * shard / 1_633, 16 * shard / 1_633)
once = 3 / 4  # (N - 1) / N for four ranks
m, v = (1 - beta**10 for beta in (0.9, 0.999))

FACTS = (
    Fact(
        "6.2",
        LAB,
        "zero_bytes-look",
        "data parallel: # GB (weights # GB, gradients # GB, optimiser states # GB)",
        (stages[0] / GB, 15, 15, 90),
    ),
    *(
        Fact("6.2", LAB, "zero_bytes-look", f"ZeRO-{stage}: # GB", (stages[stage] / GB,))
        for stage in (1, 2, 3)
    ),
    Fact("6.2", LAB, "idea-numbers", "every GPU: # GB", (stages[0] / GB,)),
    Fact("6.2", LAB, "idea-numbers", "one copy, shared out: # GB each", (stages[3] / GB,)),
    Fact("6.3", LAB, "zero_bytes-look", "1,633 parameters, 4 ranks: # # # #", small),
    Fact("6.4", LAB, "volume_bytes-look", "data parallel # #", (2 * once,) * 2),
    Fact("6.4", LAB, "volume_bytes-look", "ZeRO-1 # #", (2 * once,) * 2),
    Fact("6.4", LAB, "volume_bytes-look", "ZeRO-2 # #", (2 * once,) * 2),
    Fact("6.4", LAB, "volume_bytes-look", "ZeRO-3 # #", (3 * once,) * 2),
    Fact("6.6", LAB, "volume_bytes-look", "ZeRO-1, eight microbatches: # Ψ", (2 * once,)),
    Fact("6.6", LAB, "volume_bytes-look", "ZeRO-2, eight microbatches: # Ψ", (9 * once,)),
    Fact("6.6", LAB, "volume_bytes-look", "ZeRO-3, eight microbatches: # Ψ", (24 * once,)),
    Fact("6.7", LAB, "adam-numbers", "10 # # # 1.00", (m, v, m / v**0.5)),
    Fact("1.8", LAB, "zero_bytes-box", "# / 80 is # exactly", (16 * 70e9 / GB, 16 * 70 / 80)),
    Fact("1.9", LAB, "written", "1,120 / 64 = # GB each", (16 * 70 / 64,)),
    Fact(
        "1.10",
        LAB,
        "written",
        "weights and gradients, # GB, and of the 12 bytes a sixteenth, # GB. Together # GB",
        (4 * 70 / 64, 12 * 70 / 1_024, 4 * 70 / 64 + 12 * 70 / 1_024),
    ),
)


@pytest.mark.parametrize("lab", [of(LAB)])
def test_the_executed_notebook_prints_these_numbers(lab, executed):
    says = texts(executed(lab))
    assert [p for fact in FACTS for p in problems(fact, says.get(fact.cell, ""))] == []
