"""An answer that is not written yet is one calm line; every other error keeps its face."""

import pytest

from distlab import run
from distlab.look import is_stub, processes_start, when_written


def test_an_unwritten_answer_is_one_calm_line(capsys):
    with when_written():
        raise NotImplementedError("This part is not written yet.")
    assert capsys.readouterr().out.startswith("Nothing to look at yet")


def test_other_errors_are_the_students_to_see():
    with pytest.raises(NotImplementedError, match="addmm"), when_written():
        raise NotImplementedError("addmm is not implemented for this type")
    with pytest.raises(ZeroDivisionError), when_written():
        1 / 0  # noqa: B018


def test_a_stub_in_a_run_is_the_same_error_with_a_calm_face():
    def row_linear(comm):
        raise NotImplementedError("This part is not written yet.")

    with pytest.raises(NotImplementedError, match="This part is not written yet") as caught:
        run(row_linear, 2)
    (line,) = caught.value._render_traceback_()
    assert "row_linear is not written yet (line " in line
    assert caught.traceback[-1].name == "row_linear"


def test_an_error_of_torch_keeps_its_face():
    def half(comm):
        raise NotImplementedError("not implemented for 'Half'")

    with pytest.raises(NotImplementedError) as caught:
        run(half, 2)
    assert not is_stub(caught.value)


def test_without_processes_one_line_says_why(capsys, monkeypatch):
    def refused(*_, **__):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("distlab.processes.run", refused)
    assert processes_start() is False
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    assert "left out: [Errno 1] Operation not permitted" in out


@pytest.mark.slow
@pytest.mark.xdist_group("processes")
def test_where_processes_start_nothing_is_said(capsys):
    assert processes_start() is True
    assert capsys.readouterr().out == ""
