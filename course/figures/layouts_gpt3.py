"""Draws layouts_gpt3.svg: `python course/figures/layouts_gpt3.py`."""

from pathlib import Path

from distlab.plot import Picture, layout_scatter

# What lab 7's search prints, by the lecture model: GB of one GPU, seconds of a step.
ROWS = """
8×8×16     13.951 10.632
8×4×32     24.888 10.663
8×16×8      8.482 10.761
4×16×16    14.913 10.841
8×2×64     46.763 10.871
4×8×32     25.851 10.873
4×32×8      9.445 10.970
4×4×64     47.726 11.081
8×32×4      5.748 11.115
4×64×4      6.710 11.325
8×1×128    90.513 11.336
4×2×128    91.476 11.569
8×64×2      4.381 11.873
2×32×16    16.839 12.033
2×16×32    27.776 12.064
2×64×8     11.370 12.162
2×8×64     49.651 12.272
4×1×256   178.976 12.570
2×4×128    93.401 12.761
2×2×256   180.901 13.774
1×64×16    20.689 14.803
1×32×32    31.627 14.835
1×16×64    53.502 15.043
1×8×128    97.252 15.531
2×1×512   355.901 15.812
1×4×256   184.752 16.544
1×2×512   359.752 18.589
"""
POINTS = {
    name: (float(size_gb) * 1e9, float(time_s))
    for name, size_gb, time_s in (row.split() for row in ROWS.split("\n") if row)
}


def picture() -> Picture:
    """Returns the 27 layouts of GPT-3 on 1,024 H100s."""
    return layout_scatter(
        POINTS,
        capacity=("H100", 80e9),
        best="8×8×16",
        title="GPT-3 175B on 1,024 GPUs, by the lecture model",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
