"""From what an LMS hands out to nbgrader's `submitted/`: names, attempts, labs, hostile zips."""

import functools
import io
import shutil
import time
import zipfile

import nbformat
import pytest
from click.testing import CliRunner
from nb_tools import LAB, ROOT, answered, clone, released_lab

from distgrade.classroom import intake, uploads, whose
from distgrade.classroom.intake import LEFT, OTHER, SAME, TAKEN, collect
from distgrade.classroom.roster import Roster, Student, as_id, read_roster
from distgrade.cli import main
from distgrade.course import Course, CourseError

OTHER_LAB = "lab00-first-steps"
CLASS = [
    Student("zm1", "Zoë", "Müller", "zoe.mueller@uni.example", "4711"),
    Student("wang.li", "立", "王", "wang@uni.example"),
    Student("jdoe", "Jane", "Doe", "jane@uni.example", "12345"),
]


@pytest.fixture
def course(tmp_path):
    root = tmp_path / "course"
    for lab in (LAB, OTHER_LAB):
        shutil.copytree(ROOT / "release" / lab, root / "release" / lab)
    shutil.copy(ROOT / "nbgrader_config.py", root)
    return Course(root)


def work(text: str = "") -> bytes:
    """A submission of lab 3 that differs from every other by this text."""
    return blank().replace(b"THEIRS", text.encode())


@functools.cache
def blank() -> bytes:
    return nbformat.v4.writes(answered({"f_and_g": "# THEIRS"})).encode()


def zipped(path, files, **more):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name, **more) if more else name, data)
    return path


def nest(files):
    return zipped(io.BytesIO(), files).getvalue()


def submitted(course):
    found = (course.root / "submitted").glob(f"*/{LAB}/{LAB}.ipynb")
    return {path.parts[-3]: path.read_bytes() for path in found}


def left(rows):
    return [row for row in rows if row.state == LEFT]


NAMES = {  # path in the upload -> student, without a roster
    "zoë müller/lab03-tensor-parallel.ipynb": "zoë-müller",
    "anna/work/lab03-tensor-parallel/lab03-tensor-parallel.ipynb": "anna",
    "lab03_bob (2).ipynb": "bob",
    "carol - lab03-tensor-parallel - Copy.ipynb": "carol",
    "LAB03 Tensor Parallel dave.ipynb": "dave",
    "Zoë Müller_1234_assignsubmission_file_/lab03 (1).ipynb": "Zoë-Müller",
    "Zoë Müller_1234_assignsubmission_file_my work.ipynb": "Zoë-Müller",
    "doejane_LATE_12345_67890_lab03-tensor-parallel-2.ipynb": "doejane-12345",
    "doejane_12345_67890_my_work.zip/x/lab03.ipynb": "doejane-12345",
    "Lab 3_jdoe_attempt_2026-11-30-15-00-00_lab_03.ipynb": "jdoe",
    "../../x.ipynb": "x",
    "lab03.ipynb": "",
    "=cmd_lab03.ipynb": "cmd",
}


@pytest.mark.parametrize(("path", "student"), NAMES.items())
def test_a_path_tells_whose_a_file_is(path, student):
    parts = uploads._clean(path)
    assert whose.claim_of(parts, (LAB,), Roster(())).student == student.strip()


KNOWN = {  # the same, by the roster
    "Zoe\u0308 Mu\u0308ller_1234_assignsubmission_file_/lab03.ipynb": "zm1",
    "müllerzoë_999_1_lab03.ipynb": "zm1",
    "somebody_4711_1_lab03.ipynb": "zm1",
    "week 5/王立/lab03.ipynb": "wang.li",
    "Doe, Jane/lab03.ipynb": "jdoe",
    "JDOE_lab03 (3).ipynb": "jdoe",
    "zoe.mueller@uni.example/x.ipynb": "zm1",
}


@pytest.mark.parametrize(("path", "student"), KNOWN.items())
def test_the_roster_tells_whom_a_name_means(path, student):
    claim = whose.claim_of(uploads._clean(path), (LAB,), Roster(CLASS))
    assert (claim.student, claim.known) == (student, True)


