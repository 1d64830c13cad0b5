"""The start page's buttons: download the work folder as one file, restore it from one."""

from __future__ import annotations

from html import escape
from pathlib import Path

from distlab.learn import keep, records

LARGE = (
    "Is the file larger than 9 MB? Drag it into the file list on the left, then run this cell "
    "again: it is offered here."
)


def keep_work() -> None:
    """Shows the buttons for the work folder around this notebook."""
    import ipywidgets as widgets
    from IPython.display import display

    work = records.work_folder()
    if work is None:
        print("This is no work folder: `make lab` makes one, in work/.")
        return
    said, link = widgets.HTML(), widgets.Output()
    wide = widgets.Layout(width="auto", flex="0 0 auto")
    pack = widgets.Button(description="Pack my work to download", icon="download", layout=wide)
    upload = widgets.FileUpload(accept=".zip", description="Restore from a file", layout=wide)
    found = [p.name for p in sorted(work.glob("*.zip")) if keep.NAME.fullmatch(p.name)]

    def on_pack(_) -> None:
        link.clear_output()
        _say(said, lambda: _packed(work, link))

    def on_upload(change) -> None:
        for file in change["new"]:
            _say(said, lambda data=bytes(file["content"]): str(keep.restore(work, data)))

    pack.on_click(on_pack)
    upload.observe(on_upload, names="value")
    both = widgets.HBox([pack, upload], layout=widgets.Layout(flex_flow="row wrap"))
    rows = [both, link, said]
    for name in found:
        again = widgets.Button(description=f"Restore {name}", icon="upload", layout=wide)
        again.on_click(lambda _, name=name: _say(said, lambda: _restored(work, name)))
        rows.insert(1, again)
    rows.append(widgets.HTML(LARGE))
    display(widgets.VBox(rows))


def _packed(work: Path, link) -> str:
    from IPython.display import HTML, display

    place = keep.save(work)
    size = f"{place.stat().st_size / 1e3:,.0f} kB"
    with link:  # JupyterLab downloads what is marked so, and would open the rest as text
        display(HTML(f'<a href="{place.name}" download="{place.name}">{place.name}</a> ({size})'))
    return "Packed. Click the file's name to download it."


def _restored(work: Path, name: str) -> str:
    return str(keep.restore(work, (work / name).read_bytes()))


def _say(said, act) -> None:
    """Shows what an act says; a refusal or a full disk is one sentence, too."""
    try:
        text = act()
    except keep.Refused as refused:
        text = f"Nothing was changed: {refused}"
    except OSError as error:
        text = f"It could not be written or read: {error.strerror or error}."
    said.value = "<br>".join(map(escape, text.splitlines()))
