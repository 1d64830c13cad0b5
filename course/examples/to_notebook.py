"""Makes an example's notebook from its text: `python course/examples/to_notebook.py`.

The text is a Python file in percent form: `# %%` starts a cell of code, `# %% [markdown]` one of
text, its lines commented. It alone is edited; a test holds the notebook to it.
"""

import json
import re
from pathlib import Path

HERE = Path(__file__).parent
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def texts() -> list[Path]:
    """Returns the examples' texts: the Python files in percent form."""
    return sorted(p for p in HERE.glob("*.py") if p.read_text("utf-8").startswith("# %%"))


def notebook(text: str) -> str:
    """Returns the notebook of a text, as it is stored."""
    cells = []
    for number, part in enumerate(re.split(r"^# %%", text, flags=re.MULTILINE)[1:]):
        head, _, body = part.partition("\n")
        lines = body.strip("\n").split("\n")
        cell = {"cell_type": "code", "execution_count": None, "id": f"cell-{number}", "outputs": []}
        if "[markdown]" in head:
            lines = [re.sub(r"^# ?", "", line) for line in lines]
            cell = {"cell_type": "markdown", "id": f"cell-{number}"}
        source = [line + "\n" for line in lines[:-1]] + lines[-1:]
        cells.append(cell | {"metadata": {}, "source": source})
    metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    whole = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    for path in texts():
        path.with_suffix(".ipynb").write_text(notebook(path.read_text("utf-8")), "utf-8")
