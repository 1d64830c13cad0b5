"""Hints: one step after each try; where they stand; what a notebook's kernel sees of tries."""

import linecache
from types import SimpleNamespace

import pytest

import distlab.learn.hints as hints
from distlab.learn import cells, records
from distlab.notebook import check

EXERCISE = "lab03.row_linear"


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A learner's place: a lab's folder in a work folder."""
    (tmp_path / records.MARK).write_text("{}")
    (tmp_path / "lab03-tensor-parallel").mkdir()
    monkeypatch.chdir(tmp_path / "lab03-tensor-parallel")
    monkeypatch.delenv("DISTLAB_CHECK", raising=False)
    return records.shelf_at(tmp_path)


def answer(text: str):
    """A function that was defined in a cell of this text."""
    name = f"<cell {records.digest(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space = {}
    exec(compile(text, name, "exec"), space)
    return space["row_linear"]


def wrong(number: int):
    return answer(f"def row_linear():\n    return {number}\n")


def said(capsys) -> str:
    return capsys.readouterr().out


def steps_in(text: str) -> list[str]:
    return [step for step in hints.STEPS if f"· {step}**" in text]


@pytest.mark.parametrize("exercise", hints.exercises_with_hints())
def test_hints_go_from_a_nudge_to_the_idea_to_the_outline(exercise):
    steps = [step for step, _ in hints.hints_of(exercise)]
    assert steps in (list(hints.STEPS), list(hints.STEPS[:2]))
    nudge = hints.hints_of(exercise)[0][1]
    assert "?" in nudge or nudge.endswith("."), "a nudge asks, or says what to try"
    assert "```" not in "".join(text for _, text in hints.hints_of(exercise))
    for _, text in hints.hints_of(exercise):
        assert "TODO" not in text
        assert 8 <= len(text.split()) <= 160


def test_nothing_opens_before_a_try(shelf, capsys):
    hints.hint(EXERCISE)
    assert "try it first" in said(capsys)
    assert shelf.get(EXERCISE).opened == 0


def test_an_untouched_stub_is_no_try(shelf, capsys):
    records.note(EXERCISE, [wrong(1)], "not-written")
    hints.hint(EXERCISE)
    assert "try it first" in said(capsys)


def test_each_new_wrong_answer_opens_one_step_and_asking_again_opens_none(shelf, capsys):
    for number, steps in enumerate((["Nudge"], ["Nudge", "Idea"]), start=1):
        records.note(EXERCISE, [wrong(number)], "failed")
        for _ in range(3):
            hints.hint(EXERCISE)
            assert steps_in(said(capsys)) == steps
            records.note(EXERCISE, [wrong(number)], "failed")  # the same answer again is no try


def test_open_steps_stay_open_in_another_session(shelf, capsys):
    records.note(EXERCISE, [wrong(1)], "failed")
    hints.hint(EXERCISE)
    said(capsys)
    records.shelf_at.cache_clear()
    hints.hint(EXERCISE)
    assert steps_in(said(capsys)) == ["Nudge"]


def test_who_has_passed_may_read_on(shelf, capsys):
    records.note(EXERCISE, [wrong(1)], "passed")
    for steps in (["Nudge"], ["Nudge", "Idea"]):
        hints.hint(EXERCISE)
        assert steps_in(said(capsys)) == steps


def test_where_there_is_no_work_folder_hints_open_as_well_and_nothing_is_written(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    records.shelf_at.cache_clear()
    records.note(EXERCISE, [wrong(1)], "failed")
    hints.hint(EXERCISE)
    assert steps_in(said(capsys)) == ["Nudge"]
    assert list(tmp_path.iterdir()) == []
    records.shelf_at.cache_clear()


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ("lab03.row_liner", "Did you mean lab03.row_linear?"),
        ("../../etc/passwd", "There is no exercise"),
        ("", "Say for which exercise: %hint lab"),
    ],
)
def test_a_wrong_name_is_one_sentence(shelf, capsys, asked, sentence):
    shelf.failed_last = ""
    hints.hint(asked)
    text = said(capsys)
    assert sentence in text
    assert len(text.splitlines()) == 1


def test_a_graded_kernel_opens_nothing(shelf, capsys, monkeypatch):
    monkeypatch.setenv("DISTLAB_CHECK", "off")
    records.note(EXERCISE, [wrong(1)], "failed")
    hints.hint(EXERCISE)
    hints.reveal(EXERCISE)
    assert said(capsys) == ""
    assert shelf.get(EXERCISE).opened == 0


# --- solutions ---------------------------------------------------------------------------------


@pytest.fixture
def solutions(monkeypatch):
    """A grader that has solutions, where they may be shown."""
    offer = SimpleNamespace(load=lambda: lambda exercise: f"# the solution of {exercise}")
    monkeypatch.setattr(hints, "entry_points", lambda group, name: [offer])
    monkeypatch.setenv("DISTLAB_REVEAL", "on")


def test_a_solution_is_shown_after_a_try_and_noted(shelf, solutions, capsys):
    hints.reveal(EXERCISE)
    assert "try it first" in said(capsys)
    records.note(EXERCISE, [wrong(1)], "failed")
    hints.reveal(EXERCISE)
    assert f"# the solution of {EXERCISE}" in said(capsys)
    assert shelf.get(EXERCISE).revealed


def test_a_solution_seen_after_passing_is_no_help_taken(shelf, solutions, capsys):
    records.note(EXERCISE, [wrong(1)], "passed")
    hints.reveal(EXERCISE)
    assert not shelf.get(EXERCISE).revealed


@pytest.mark.parametrize("setting", ["off", "", None])
def test_no_solution_where_the_setting_is_not_on(shelf, solutions, capsys, monkeypatch, setting):
    records.note(EXERCISE, [wrong(1)], "failed")
    monkeypatch.delenv("DISTLAB_REVEAL")
    if setting is not None:
        monkeypatch.setenv("DISTLAB_REVEAL", setting)
    hints.reveal(EXERCISE)
    assert said(capsys).strip() == hints.CLOSED
    assert not shelf.get(EXERCISE).revealed


def test_no_solution_where_no_grader_is(shelf, capsys, monkeypatch):
    monkeypatch.setenv("DISTLAB_REVEAL", "on")
    monkeypatch.setattr(hints, "entry_points", lambda group, name: [])
    records.note(EXERCISE, [wrong(1)], "failed")
    hints.reveal(EXERCISE)
    assert said(capsys).strip() == hints.CLOSED


# --- what a kernel sees ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        (f'x = 1\ncheck("{EXERCISE}", f, g)', (EXERCISE, ["f", "g"])),
        ('check("lab01.mfu")', ("lab01.mfu", [])),
        ("check(name, f)", None),
        ("def check(x): pass", None),
        ("check(", None),
        ("%timeit check('a')", None),
        ("print('no check here')", None),
        ("check()", None),
    ],
)
def test_a_test_cell_is_known_by_its_check(cell, found):
    assert cells.asked(cell) == found


def after(shell, source, error, monkeypatch):
    """A cell has run in this shell; what follows."""
    monkeypatch.setitem(__import__("sys").modules, "IPython", shell)
    info = SimpleNamespace(raw_cell=source)
    cells._after(
        SimpleNamespace(
            success=error is None, info=info, error_in_exec=error, error_before_exec=None
        )
    )


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (AssertionError("y on rank 0"), 1),
        (TypeError("no"), 1),
        (NameError("name 'row_linear' is not defined", name="row_linear"), 1),
        (NameError("name 'ReduceFromRanks' is not defined", name="ReduceFromRanks"), 0),
        (NotImplementedError("row_linear is not written yet"), 0),
        (NotImplementedError("torch has no such kernel"), 1),
        (KeyboardInterrupt(), 0),
        (None, 0),
    ],
)
def test_a_failing_test_cell_is_a_try_if_the_answer_is_at_fault(
    shelf, monkeypatch, capsys, error, tries
):
    space = {"row_linear": wrong(7)}
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(user_ns=space))
    after(shell, f'check("{EXERCISE}", row_linear)', error, monkeypatch)
    assert len(shelf.get(EXERCISE).tried) == tries
    assert (f"%hint {EXERCISE}" in said(capsys)) == bool(tries)
    if tries:
        assert shelf.failed_last == EXERCISE


def test_validate_shows_what_failed_and_nothing_more(shelf, monkeypatch, capsys):
    monkeypatch.setenv("NBGRADER_EXECUTION", "validate")
    space = {"row_linear": wrong(7)}
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(user_ns=space))
    after(shell, f'check("{EXERCISE}", row_linear)', AssertionError("no"), monkeypatch)
    assert said(capsys) == ""
    assert len(shelf.get(EXERCISE).tried) == 1


def test_what_the_grader_said_is_not_overwritten_by_the_failing_cell(shelf, monkeypatch):
    records.note(EXERCISE, [wrong(7)], "partial", points=2, max_points=4)
    space = {"row_linear": wrong(7)}
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(user_ns=space))
    after(shell, f'check("{EXERCISE}", row_linear)', AssertionError("no"), monkeypatch)
    (kept,) = shelf.get(EXERCISE).results.values()
    assert (kept.status, kept.points) == ("partial", 2)


def test_without_a_grader_a_check_notes_that_visible_cases_pass(shelf, monkeypatch, capsys):
    monkeypatch.setattr("distlab.notebook.entry_points", lambda group: [])
    check(EXERCISE, wrong(1))
    (kept,) = shelf.get(EXERCISE).results.values()
    assert kept.status == "visible"
