"""Draws equal_shares.svg: `python course/figures/equal_shares.py`."""

from pathlib import Path

from distlab.plot import Picture, memory_stack

PARAMS, LAYERS, HIDDEN, HEADS = 175e9, 96, 12_288, 96  # GPT-3
TOKENS = 2_048  # one sequence on each GPU
GPUS = (35, 64, 128, 256)


def stack(gpus: int) -> dict[str, float]:
    """Returns what one of `gpus` keeps: its share of the state, and a sequence's activations.

    Every layer is recomputed: its input is kept, and one layer's activations while it runs again.
    """
    inputs_bytes = LAYERS * 2 * TOKENS * HIDDEN
    again_bytes = TOKENS * HIDDEN * (34 + 5 * HEADS * TOKENS / HIDDEN)
    return {
        "weights": 2 * PARAMS / gpus,
        "gradients": 2 * PARAMS / gpus,
        "optimiser states": 12 * PARAMS / gpus,
        "activations": inputs_bytes + again_bytes,
    }


def picture() -> Picture:
    """Returns the stacks for some numbers of GPUs, and the room that an H100 has."""
    return memory_stack(
        {f"{gpus} GPUs": stack(gpus) for gpus in GPUS},
        capacity=("H100", 80e9),
        title="GPT-3 in equal shares, one sequence on each GPU",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
