"""The command `distlab plan`, and the names it takes: answers for people and programs, errors."""

import csv
import io
import json
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from distlab.cli import main
from distlab.hardware import A100_SXM_40GB, DGX_H100
from distlab.model import GPT3_175B, LLAMA3_405B, MODELS, Config
from distlab.planner.names import GPU_NAMES, find_machine, find_model, find_stack, slug

GPT = ("--model", "gpt-3-175b", "--gpus", "1024", "--batch", "1536", "--seq", "2048")


def run(*arguments: str):
    return CliRunner().invoke(main, ["plan", *arguments], env={"COLUMNS": "100"})


def refused(*arguments: str) -> str:
    """What stands on stderr of a run that must fail without a word on stdout, and no traceback."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert not result.stdout
    return " ".join(result.stderr.split())


def test_the_command_is_the_packages_script():
    root = Path(__file__).resolve().parents[1]
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]
    module, name = scripts["distlab"].split(":")
    assert getattr(import_module(module), name) is main


def test_a_plan_is_a_table_with_the_best_first():
    result = run(*GPT, "--top", "3")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("GPT-3 175B on 1,024 × H100 SXM 80 GB, a step of 1,536 × 2,048")
    rows = [line for line in lines if "×" in line][1:]
    assert len(rows) == 4  # three shapes below their heading
    assert rows[1].strip().startswith("*")
    assert "layouts," in result.stdout
    assert "Shapes of which nothing fits" not in result.stdout


def test_programs_get_json_or_csv_with_the_demands_met():
    demands = ("--tp", "8", "--pp", "8", "--cp", "1", "--zero", "1", "--recompute", "full")
    said = json.loads(run(*GPT, *demands, "--no-sp", "--json", "--top", "2").stdout)
    assert [(s["t"], s["p"], s["d"], s["zero"]) for s in said["shapes"]] == [(8, 8, 16, 1)]
    assert said["best"]["sequence_parallel"] is False
    assert said["fixed"] == {
        "t": 8, "p": 8, "context": 1, "sequence_parallel": False, "recompute": "full", "zero": 1,
    }  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(run(*GPT, *demands, "--csv").stdout)))
    assert {(row["t"], row["p"], row["recompute"]) for row in rows} == {("8", "8", "full")}
    more = ("--chunks", "4", "--microbatch", "2", "--dp", "16", "--sp", "--csv")
    (row,) = csv.DictReader(io.StringIO(run(*GPT, *more, "--tp", "8", "--pp", "8").stdout))
    assert (row["v"], row["microbatch"], row["sequence_parallel"]) == ("4", "2", "True")


def test_a_node_and_a_memory_of_another_size_count():
    said = json.loads(run(*GPT, "--node-size", "4", "--memory", "40", "--json").stdout)
    assert said["job"]["gpus_per_node"] == 4
    assert said["limit_bytes"] == 40e9
    assert said["best"]["t"] <= 4
    assert said["best"]["memory_bytes"] <= 40e9


def test_what_does_not_fit_is_shown_on_demand_with_why():
    shown = run(*GPT, "--rejected").stdout
    assert "Shapes of which nothing fits" in shown
    assert "16×1×64, 1 and 27 more" in shown
    assert "The 16 ranks of t do not fit in a node of 8." in shown


def test_the_picture_goes_to_a_file(tmp_path):
    path = tmp_path / "plan.svg"
    assert run(*GPT, "--tp", "8", "--cp", "1", "--csv", "--picture", str(path)).exit_code == 0
    assert path.read_text().lstrip().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--model", "lama-3-70b", *GPT[2:]),
            "distlab plan: There is no model 'lama-3-70b'. Did you mean llama-3-70b or llama-2-70b",
        ),
        (("--model", "405b", *GPT[2:]), "Did you mean llama-3.1-405b?"),
        (("--model", "zzz", *GPT[2:]), "There are gpt-7.5b, gpt-3-175b,"),
        ((*GPT, "--gpu", "h1000"), "There is no GPU 'h1000'. Did you mean h100 or"),
        ((*GPT, "--gpu", "tpu"), "There are v100, a100, a100-40gb, h100"),
        ((*GPT, "--stack", "megatron"), "There are no constants for 'megatron'. Did you mean meg"),
        (
            ("--model", "gpt-3-175b", "--gpus", "16384", "--batch", "7", "--seq", "2048"),
            "A batch of 7 is shared evenly by no number of replicas that 16,384 GPUs allow (d =",
        ),
        (
            ("--model", "gpt-3-175b", "--gpus", "8", "--batch", "8", "--seq", "2048"),
            "fits in no layout of 8 GPUs: the smallest, 8×1×1, sequence parallel, full recompute,",
        ),
        ((*GPT, "--tp", "3"), "No t · p · d · context with t = 3 makes 1,024 GPUs."),
        ((*GPT, "--tp", "16"), "The 16 ranks of t do not fit in a node of 8."),
        (("--model", "mixtral-8x7b", *GPT[2:]), "Mixtral 8x7B has experts"),
        ((*GPT, "--json", "--csv"), "--json and --csv are two outputs: choose one."),
        ((*GPT, "--picture", "plan.doc"), "--picture draws .png or .svg, not plan.doc."),
        ((*GPT, "--picture", "/nowhere/plan.png"), "/nowhere/plan.png can't be written: No such"),
        ((*GPT, "--zero", "4"), "4 is not in the range 0<=x<=3"),
        ((*GPT, "--recompute", "some"), "'some' is not one of 'none', 'selective', 'full'"),
        (GPT[:6], "Missing option '--seq'"),
    ],
)
def test_what_can_not_be_answered_is_one_sentence(arguments, said):
    assert said in refused(*arguments)


def test_an_unknown_command_names_the_near_one():
    result = CliRunner().invoke(main, ["plam"])
    assert result.exit_code == 2
    assert "There is no command 'plam'. Did you mean `distlab plan`?" in result.stderr


def test_every_option_is_explained():
    result = run("--help")
    assert result.exit_code == 0
    from distlab.cli import plan

    assert all(option.help for option in plan.params)


def model_file(tmp_path, text: str) -> str:
    path = tmp_path / "mine.json"
    path.write_text(text)
    return str(path)


def test_a_model_may_come_from_a_file(tmp_path):
    small = {"layers": 4, "hidden": 512, "heads": 8, "vocab": 1000, "gated": True, "norm": "rms"}
    path = model_file(tmp_path, json.dumps(small))
    assert find_model(path) == Config(name="mine", **small)
    job = ("--gpus", "8", "--batch", "8", "--seq", "128")
    said = json.loads(run("--model", path, *job, "--json").stdout)
    assert said["job"]["model"] == "mine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON: "),
        ("[1]", "must hold one object"),
        ('{"layers": 2, "hidden": 64}', "a model needs heads, vocab."),
        ('{"layer": 2}', "a model has no 'layer'. Did you mean layers"),
        ('{"layers": "2"}', "layers is '2', not a whole number."),
        ('{"layers": true}', "layers is True, not a whole number."),
        ('{"gated": 1}', "gated is 1, not true or false."),
        ('{"norm": "batch"}', "norm is 'batch', not 'rms' or 'layer'."),
        ('{"name": 7}', "name is 7, not a text."),
        ('{"kv_heads": -1}', "kv_heads can't be -1."),
        (
            '{"layers": 2, "hidden": 64, "heads": 7, "vocab": 9}',
            "7 heads do not divide hidden size",
        ),
        ('{"layers": 0, "hidden": 64, "heads": 8, "vocab": 9}', "layers must be at least 1."),
    ],
)
def test_a_file_that_says_no_model_is_one_sentence(tmp_path, text, said):
    assert said in refused("--model", model_file(tmp_path, text), *GPT[2:])


def test_a_file_that_can_not_be_read_is_one_sentence(tmp_path):
    missing = str(tmp_path / "none.json")
    assert f"{missing} can't be read: No such file" in refused("--model", missing, *GPT[2:])
    binary = tmp_path / "binary.json"
    binary.write_bytes(b"\xff\xfe\x00")
    assert "can't be read: it is no text." in refused("--model", str(binary), *GPT[2:])


def test_names_are_those_that_people_type():
    assert slug("Llama 3.1 405B") == "llama-3.1-405b"
    assert len({slug(name) for name in MODELS}) == len(MODELS)
    assert find_model("Llama 3.1 405B") is find_model("llama-3.1-405b") is LLAMA3_405B
    assert find_model("gpt-3-175b") is GPT3_175B
    assert find_machine("H100") is DGX_H100
    assert find_machine("a100-40gb").gpu == A100_SXM_40GB
    assert find_machine("a100-40gb").node_link == A100_SXM_40GB.nvlink
    assert all(name == slug(name) for name in GPU_NAMES)
    assert find_stack("megatron-lm-2022-a100").name == "Megatron-LM 2022, A100"