@pytest.mark.parametrize(
    "path",
    [
        "anna/Lab 3_jdoe_attempt_2026-11-30-15-00-00_x.ipynb",
        "anna/jdoe/lab03.ipynb",
        "anna_1_assignsubmission_file_jdoe_2_assignsubmission_file_x.ipynb",
        "anna_1_2_x_jdoe_attempt_2026-11-30-15-00-00_x.ipynb",
        "Lab 3_anna_attempt_2026-11-30-15-00-00_jdoe_attempt_2026-11-30-16-00-00_x.ipynb",
        "anna/jdoe_12345_1_lab03.ipynb",
    ],
)
def test_a_file_cant_be_called_somebody_elses(path):
    roster = Roster([*CLASS, Student("anna", "Anna", "Li")])
    assert whose.claim_of(uploads._clean(path), (LAB,), roster).student == "anna"


def test_two_names_in_one_that_mean_different_people_mean_nobody():
    claim = whose.claim_of(("müllerzoë_12345_1_lab03.ipynb",), (LAB,), Roster(CLASS))
    assert not claim.known


@pytest.mark.parametrize(
    ("names", "students"),
    [
        (["anna/final.ipynb"], {"anna"}),
        (["x/anna/final.ipynb", "x/anna/final (1).ipynb"], {"anna"}),
        (["Zoë_1_assignsubmission_file_/lab03_final.ipynb"], {"Zoë"}),
        (["x/lab03_anna.ipynb", "x/lab03_bob.ipynb"], {"anna", "bob"}),
        (["anna.ipynb", "bob.ipynb"], {"anna", "bob"}),
        (["x/anna/a.ipynb", "x/bob/b.ipynb"], {"anna", "bob"}),
        (["x/anna/lab03/a.ipynb"], {"anna"}),
    ],
)
def test_folders_around_everybody_are_nobodys_names(names, students):
    paths = [tuple(name.split("/")) for name in names]
    claims = intake._claims(paths, (LAB,), Roster(()), None)
    assert {claim.student for claim in claims} == students


def test_a_name_that_means_two_people_means_nobody():
    twins = [Student("a", "Jan", "Li", "a@x"), Student("b", "Li", "Jan", "b@x")]
    assert Roster(twins).who("Jan Li") is None
    assert Roster(twins).who("a") == "a"


def test_students_whom_only_grading_entered_are_no_roster():
    assert not Roster([Student("a"), Student("b")]).told
    assert whose.claim_of(("new_lab03.ipynb",), (LAB,), Roster([Student("a")])).known


@pytest.mark.parametrize(
    ("stem", "n"),
    [("lab03", 0), ("lab03 (1)", 1), ("lab03-12", 12), ("x copy 3", 3), ("x - Copy", 1)],
)
def test_a_copy_says_which_it_is(stem, n):
    assert whose.copy_number(stem) == n


def test_a_zip_of_folders_becomes_submitted(course, tmp_path):
    path = zipped(
        tmp_path / "all.zip",
        {
            "lab 3/anna/lab03 (1).ipynb": work("anna"),
            "lab 3/bob/renamed.ipynb": work("bob"),
            "lab 3/bob/notes.txt": b"x",
            "__MACOSX/lab 3/bob/._renamed.ipynb": b"x",
            "lab 3/bob/.ipynb_checkpoints/renamed-checkpoint.ipynb": work("old"),
            "lab 3/carol/hand in.zip": zipped(
                io.BytesIO(), {"a/b.ipynb": work("carol")}
            ).getvalue(),
        },
    )
    rows = collect(course, LAB, path)
    assert {row.student: row.state for row in rows} == dict.fromkeys(
        ("anna", "bob", "carol"), TAKEN
    )
    assert submitted(course) == {name: work(name) for name in ("anna", "bob", "carol")}
    assert {row.state for row in collect(course, LAB, path)} == {SAME}
    assert not list((course.root / ".distgrade").glob("intake-*"))


def test_a_single_students_folder_names_them(course, tmp_path):
    folder = tmp_path / "down" / "alice"
    folder.mkdir(parents=True)
    (folder / "lab03.ipynb").write_bytes(work("a"))
    assert [r.student for r in collect(course, LAB, tmp_path / "down")] == ["alice"]
    (row,) = collect(course, LAB, folder)
    assert (row.state, row.student) == (LEFT, "")
    (row,) = collect(course, LAB, folder / "lab03.ipynb", student="alice")
    assert row.state == SAME


