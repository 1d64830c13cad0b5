"""Models and machines by the names that people type: `llama-3.1-405b`, `h100`.

An unknown name is one sentence with the nearest known ones. A model may also come from a JSON file
whose keys are those of `distlab.model.Config`.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path

from distlab import hardware
from distlab.hardware import Cluster
from distlab.model import MODELS, Config
from distlab.planner.stack import Stack
from distlab.planner.stacks import STACKS


class UnknownNameError(ValueError):
    """A model or a GPU that nobody knows: the message names those that are nearly so called."""


def slug(name: str) -> str:
    """Returns a name as it is typed: `slug("Llama 3.1 405B") == "llama-3.1-405b"`."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


MODEL_NAMES: Mapping[str, Config] = {slug(name): config for name, config in MODELS.items()}

# A GPU stands for the machine it is usually sold in; an A100 means the one with 80 GB.
GPU_NAMES: Mapping[str, Cluster] = {
    "v100": hardware.DGX_1_V100,
    "a100": hardware.DGX_A100,
    "a100-40gb": replace(
        hardware.DGX_A100, name="DGX A100, 40 GB", gpu=hardware.A100_SXM_40GB, node_link=None
    ),
    "h100": hardware.DGX_H100,
    "h200": hardware.DGX_H200,
    "b200": hardware.DGX_B200,
    "gb200": hardware.GB200_NVL72,
}


def find_model(name: str) -> Config:
    """Returns a model by its name or its file: `find_model("gpt-3-175b").layers == 96`.

    A name that ends in `.json` is a file with the fields of `distlab.model.Config` as keys.

    Raises: UnknownNameError, a ValueError, for a name that is neither; ValueError for a file that
    says no model.
    """
    if slug(name) in MODEL_NAMES:
        return MODEL_NAMES[slug(name)]
    if name.endswith(".json"):
        return read_model(Path(name))
    near = _near(name, MODEL_NAMES)
    raise UnknownNameError(
        f"There is no model {name!r}. {near} Or give a JSON file of the fields of "
        f"distlab.model.Config (layers, hidden, heads, vocab …)."
    )


def find_machine(name: str) -> Cluster:
    """Returns the machine of a GPU by its name: `find_machine("h100").gpus_per_node == 8`.

    Raises: UnknownNameError, a ValueError, for a GPU without figures here.
    """
    if slug(name) in GPU_NAMES:
        return GPU_NAMES[slug(name)]
    raise UnknownNameError(f"There is no GPU {name!r}. {_near(name, GPU_NAMES)}")


def find_stack(name: str) -> Stack:
    """Returns a software stack with its constants by its name in `distlab.planner.stacks`.

    Raises: UnknownNameError, a ValueError, for a stack without constants here.
    """
    known = {slug(stack): constants for stack, constants in STACKS.items()}
    if slug(name) in known:
        return known[slug(name)]
    raise UnknownNameError(f"There are no constants for {name!r}. {_near(name, known)}")


def read_model(path: Path) -> Config:
    """Returns the model that a JSON file describes by the fields of `distlab.model.Config`.

    Raises: ValueError, in one sentence, for a file that can't be read or says no model.

    Example: a file of `{"layers": 2, "hidden": 64, "heads": 8, "vocab": 1000}` has `ffn == 256`.
    """
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ValueError(f"The model file {path} can't be read: {reason}.") from None
    except json.JSONDecodeError as error:
        raise ValueError(
            f"The model file {path} is no JSON: {error.msg} in line {error.lineno}."
        ) from None
    if not isinstance(said, dict):
        raise ValueError(f'The model file {path} must hold one object: {{"layers": …}}.')
    # A latent attention is an object of its own, which no layout here is planned for.
    kinds = {field.name: field.type for field in fields(Config) if field.name != "latent"}
    for key, value in said.items():
        if key not in kinds:
            raise ValueError(f"{path}: a model has no {key!r}. {_near(key, kinds, most=3)}")
        if not _is_of_kind(value, kinds[key]):
            wanted = _KIND_WORDS.get(kinds[key], "'rms' or 'layer'")
            raise ValueError(f"{path}: {key} is {value!r}, not {wanted}.")
        if isinstance(value, int) and value < 0:
            raise ValueError(f"{path}: {key} can't be {value}.")
    lacking = [key for key in ("layers", "hidden", "heads", "vocab") if key not in said]
    if lacking:
        raise ValueError(f"{path}: a model needs {', '.join(lacking)}.")
    return Config(**{"name": path.stem} | said)


_KIND_WORDS = {int: "a whole number", bool: "true or false", str: "a text"}


def _is_of_kind(value: object, kind: object) -> bool:
    if kind is bool or kind is int:
        return type(value) is kind  # true is an int to Python, and no size
    return isinstance(value, str) if kind is str else value in ("rms", "layer")


def _near(name: str, known: Iterable[str], *, most: int = 3) -> str:
    known = list(known)
    near = difflib.get_close_matches(slug(name), known, most, 0.5)
    # "405b" is far from "llama-3.1-405b" by letters, and plainly meant.
    near += [one for one in known if slug(name) and slug(name) in one and one not in near]
    if near:
        return f"Did you mean {' or '.join(near[:most])}?"
    return f"There are {', '.join(known)}."
