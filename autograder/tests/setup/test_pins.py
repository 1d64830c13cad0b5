"""One set of versions: the lock file, the packages, conda's list and what is installed."""

import os
import re
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "course" / "bundle"))
from pack import needed  # noqa: E402 - beside what is packed, no package

OURS = {"distlab", "distgrade"}
CONDA_NAMES = {"pytorch-cpu": "torch", "matplotlib-base": "matplotlib"}


def read_lock() -> dict[str, str]:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pairs = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def project(folder: str) -> dict:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())


def direct(*, dev: bool) -> list[Requirement]:
    """What the two packages ask for themselves; with dev also what tests and builds need."""
    wishes = []
    for table in (project("lib"), project("autograder")):
        wishes += table["project"]["dependencies"]
        if dev:
            wishes += table["build-system"]["requires"]
            for extra in table["project"].get("optional-dependencies", {}).values():
                wishes += extra
    return [r for r in map(Requirement, wishes) if r.name not in OURS]


def conda_pins(text: str) -> dict[str, str]:
    listed = yaml.safe_load(text)["dependencies"]
    pins = dict(line.split("=") for line in listed if isinstance(line, str) and "=" in line)
    for group in listed:
        if isinstance(group, dict):  # what conda leaves to pip
            pins |= dict(line.split("==") for line in group["pip"])
    return {canonicalize_name(CONDA_NAMES.get(name, name)): pin for name, pin in pins.items()}


def disagreements(
    wishes: list[Requirement], lock: dict[str, str], conda: dict[str, str]
) -> list[str]:
    """Names every direct dependency whose version is not the same everywhere."""
    found = []
    for wish in wishes:
        name = canonicalize_name(wish.name)
        if str(wish.specifier) != f"=={lock.get(name)}":
            found.append(f"{name}: pyproject {wish.specifier}, lock {lock.get(name)}")
        if name in conda and Version(lock.get(name, "0")) not in SpecifierSet(f"=={conda[name]}.*"):
            found.append(f"{name}: environment.yml {conda[name]}, lock {lock.get(name)}")
    return found


def test_the_lock_holds_nothing_but_exact_versions():
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[0-9a-z.]+", line), line


def test_torch_is_named_without_a_build_so_that_pip_takes_the_cpu_one():
    assert "torch==2.13.0" in (ROOT / "requirements.lock").read_text().splitlines()
    assert Requirement("torch==2.13.0") in direct(dev=False)


def test_direct_dependencies_have_one_version_everywhere():
    text = (ROOT / "environment.yml").read_text()
    assert disagreements(direct(dev=True), read_lock(), conda_pins(text)) == []


@pytest.mark.parametrize(
    ("wish", "locked", "conda"),
    [
        ("numpy==2.4.5", "2.4.6", "2.4"),
        ("numpy>=2.4.6", "2.4.6", "2.4"),
        ("numpy==2.4.6", "2.4.6", "2.3"),
        ("numpy==2.4.6", None, "2.4"),
    ],
)
def test_a_version_that_differs_is_found(wish, locked, conda):
    lock = {"numpy": locked} if locked else {}
    assert disagreements([Requirement(wish)], lock, {"numpy": conda})


def test_conda_has_exactly_the_direct_dependencies():
    wanted = {canonicalize_name(r.name) for r in direct(dev=False)} | {"python", "setuptools"}
    assert set(conda_pins((ROOT / "environment.yml").read_text())) == wanted


def test_conda_takes_packages_from_conda_forge_alone():
    channels = yaml.safe_load((ROOT / "environment.yml").read_text())["channels"]
    assert channels == ["conda-forge", "nodefaults"]


def test_installed_versions_are_those_of_the_lock():
    wrong = {}
    for name, version in read_lock().items():
        try:
            installed = Version(metadata.version(name)).public
        except metadata.PackageNotFoundError:
            installed = "absent"
        if installed != version:
            wrong[name] = (version, installed)
    assert wrong == {}


def test_the_lock_holds_all_that_is_needed_and_no_more():
    # Some systems need packages of their own; the lock is the part that all have in common.
    own = re.compile(r"nvidia-|cuda-|triton$|appnope$|colorama$|greenlet$")
    needs, lock = needed(direct(dev=True)), set(read_lock())
    assert {n for n in needs - lock if not own.match(n)} == set()
    assert {n for n in lock - needs if not own.match(n)} == set()


def test_every_locked_version_installs_on_the_first_python_3_11():
    # Debian 12 has 3.11.2; a package that wants 3.11.5 is found out there, not here.
    picky = {}
    for name in read_lock():
        wants = metadata.metadata(name)["Requires-Python"] or ""
        if Version("3.11.0") not in SpecifierSet(wants):
            picky[name] = wants
    assert picky == {}


def test_students_need_nothing_of_what_builds_the_site():
    site = project("autograder")["project"]["optional-dependencies"]["site"]
    wishes = [Requirement(line) for line in project("lib")["project"]["dependencies"]]
    assert site
    assert {canonicalize_name(Requirement(line).name) for line in site} & needed(wishes) == set()


@pytest.mark.parametrize("folder", ["lib", "autograder"])
def test_every_dependency_says_what_it_is_for(folder):
    text = (ROOT / folder / "pyproject.toml").read_text()
    lines = [line for line in text.splitlines() if line.startswith('    "')]
    assert lines
    assert [line for line in lines if not re.search(r"# \w+", line)] == []


@pytest.mark.parametrize("name", ["postBuild", "start", ".ci/run"])
def test_scripts_that_others_start_may_be_executed(name):
    assert os.access(ROOT / name, os.X_OK)
    assert (ROOT / name).read_text().startswith("#!")
