"""Binder, as far as it can be tried without it: what it would build, and what its start does."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bootstrap_work as work

LAB = "lab03-tensor-parallel"
NOTEBOOK = f"{LAB}/{LAB}.ipynb"
PROBE = (
    "import json, os; print(json.dumps({'folder': os.getcwd(), 'env': dict(os.environ), "
    "'files': sorted(os.listdir('.'))}))"
)


@pytest.fixture(scope="module")
def plan():
    """What repo2docker would build, without building it: its Dockerfile."""
    repository = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-m", "repo2docker", "--no-build", "--debug", "."]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout + done.stderr


@pytest.mark.slow
def test_binder_finds_our_conda_environment_and_its_python(plan):
    assert "Building conda environment for python=3.11" in plan
    assert "env update -p ${NB_PYTHON_PREFIX} --file " + '"environment.yml"' in plan


@pytest.mark.slow
def test_binder_installs_our_packages_and_starts_with_our_script(plan):
    assert "RUN ./postBuild" in plan
    assert 'ENV R2D_ENTRYPOINT="${REPO_DIR}/start"' in plan


def test_no_other_file_takes_the_place_of_ours(repository):
    # A folder `binder` or `.binder` would silence those at the root; a Dockerfile everything.
    for name in ("binder", ".binder", "Dockerfile", "runtime.txt", "requirements.txt"):
        assert not (repository / name).exists()


def test_postbuild_installs_every_package_of_ours_and_is_sound(repository):
    text = (repository / "postBuild").read_text()
    assert "for folder in */; do" in text
    assert "pip install --no-deps" in text
    for script in ("postBuild", "start"):
        subprocess.run(["bash", "-n", str(repository / script)], check=True)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """What of the course Binder's start needs, with one lab and something that is the staff's."""
    repository = Path(__file__).resolve().parents[3]
    root = tmp_path_factory.mktemp("binder") / "a course"
    for top in ("release", "source"):
        (root / top / LAB).mkdir(parents=True)
        shutil.copy(repository / "release" / NOTEBOOK, root / top / LAB)
    shutil.copytree(repository / "lib" / "jupyter", root / "lib" / "jupyter")
    for script in (repository / "lib").glob("bootstrap_*.py"):
        shutil.copy(script, root / "lib")
    shutil.copy(repository / "start", root)
    return root


def start(root, *command, **more):
    """Runs a command as Binder runs its server: through `start`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    env = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "OMP", "DISTLAB"))}
    env |= {"PATH": path, **more}
    return subprocess.run(
        [str(root / "start"), *command],
        cwd=root,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def started(root):
    """What a program sees that Binder starts in place of its server."""
    done = start(root, sys.executable, "-c", PROBE, JUPYTER_CONFIG_PATH="/of/the/image")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_server_starts_in_the_learners_folder_where_no_staff_file_is(root, started):
    assert started["folder"] == str(root / "work")
    assert started["files"] == [work.RECORD, LAB, work.START]
    assert os.listdir(root / "work" / LAB) == [f"{LAB}.ipynb"]
    assert started["env"]["OMP_NUM_THREADS"] == "1"
    assert started["env"]["DISTLAB_REVEAL"] == "on"


def test_the_servers_settings_are_those_of_the_labs_and_the_start_page_opens(started):
    *ours, theirs = started["env"]["JUPYTER_CONFIG_PATH"].split(":")
    assert theirs == "/of/the/image"
    found = {}
    for folder in reversed(ours):  # earlier folders win
        parts = json.loads((Path(folder) / "jupyter_server_config.json").read_text())
        for name, part in parts.items():
            found[name] = found.get(name, {}) | part
    assert found["LabApp"]["news_url"] is None
    for app in ("ServerApp", "LabApp", "JupyterNotebookApp"):
        assert found[app]["default_url"] == f"/lab/tree/{work.START}"


def test_another_start_keeps_what_a_learner_wrote_and_ends_as_its_server_does(root, started):
    (root / "work" / NOTEBOOK).write_text("mine")
    assert start(root, "sh", "-c", "exit 7").returncode == 7
    assert (root / "work" / NOTEBOOK).read_text() == "mine"
    page = json.loads((root / "work" / work.START).read_text())
    assert "can't be read" in page["cells"][1]["outputs"][0]["data"]["text/markdown"]


def test_the_readmes_link_opens_the_page_that_start_makes(repository):
    (place,) = re.findall(
        r"mybinder\.org/v2/\S+?urlpath=([\w./]+)", (repository / "README.md").read_text()
    )
    assert place == f"lab/tree/{work.START}"
