"""Draws zero_stages.svg: `python course/figures/zero_stages.py`."""

from pathlib import Path

from distlab.plot import Picture, memory_stack

PARAMS, GPUS = 7.5e9, 64
BYTES = {"weights": 2, "gradients": 2, "optimiser states": 12}  # per parameter
SHARDED = {"optimiser states": 1, "gradients": 2, "weights": 3}  # from which stage on


def stack(stage: int) -> dict[str, float]:
    """Returns the bytes of one GPU's parts at a stage of ZeRO; 0 is plain data parallelism."""
    return {
        part: PARAMS * size / (GPUS if stage >= SHARDED[part] else 1)
        for part, size in BYTES.items()
    }


def picture() -> Picture:
    """Returns the four stacks, and the room that an H100 has."""
    names = ("data parallel", "ZeRO-1", "ZeRO-2", "ZeRO-3")
    return memory_stack(
        {name: stack(i) for i, name in enumerate(names)},
        capacity=("H100", 80e9),
        title="7.5 billion parameters on 64 GPUs: what each one keeps",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
