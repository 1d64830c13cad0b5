"""Draws attention_cut.svg: `python course/figures/attention_cut.py`."""

from pathlib import Path

from distlab.plot import Matrix, Picture, shard_map


def picture() -> Picture:
    """Returns the map of an attention whose heads lie on four ranks; Q stands for Q, K and V."""
    return shard_map(
        Matrix("X", (4, 6), "activations"),
        "f",
        Matrix("Q, K, V", (6, 8), "weights", cut="columns"),
        "heads",
        Matrix("H", (4, 8), "activations", cut="columns"),
        "@",
        Matrix("O", (8, 6), "weights", cut="rows"),
        "g",
        Matrix("Y", (4, 6), "activations"),
        ranks=4,
        title="Attention on four GPUs: whole heads on each",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
