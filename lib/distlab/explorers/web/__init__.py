"""Explorers on a page without Python: one ES module each, and the data it takes from distlab."""

from dataclasses import asdict
from pathlib import Path

from distlab.canvas import COLOURS, GRID, INK, MUTED
from distlab.explorers import svg
from distlab.explorers.memory import GPU_OF, MEMORY_CONTROLS, PARTS, MemorySettings
from distlab.memory import MIXED_ADAM
from distlab.model import MODELS, PUBLISHED

MODULES = Path(__file__).parent  # memory.mjs


def memory_data() -> dict:
    """Returns what memory.mjs needs to know, as JSON can say it: shapes, GPUs, colours, controls.

    What it does with them is held equal to `distlab.explorers.memory` by a test.
    """
    models = {
        name: asdict(cfg) | {"moe_layers": cfg.moe_layers, "total": PUBLISHED[name].total}
        for name, cfg in MODELS.items()
    }
    controls = [
        {
            "name": control.name,
            "label": control.label,
            "kind": control.kind,
            "values": [value for _, value in control.options],
            "texts": [text for text, _ in control.options],
        }
        for control in MEMORY_CONTROLS
    ]
    return {
        "models": models,
        "gpus": {name: float(gpu.memory_bytes) for name, gpu in GPU_OF.items()},
        "bytes_each": [MIXED_ADAM.weight, MIXED_ADAM.gradient, MIXED_ADAM.optimiser],
        "parts": [{"name": part, "colour": COLOURS[part]} for part in PARTS],
        "look": {
            "ink": INK,
            "muted": MUTED,
            "grid": GRID,
            "font": svg.FONT,
            "letter": svg.LETTER,
        },
        "controls": controls,
        "start": asdict(MemorySettings()),
    }