def test_the_notebook_says_which_lab_it_is(course, tmp_path):
    other = (ROOT / "release" / OTHER_LAB / f"{OTHER_LAB}.ipynb").read_bytes()
    bare = clone(released_lab())
    del bare.metadata["distlab"]  # a tool that keeps no metadata of the notebook: the cells tell
    nothing = nbformat.v4.writes(nbformat.v4.new_notebook()).encode()
    path = zipped(
        tmp_path / "x.zip",
        {
            "anna/lab03.ipynb": other,
            "bob/lab00.ipynb": work("b"),
            "carol/x.ipynb": nbformat.v4.writes(bare).encode(),
            "dave/x.ipynb": nothing,
            "eve/lab03.ipynb": nothing,
        },
    )
    rows = {row.student: row for row in collect(course, LAB, path)}
    assert (rows["anna"].state, rows["anna"].why) == (OTHER, OTHER_LAB)
    assert {rows[n].state for n in ("bob", "carol", "eve")} == {TAKEN}
    assert rows["dave"].state == LEFT
    assert set(submitted(course)) == {"bob", "carol", "eve"}


def test_the_latest_attempt_counts_and_what_was_there_is_kept(course, tmp_path):
    form = "Lab 3_jdoe_attempt_2026-11-30-{}-00-00_lab03.ipynb"
    path = zipped(tmp_path / "x.zip", {form.format(h): work(h) for h in ("15", "17", "16")})
    (row,) = collect(course, LAB, path)
    assert "latest of 3 attempts" in row.why
    assert submitted(course) == {"jdoe": work("17")}
    stamp = course.root / "submitted" / "jdoe" / LAB / "timestamp.txt"
    assert stamp.read_text() == "2026-11-30 17:00:00"
    earlier = zipped(tmp_path / "y.zip", {form.format("12"): work("12")})
    (row,) = collect(course, LAB, earlier)
    assert (row.state, "handed in later" in row.why) == (SAME, True)
    later = zipped(tmp_path / "z.zip", {form.format("18"): work("18")})
    (row,) = collect(course, LAB, later, dry=True)
    assert submitted(course) == {"jdoe": work("17")}
    (row,) = collect(course, LAB, later)
    assert "is kept" in row.why
    assert submitted(course) == {"jdoe": work("18")}
    (kept,) = (course.root / ".distgrade" / "replaced" / LAB / "jdoe").iterdir()
    assert kept.read_bytes() == work("17")


@pytest.mark.parametrize("packed", [False, True])
def test_nbgraders_own_timestamps_come_along(course, tmp_path, packed):
    files = {
        f"anna/{LAB}/{LAB}.ipynb": work("a"),
        f"anna/{LAB}/timestamp.txt": b"2026-11-30 17:00:00.5 Europe/Berlin\n",
        f"bob/{LAB}/{LAB}.ipynb": work("b"),
        f"bob/{LAB}/timestamp.txt": b"soon",
    }
    path = tmp_path / "submitted"
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    collect(course, LAB, zipped(tmp_path / "x.zip", files) if packed else path)
    assert submitted(course) == {"anna": work("a"), "bob": work("b")}
    carol = f"carol_1_assignsubmission_file_/{LAB}"  # a student's own timestamp is no proof
    early = {"timestamp.txt": b"2020-01-01 00:00:00", f"{LAB}.ipynb": work("c")}
    inner = nest({f"carol/{LAB}/{name}": data for name, data in early.items()})
    collect(course, LAB, zipped(tmp_path / "y.zip", {f"{carol}/x.zip": inner, "x/y.ipynb": b"{}"}))
    early = {f"{carol}/{name}": data for name, data in early.items()}
    collect(course, LAB, zipped(tmp_path / "z.zip", early))
    assert "carol" in submitted(course)
    stamps = {p.parts[-3]: p.read_text() for p in course.root.rglob("timestamp.txt")}
    assert stamps == {"anna": "2026-11-30 16:00:00.500000"}


def test_without_times_the_number_of_a_copy_decides_and_else_a_person(course, tmp_path):
    day = {"date_time": (2026, 11, 30, 12, 0, 0)}
    files = {"anna/lab03.ipynb": work("0"), "anna/lab03 (1).ipynb": work("1")}
    collect(course, LAB, zipped(tmp_path / "x.zip", files, **day))
    assert submitted(course) == {"anna": work("1")}
    files = {"bob/final.ipynb": work("0"), "bob/last.ipynb": work("1"), "carol/x.ipynb": work("2")}
    (row,) = left(collect(course, LAB, zipped(tmp_path / "y.zip", files, **day)))
    assert row.student == "bob"
    assert row.state == LEFT
    assert "which is the later" in row.why


