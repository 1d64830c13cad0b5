"""The memory explorer of the page counts and draws what distlab does, on random settings."""

import json
import random
import shutil
import subprocess
from dataclasses import asdict, fields

import pytest

from distlab.explorers.frame import Impossible
from distlab.explorers.memory import MEMORY_CONTROLS, MemorySettings, memory_numbers, memory_view
from distlab.explorers.web import MODULES, memory_data

NODE = shutil.which("node")
ASK = """
import { memoryNumbers, memoryView } from %r;
const { data, all } = JSON.parse(await new Response(process.stdin).text());
console.log(JSON.stringify(all.map((settings) => {
  const view = memoryView(data, settings);
  return view.impossible ? view : { ...view, numbers: memoryNumbers(data, settings) };
})));
"""


def settings_of_all_kinds(count: int) -> list[MemorySettings]:
    """Settings that a reader can choose; half of them are lucky to be possible."""
    chance = random.Random(9)
    chosen = [
        {control.name: chance.choice(control.options)[1] for control in MEMORY_CONTROLS}
        for _ in range(count)
    ]
    for one in chosen[::2]:
        one["gpus"] = one["tp"] * one["pp"] * chance.choice((1, 2, 3, 8, 1024))
    return [MemorySettings(), *(MemorySettings(**one) for one in chosen)]


@pytest.fixture(scope="module")
def answers():
    """What distlab and the module say of the same settings."""
    if NODE is None:
        pytest.skip("no node here to run the page's module; a browser runs it in test_site.py")
    ours = settings_of_all_kinds(400)
    asked = json.dumps({"data": memory_data(), "all": [asdict(settings) for settings in ours]})
    program = ASK % (MODULES / "memory.mjs").as_uri()
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", program],
        input=asked,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return list(zip(ours, json.loads(done.stdout), strict=True))


def test_the_numbers_are_equal_to_the_last_bit(answers):
    compared = 0
    for settings, theirs in answers:
        if "impossible" in theirs:
            continue
        ours, numbers = memory_numbers(settings), theirs["numbers"]
        assert numbers["dp"] == ours.dp
        assert numbers["capacity"] == ours.capacity_bytes
        assert numbers["fullest"] == ours.fullest
        assert numbers["free"] == ours.free_bytes
        assert [s["layers"] for s in numbers["stages"]] == [s.layers for s in ours.stages]
        assert [s["in_flight"] for s in numbers["stages"]] == [s.in_flight for s in ours.stages]
        assert [s["sizes"] for s in numbers["stages"]] == [[*s.sizes.values()] for s in ours.stages]
        compared += 1
    assert compared > 100


def test_the_picture_and_its_sentence_are_equal_letter_by_letter(answers):
    for settings, theirs in answers:
        if "impossible" in theirs:
            continue
        ours = memory_view(settings)
        assert theirs["sentence"] == ours.sentence
        assert theirs["svg"] == ours.svg


def test_what_can_not_be_is_refused_in_the_same_words(answers):
    reasons = set()
    for settings, theirs in answers:
        if "impossible" not in theirs:
            continue
        with pytest.raises(Impossible) as refused:
            memory_numbers(settings)
        assert theirs["impossible"] == str(refused.value)
        reasons.add(str(refused.value).partition("Choose")[2])
    assert len(reasons) >= 3


def test_the_page_has_every_control_and_a_possible_start():
    data = memory_data()
    assert [control["name"] for control in data["controls"]] == [c.name for c in MEMORY_CONTROLS]
    assert {control["name"] for control in data["controls"]} == {
        field.name for field in fields(MemorySettings)
    }
    for control in data["controls"]:
        assert data["start"][control["name"]] in control["values"]
    memory_numbers(MemorySettings(**json.loads(json.dumps(data["start"]))))
