"""Draws predicted_published.svg: `python course/figures/predicted_published.py`."""

from pathlib import Path

from distlab.planner.agreement import agreement
from distlab.planner.compare import compared
from distlab.planner.published import TABLES
from distlab.plot import Picture


def picture() -> Picture:
    """Returns the error of every published run, with constants that were not fitted on it."""
    errors, words, fitted = {}, {}, set()
    for one in (one for table in TABLES for one in compared(table)):
        name = one.run.table
        if name == "torchtitan":
            name = f"torchtitan, {'FP8' if 'FP8' in one.run.row else 'BF16'}"
        elif name.startswith("Llama") and one.run.layout.context > 1:
            name = "Llama 3, 128K tokens"
        errors.setdefault(name, []).append(one.error)
        if one.run.in_fit:
            fitted.add(name)
        if abs(errors[name][-1]) > 0.4:
            words[name, len(errors[name]) - 1] = one.run.row.split(", ", 1)[1]
    return agreement(
        errors,
        not_fitted=[name for name in errors if name not in fitted],
        words=words,
        title="Published runs, each predicted without its own row",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