def test_two_people_of_one_name_are_not_mixed_up(course, tmp_path):
    form = "Jan Li_{}_assignsubmission_file_/lab03.ipynb"
    path = zipped(tmp_path / "x.zip", {form.format(n): work(n) for n in ("11", "12")})
    (row,) = collect(course, LAB, path)
    assert row.state == LEFT
    assert "two people" in row.why
    assert not submitted(course)


def test_who_is_not_in_the_roster_waits_for_a_person(course, tmp_path, monkeypatch):
    monkeypatch.setattr(intake, "students_of", lambda course: CLASS)
    path = zipped(tmp_path / "x.zip", {f"{n}_lab03.ipynb": work(n) for n in ("jdoe", "jdeo")})
    rows = collect(course, LAB, path)
    assert [(r.student, r.state) for r in rows] == [("jdeo", LEFT), ("jdoe", TAKEN)]
    assert set(submitted(course)) == {"jdoe"}


def test_the_teachers_own_pattern_is_used(course, tmp_path):
    files = {f"2026-11-30_{n}.ipynb": work(n) for n in ("a1", "b2")}
    path = zipped(tmp_path / "x.zip", files)
    pattern = r"(?P<timestamp>[\d-]+)_(?P<student_id>\w+)\.ipynb"
    collect(course, LAB, path, pattern=pattern)
    assert set(submitted(course)) == {"a1", "b2"}
    for bad in ("(", "x"):
        with pytest.raises(CourseError, match="the pattern"):
            collect(course, LAB, path, pattern=bad)


# --- hostile and broken uploads ---------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../../evil.ipynb", "/tmp/evil.ipynb", "C:\\evil.ipynb", "a/../../e"]
)
def test_a_zip_that_leads_outside_is_refused_whole(course, tmp_path, name):
    path = zipped(tmp_path / "x.zip", {"anna/lab03.ipynb": work("a"), name: work("e")})
    with pytest.raises(CourseError, match="outside"):
        collect(course, LAB, path)
    assert not submitted(course)
    assert not list(tmp_path.rglob("*evil*"))


def test_a_students_hostile_zip_costs_only_that_student(course, tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "MAX_FILES", 50)
    monkeypatch.setattr(uploads, "MAX_BYTES", 2_000_000)
    monkeypatch.setattr(uploads, "MAX_INNER_BYTES", 3_000_000)
    link = zipfile.ZipInfo("lab03.ipynb")
    link.external_attr = 0o120777 << 16
    inner = {
        "slip": {"../../evil.ipynb": work("e")},
        "bomb": {"lab03.ipynb": b"0" * 50_000_000},
        "many": {f"{i}.ipynb": b"{}" for i in range(60)},
        "deep": {"a.zip": nest({"b.zip": nest({"c.ipynb": work("d")})})},
        "link": {link: b"/etc/passwd"},
    }
    files = {"anna/lab03.ipynb": work("a"), "text.zip": b"no zip", "large.zip": b"0" * 4_000_000}
    for name, content in inner.items():
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, data in content.items():
                archive.writestr(entry, data)
        files[f"{name}/lab03.zip"] = made.getvalue()
    started = time.process_time()
    rows = collect(course, LAB, zipped(tmp_path / "x.zip", files))
    assert time.process_time() - started < 20
    assert set(submitted(course)) == {"anna"}
    why = {row.path.split("/")[0]: row.why for row in left(rows)}
    assert "outside" in why["slip"]
    assert "larger than" in why["bomb"]
    assert "more than 50 files" in why["many"]
    assert "too many" in why["deep"]
    assert "a link" in why["link"]
    assert "not a zip" in why["text.zip"]
    assert "larger than" in why["large.zip"]


def test_links_in_a_folder_are_not_followed(course, tmp_path):
    secret = tmp_path / "secret.ipynb"
    secret.write_bytes(work("s"))
    folder = tmp_path / "up" / "anna"
    folder.mkdir(parents=True)
    (folder / "lab03.ipynb").symlink_to(secret)
    (tmp_path / "up" / "bob").symlink_to(tmp_path)
    with pytest.raises(CourseError, match="no notebook"):
        collect(course, LAB, tmp_path / "up")


