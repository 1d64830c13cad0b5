"""Draws mlp_shards.svg, the README's picture: `python course/figures/mlp_shards.py`."""

from pathlib import Path

from distlab.plot import Matrix, Picture, shard_map


def picture() -> Picture:
    """Returns the map of an MLP spread over four ranks, with f and g where ranks communicate."""
    return shard_map(
        Matrix("X", (4, 6), "activations"),
        "f",
        Matrix("A", (6, 8), "weights", cut="columns"),
        "GeLU",
        Matrix("Y", (4, 8), "activations", cut="columns"),
        "@",
        Matrix("B", (8, 6), "weights", cut="rows"),
        "g",
        Matrix("Z", (4, 6), "activations"),
        ranks=4,
        title="One MLP on four GPUs: what each holds, and where they talk",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
