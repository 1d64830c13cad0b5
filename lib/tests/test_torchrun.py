"""The same file under torchrun: `run` joins the world that is there."""

import os
import subprocess
import sys

import pytest

from distlab import joined, run

SLOW = [pytest.mark.slow, pytest.mark.xdist_group("processes")]
WORLD = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}

SAME = """
import os
import random

import torch
import torch.distributed as dist

from distlab import per_rank, run

NOTES = []
RANK = int(os.environ["RANK"])


class Pair:
    def __init__(self, left, right):
        self.left, self.right = left, right


def work(comm, x, scale, *, shift):
    NOTES.append(comm.rank)
    x.mul_(scale)
    half = comm.split(comm.rank)
    other = comm.sendrecv(x, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size)
    later = comm.all_reduce(x, async_op=True)
    comm.compute(1e9)
    comm.barrier()
    print(f"I am {comm.rank}")
    noise = torch.rand(2), random.random()
    return {
        "sum": comm.all_reduce(x + shift), "gathered": comm.all_gather(x), "other": other,
        "alone": half.all_reduce(x), "later": later.wait(), "noise": noise, "notes": NOTES,
        "pair": Pair(x, comm.rank),
    }


def plain(value):
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]
    if type(value).__name__ == "Pair":
        return plain([value.left, value.right])
    return value.tolist() if isinstance(value, torch.Tensor) else value


def both(engine):
    torch.manual_seed(5)
    random.seed(5)
    xs = [torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])]
    result = run(work, 2, per_rank(xs), 3.0, shift=1.0, engine=engine, echo=engine == "gloo")
    assert [x.tolist() for x in xs] == [[1.0, 2.0], [10.0, 20.0]] and NOTES == []
    after = torch.rand(1).item(), random.random()  # the caller's own random state is untouched
    return plain(result.values), result.ledger, result.stdout, after, result


assert not dist.is_initialized()
simulated = both("sim")
for _ in range(2):  # a second run uses the same world
    joined = both("gloo")
    assert joined[:4] == simulated[:4], (joined[:4], simulated[:4])
    assert isinstance(joined[4].values[RANK]["pair"], Pair)
    assert joined[4].values[RANK]["pair"].left.tolist() == [3.0 * 10**RANK, 6.0 * 10**RANK]
try:
    run(work, 3, torch.ones(2), 1.0, shift=0.0, engine="gloo")
except ValueError as error:
    print(f"refused: {error}")
print(f"rank {RANK} is content")
"""

RAISES = """
from distlab import run

def work(comm):
    if comm.rank == 1:
        raise ValueError("this rank has had enough")
    return comm.barrier()

run(work, 2, engine="gloo")
"""


def torchrun(folder, text):
    file = folder / "script.py"
    file.write_text(text, encoding="utf-8")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return subprocess.run(
        [*launcher, "--nproc-per-node", "2", str(file)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env=os.environ | {"TMPDIR": str(folder)},  # torchrun leaves a folder of logs
    )


@pytest.mark.parametrize("engine", ["gloo", "nccl"])
def test_a_world_of_another_size_is_refused_in_one_sentence(monkeypatch, engine):
    for name, value in WORLD.items():
        monkeypatch.setenv(name, value)
    assert joined.is_started()
    with pytest.raises(ValueError, match=r"asked for 3 ranks, but .* a world of 2") as caught:
        run(lambda comm: None, 3, engine=engine)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("missing", WORLD)
def test_only_a_launchers_whole_word_counts(monkeypatch, missing):
    for name, value in WORLD.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv(missing)
    assert not joined.is_started()


def test_the_simulator_never_joins(monkeypatch):
    for name, value in WORLD.items():
        monkeypatch.setenv(name, value)
    assert run(lambda comm: comm.size, 3).values == [3, 3, 3]


@pytest.mark.parametrize("text", [pytest.param(SAME, marks=SLOW)], ids=["same"])
def test_values_ledger_and_prints_are_the_simulators_on_every_process(tmp_path, text):
    done = torchrun(tmp_path, text)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in (0, 1):
        assert f"rank {rank} is content" in done.stdout
        assert done.stdout.count(f"I am {rank}") == 2  # as the process prints it, once per run
    assert done.stdout.count("refused: run was asked for 3 ranks") == 2


@pytest.mark.parametrize("text", [pytest.param(RAISES, marks=SLOW)], ids=["raises"])
def test_torchrun_shows_what_a_rank_raised_and_ends_the_others(tmp_path, text):
    done = torchrun(tmp_path, text)
    assert done.returncode != 0
    assert "ValueError: this rank has had enough" in done.stderr
