"""Runs notebooks in this process, one after the other, each cell as a reader would; prints JSON.

    python run_labs.py [--leave TAG]... NOTEBOOK...

For each notebook a list with an entry per code cell: its id, what it printed, the error that it
ended with. One process for all of them, so that PyTorch is loaded once. Cells with a tag of --leave
are left out.
"""

import argparse
import contextlib
import io
import json
import sys
import time

from IPython.core.interactiveshell import InteractiveShell


def run(shell: InteractiveShell, path: str, leave: set[str]) -> list[dict]:
    """Returns what each code cell of a notebook shows, run in an empty namespace."""
    with open(path, encoding="utf-8") as file:
        cells = json.load(file)["cells"]
    shell.reset(new_session=True)
    shell.user_ns["__spec__"] = None  # as in a kernel; processes ask for it when they start
    shown = []
    for cell in cells:
        if cell["cell_type"] != "code" or leave & set(cell["metadata"].get("tags", ())):
            continue
        out = io.StringIO()
        begin_s = time.process_time()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            done = shell.run_cell("".join(cell["source"]), store_history=False)
        error = done.error_before_exec or done.error_in_exec
        shown.append(
            {
                "id": cell["id"],
                "text": out.getvalue(),
                "error": type(error).__name__ if error else None,
                "cpu_s": round(time.process_time() - begin_s, 3),
            }
        )
    return shown


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--leave", action="append", default=[])
    parser.add_argument("notebooks", nargs="+")
    asked = parser.parse_args()
    shell = InteractiveShell.instance()
    shell.colors = "nocolor"
    shown = {path: run(shell, path, set(asked.leave)) for path in asked.notebooks}
    json.dump(shown, sys.stdout)
