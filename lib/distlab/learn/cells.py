"""What a notebook's kernel does for a learner: sees which test cells fail, and knows `%hint`."""

from __future__ import annotations

import ast
import os
import re
import sys
from typing import Any

from distlab import look
from distlab.learn import records


def watch() -> None:
    """Lets this notebook, if there is one, count tries, and answer to %hint and %reveal."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None or "hint" in shell.magics_manager.magics["line"]:
        return
    for name in ("hint", "reveal"):
        shell.register_magic_function(_magic(name), "line", name)
    shell.events.register("post_run_cell", _after)


def graded_elsewhere() -> bool:
    """Says whether this kernel runs a submission: then nothing is noted, shown or opened."""
    return os.environ.get("DISTLAB_CHECK") == "off"


def _magic(name: str):
    def magic(line: str) -> None:
        from distlab.learn import hints

        getattr(hints, name)(line.strip().strip("\"'"))

    magic.__doc__ = f"%{name} [EXERCISE]: see distlab.learn.{name}."
    return magic


def asked(source: str) -> tuple[str, list[str]] | None:
    """Returns the exercise that a cell checks and the names it hands over, or None."""
    if "check(" not in source:
        return None
    try:
        body = ast.parse(source).body
    except (SyntaxError, ValueError):
        return None
    for statement in body:
        call = getattr(statement, "value", None)
        if not isinstance(call, ast.Call) or getattr(call.func, "id", "") != "check":
            continue
        first, *others = call.args or [None]
        if isinstance(first, ast.Constant) and isinstance(first.value, str):
            return first.value, [name.id for name in others if isinstance(name, ast.Name)]
    return None


def _after(result: Any) -> None:
    """After a test cell that failed: counts the try, says how to get a hint."""
    if result.success or graded_elsewhere():
        return
    found = asked(result.info.raw_cell or "")
    error = result.error_in_exec or result.error_before_exec
    if found is None or error is None or isinstance(error, KeyboardInterrupt):
        return
    exercise, names = found
    space = sys.modules["IPython"].get_ipython().user_ns
    text = records.text_of([space[name] for name in names if name in space])
    if isinstance(error, NameError) and not re.search(rf"\b{re.escape(error.name or '')}\b", text):
        return  # a cell above was not run: no fault of this answer
    shelf = records.shelf()
    shelf.failed_last = exercise
    if not text or look.is_stub(error):
        return
    answer = records.digest(text)
    if answer not in shelf.get(exercise).results:  # else the grader has said more already
        shelf.note(exercise, answer, records.Kept("failed", when=records.now()))
    if "NBGRADER_EXECUTION" not in os.environ:  # Validate and autograde read what is printed
        print(f"Stuck? %hint {exercise}   (in a cell of its own)")