def test_a_notebook_that_cant_be_read_is_taken_and_told_unless_another_can(course, tmp_path):
    files = {
        "anna/lab03.ipynb": b"no json",
        "bob/lab03.ipynb": work("b"),
        "bob/lab03 (1).ipynb": b"no json",
    }
    rows = {row.student: row for row in collect(course, LAB, zipped(tmp_path / "x.zip", files))}
    assert "can't be read" in rows["anna"].why
    assert "a later file can't be used" in rows["bob"].why
    assert submitted(course) == {"anna": b"no json", "bob": work("b")}


@pytest.mark.parametrize("name", ["nothing.zip", "bad.zip", "text.txt", "empty"])
def test_an_upload_that_cant_be_used_is_exit_code_2_and_one_sentence(
    course, tmp_path, monkeypatch, name
):
    (tmp_path / "bad.zip").write_bytes(b"no zip")
    (tmp_path / "text.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(course.root)
    done = CliRunner().invoke(main, ["collect", "lab03", str(tmp_path / name)])
    assert done.exit_code == 2
    assert done.output.startswith("distgrade: ")
    assert done.output.count("\n") == 1


def test_a_full_disk_leaves_what_was_there_and_a_second_run_ends_it(course, tmp_path, monkeypatch):
    path = zipped(tmp_path / "x.zip", {f"{n}/lab03.ipynb": work(n) for n in "abc"})
    collect(course, LAB, zipped(tmp_path / "y.zip", {"b/lab03.ipynb": work("old")}))
    real, count = intake.os.replace, []

    def full(source, target):
        count.append(target)
        if len(count) == 2:
            raise OSError(28, "No space left on device", str(target))
        real(source, target)

    monkeypatch.setattr(intake.os, "replace", full)
    with pytest.raises(CourseError, match="No space left"):
        collect(course, LAB, path)
    assert submitted(course) == {"a": work("a"), "b": work("old")}
    assert not list((course.root / ".distgrade").glob("intake-*"))
    collect(course, LAB, path)
    assert submitted(course) == {n: work(n) for n in "abc"}


def test_the_command_says_what_it_took_and_who_needs_a_human(course, tmp_path, monkeypatch):
    monkeypatch.chdir(course.root)
    path = zipped(tmp_path / "x.zip", {"anna/lab03.ipynb": work("a"), "lab03.ipynb": work("?")})
    done = CliRunner(env={"COLUMNS": "200"}).invoke(main, ["collect", "lab03", str(path)])
    assert done.exit_code == 1, done.output
    assert "1 of 2" in done.output
    assert "needs a human" in done.output


# --- the roster -------------------------------------------------------------------------------

HEADS = {
    "id,first_name,last_name,email\nzm1,Zoë,Müller,z@x": ("zm1", "Zoë", "Müller", "z@x", None),
    "\ufeffSIS Login ID;Vorname;Nachname\r\nzm1;Zoë;Müller\r\n;;\r\n": (
        "zm1",
        "Zoë",
        "Müller",
        None,
        None,
    ),
    'Username\tE-Mail\tLMS user ID\nzm1\t"z@x"\t47': ("zm1", None, None, "z@x", "47"),
}


@pytest.mark.parametrize(("text", "student"), HEADS.items())
def test_a_roster_is_read_as_lmss_write_it(tmp_path, text, student):
    path = tmp_path / "class.csv"
    path.write_text(text, encoding="utf-8", newline="")
    assert read_roster(path) == [Student(*student)]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"name\nx", "no column for the student's id"),
        (b"id\n", "names no student"),
        (b"id\na\na", "twice"),
        (b"id\n../x", "line 2"),
        (b"id,email\na,x\n,y", "line 3"),
        (b"id\n\xff", "not UTF-8"),
        (b"", "no column"),
    ],
)
def test_a_roster_that_cant_be_used_is_one_sentence(tmp_path, data, says):
    path = tmp_path / "class.csv"
    path.write_bytes(data)
    with pytest.raises(CourseError, match=says):
        read_roster(path)
    with pytest.raises(CourseError, match="can't be read"):
        read_roster(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("Zoë  Müller", "Zoë-Müller"),
        ("../../x", "x"),
        ("=1+1", "1-1"),
        ("...", ""),
        ("a*[b]", "a-b"),
    ],
)
def test_a_name_becomes_an_id_that_can_name_a_folder(name, made):
    assert as_id(name) == made
    assert as_id(made) == made
