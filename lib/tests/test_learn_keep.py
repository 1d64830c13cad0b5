"""Work comes back as it was; a zip from elsewhere can't lead out, hide, swell or write over."""

import hashlib
import io
import json
import stat
import zipfile

import pytest

from distlab.learn import keep, records
from distlab.learn.records import Kept

LAB = "lab03-tensor-parallel"
NOTEBOOK = f"{LAB}/{LAB}.ipynb"
RECORD = f"{records.FOLDER}/lab03.shards.json"


@pytest.fixture
def work(tmp_path):
    return folder(tmp_path / "work", "mine")


def folder(work, answer: str):
    """A work folder with an answer, a note of the learner's own, and a result."""
    (work / LAB / ".ipynb_checkpoints").mkdir(parents=True)
    (work / records.MARK).write_text("{}")
    (work / NOTEBOOK).write_text(answer)
    (work / LAB / ".ipynb_checkpoints" / "old.ipynb").write_text("old")
    (work / LAB / "notes.md").write_text("notes")
    (work / "start.ipynb").write_text("made anew")
    (work / "my-work-2026-01-01.zip").write_bytes(b"older")
    records.shelf_at(work).note("lab03.shards", answer, Kept("passed", 3, 3, "g", "then"))
    return work


def zipped(files: dict, *, listed: dict | None = None, form: object = 1) -> bytes:
    """A zip as somebody might make it; names may be ZipInfo."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        digests = {}
        for name, content in files.items():
            archive.writestr(name, content)
            digests[getattr(name, "filename", name)] = hashlib.sha256(content).hexdigest()
        told = {"form": form, "files": digests if listed is None else listed}
        archive.writestr(keep.LIST, json.dumps(told))
    return data.getvalue()


def everything(work) -> dict[str, bytes]:
    return {p.relative_to(work).as_posix(): p.read_bytes() for p in work.rglob("*") if p.is_file()}


def test_a_new_place_gets_all_that_the_old_one_had(work, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    told = keep.restore(other, keep.pack(work))
    assert set(everything(other)) == {NOTEBOOK, f"{LAB}/notes.md", RECORD}
    assert (other / NOTEBOOK).read_text() == "mine"
    assert records.read_record(other, "lab03.shards").results["mine"].points == 3
    assert str(told) == "2 files restored, 0 were the same."


def test_the_same_work_gives_the_same_zip_and_one_file(work):
    assert keep.save(work) == keep.save(work)
    (work / NOTEBOOK).write_text("more")
    assert keep.save(work).stem.endswith("-2")
    assert all(keep.NAME.fullmatch(path.name) for path in work.glob("*.zip"))


def test_a_file_that_differs_is_kept_beside_and_results_are_joined(work, tmp_path):
    data = keep.pack(work)
    other = folder(tmp_path / "other", "another answer")
    told = keep.restore(other, data)
    assert (other / NOTEBOOK).read_text() == "mine"
    aside = f"{LAB}/{LAB}.mine-1.ipynb"
    assert (other / aside).read_text() == "another answer"
    assert told.replaced == {NOTEBOOK: aside}
    assert (
        f"1 file restored, 1 were the same.\nYours is kept: {NOTEBOOK} is now {LAB}.mine-1"
        in str(told)
    )
    assert set(records.read_record(other, "lab03.shards").results) == {"mine", "another answer"}
    before = everything(other)
    assert str(keep.restore(other, data)) == "0 files restored, 2 were the same."
    assert everything(other) == before  # once more changes nothing


def test_the_courses_own_texts_stay_behind_and_a_folder_of_ones_own_comes_along(work):
    for place in ("course", f"{LAB}/course"):
        (work / place).mkdir()
        (work / place / "glossary.md").write_text("words")
    with zipfile.ZipFile(io.BytesIO(keep.pack(work))) as archive:
        names = archive.namelist()
    assert f"{LAB}/course/glossary.md" in names
    assert not [name for name in names if name.startswith("course/")]


def test_nothing_to_keep_is_said(tmp_path):
    with pytest.raises(keep.Refused, match="nothing to keep"):
        keep.pack(tmp_path)


def test_links_are_not_followed_out_of_the_folder(work, tmp_path):
    (tmp_path / "secret.txt").write_text("secret")
    (work / LAB / "link.txt").symlink_to(tmp_path / "secret.txt")
    (work / "elsewhere").symlink_to(tmp_path)
    with zipfile.ZipFile(io.BytesIO(keep.pack(work))) as archive:
        assert set(archive.namelist()) == {NOTEBOOK, f"{LAB}/notes.md", RECORD, keep.LIST}


def test_a_file_too_large_is_named(work, monkeypatch):
    monkeypatch.setattr(keep, "MOST_FILE_BYTES", 3)
    with pytest.raises(keep.Refused, match=r"lab03.* too large"):
        keep.pack(work)


def refused(work, data: bytes) -> str:
    """The sentence of a refusal that changed nothing."""
    before = everything(work)
    with pytest.raises(keep.Refused) as info:
        keep.restore(work, data)
    assert everything(work) == before
    assert not list(work.parent.glob("stolen*"))
    sentence = str(info.value)
    assert len(sentence) < 200
    assert "\n" not in sentence
    return sentence


@pytest.mark.parametrize(
    "name",
    [
        "../stolen.txt",
        "/tmp/stolen.txt",
        f"{LAB}/../../stolen.txt",
        f"{LAB}/./x.txt",
        f"{LAB}//x.txt",
        "..\\stolen.txt",
        "C:/stolen.txt",
        ".bashrc",
        f"{LAB}/.ipynb_checkpoints/x.ipynb",
        f"{LAB}/.hidden/x.txt",
        ".jupyter/jupyter_server_config.py",
        records.MARK,
        f"{records.FOLDER}/x.py",
        f"{records.FOLDER}/lab03.shards.json/x.json",
        f"{records.FOLDER}/../x.json",
        f"{LAB}/{records.FOLDER}/lab03.shards.json",
        "start.ipynb",
        f"{LAB}/" + "x" * 250,
        f"{LAB}/a\nb.txt",
    ],
)
def test_names_that_lead_elsewhere_are_refused(work, name):
    refused(work, zipped({NOTEBOOK: b"theirs", name: b"x"}))


def test_links_and_folders_in_a_zip_are_refused(work):
    link = zipfile.ZipInfo(f"{LAB}/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert "none of a learner's" in refused(work, zipped({link: b"/etc/passwd"}))
    refused(work, zipped({f"{LAB}/sub/": b""}))


def test_a_link_here_leads_no_file_out(work, tmp_path):
    (tmp_path / "outside").mkdir()
    (work / "lab04-pipeline-bubbles").symlink_to(tmp_path / "outside")
    told = refused(work, zipped({"lab04-pipeline-bubbles/x.ipynb": b"x"}))
    assert "no folder" in told
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_zip_that_we_did_not_make_is_refused(work):
    foreign = io.BytesIO()
    with zipfile.ZipFile(foreign, "w") as archive:
        archive.writestr(NOTEBOOK, "theirs")
    assert "the start page" in refused(work, foreign.getvalue())
    assert "not in its list" in refused(work, zipped({NOTEBOOK: b"theirs"}, listed={}))
    assert "missing" in refused(work, zipped({}, listed={NOTEBOOK: "0"}))
    assert "changed" in refused(work, zipped({NOTEBOOK: b"theirs"}, listed={NOTEBOOK: "0"}))
    for form in (2, None, [1]):
        refused(work, zipped({NOTEBOOK: b"theirs"}, form=form))


def test_a_damaged_record_is_refused_before_anything_is_written(work):
    assert "damaged" in refused(work, zipped({NOTEBOOK: b"theirs", RECORD: b"{"}))


@pytest.mark.parametrize("data", [b"", b"PK", b"no zip at all", b"PK\x03\x04" + b"\0" * 100])
def test_what_is_no_zip_is_refused(work, data):
    assert "no zip" in refused(work, data)


def test_a_cut_or_scrambled_zip_is_refused(work, tmp_path):
    data = keep.pack(work)
    refused(work, data[: len(data) // 2])
    middle = len(data) // 4
    refused(folder(tmp_path / "o", "x"), data[:middle] + b"\xff" * 40 + data[middle + 40 :])


def test_a_zip_that_swells_is_read_no_further_than_the_bound(work, monkeypatch):
    monkeypatch.setattr(keep, "MOST_FILE_BYTES", 10_000)
    bomb = zipped({NOTEBOOK: b"\0" * 1_000_000})
    assert len(bomb) < 5_000
    assert "larger than" in refused(work, bomb)
    monkeypatch.setattr(keep, "MOST_BYTES", 15_000)
    many = {f"{LAB}/{number}.txt": b"\0" * 9_000 for number in range(3)}
    assert "unpacks to more" in refused(work, zipped(many))
    monkeypatch.setattr(keep, "MOST_FILES", 2)
    assert "more than 2 files" in refused(work, zipped(many))
