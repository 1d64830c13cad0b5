"""Ranks behave as separate processes: nothing of one is seen by another, or by the caller."""

import json
import random
import sys
import threading
import xml.etree.ElementTree
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from distlab import isolate, per_rank, run
from distlab.errors import UncopyableError
from helpers_module import counting, shared_list  # a user's own importable module


def test_closures_and_globals_are_copied():
    seen = []
    model = torch.nn.Linear(2, 1)
    before = model.weight.detach().clone()

    def body(comm):
        seen.append(comm.rank)
        with torch.no_grad():
            model.weight += 1
        comm.barrier()
        return list(seen), (model.weight - before).detach().unique().tolist()

    for rank, (mine, change) in enumerate(run(body, 4).values):
        assert mine == [rank]
        assert np.allclose(change, 1)
    assert seen == []
    assert torch.equal(model.weight, before)


def test_a_users_module_is_copied_too():
    assert run(counting, 3).values == [1, 1, 1]
    assert shared_list == []


def test_class_attributes_are_copied():
    class Box:
        items: list = []  # noqa: RUF012 - the shared attribute is the point

    class Tally(torch.autograd.Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            Tally.calls += 1
            return x.clone()

    def body(comm):
        Box.items.append(comm.rank)
        Tally.apply(torch.ones(1))
        comm.barrier()
        return Box.items, Tally.calls

    assert run(body, 3).values == [([0], 1), ([1], 1), ([2], 1)]
    assert Box.items == []
    assert Tally.calls == 0


def test_arguments_are_copied():
    x, notes = torch.zeros(2), []

    def body(comm, x, notes, *, extra):
        x += comm.rank
        notes.append(comm.rank)
        extra["r"] = comm.rank
        comm.barrier()
        return x, notes, extra

    for rank, (got, mine, extra) in enumerate(run(body, 3, x, notes, extra={}).values):
        assert got.tolist() == [rank, rank]
        assert mine == [rank]
        assert extra == {"r": rank}
    assert x.tolist() == [0, 0]
    assert notes == []


def test_per_rank_arguments_are_handed_out_and_copied():
    shards = list(torch.arange(6.0).reshape(3, 2))

    def body(comm, factor, x, *, bias):
        x *= factor
        return x + bias

    values = run(body, 3, 10.0, per_rank(shards), bias=per_rank([1.0, 2.0, 3.0])).values
    assert [v.tolist() for v in values] == [[1, 11], [22, 32], [43, 53]]
    assert shards[0].tolist() == [0, 1]


def test_a_rank_gets_no_other_ranks_argument():
    def body(comm, x):
        return [type(cell).__name__ for cell in [x]]

    assert run(body, 2, per_rank([1, "two"])).values == [["int"], ["str"]]


def test_views_keep_sharing_what_they_share():
    base = torch.zeros(4)
    view = base[1:3]
    array = np.zeros((3, 4), order="F")
    column = array[:, 2]

    def body(comm):
        view.add_(comm.rank + 1)
        column[:] = comm.rank + 1
        return base, array

    for rank, (got, arr) in enumerate(run(body, 2).values):
        assert got.tolist() == [0, rank + 1, rank + 1, 0]
        assert arr[:, 2].tolist() == [rank + 1] * 3
    assert base.sum() == 0
    assert array.sum() == 0


def test_tied_parameters_stay_tied():
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(3, 3, bias=False)
            self.b = torch.nn.Linear(3, 3, bias=False)
            self.b.weight = self.a.weight

    model = Tied()

    def body(comm, model):
        return model.a.weight is model.b.weight, len(list(model.parameters()))

    assert run(body, 2, model).values == [(True, 1)] * 2


def test_a_large_closure_is_copied_on_write_only():
    big = torch.zeros(25_000_000)  # 100 MB

    def body(comm):
        if comm.rank == 3:
            big[0] = 1
        comm.barrier()
        return big[0].item()

    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    values = run(body, 64).values
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert values == [0.0] * 3 + [1.0] + [0.0] * 60
    assert grown_kb * (1 if sys.platform == "linux" else 1 / 1024) < 1_000_000  # 64 copies: 6.4 GB
    assert big[0] == 0


def test_large_arrays_for_many_ranks_are_refused_with_advice():
    big = np.zeros(8_000_000)
    with pytest.raises(UncopyableError, match="per_rank"):
        run(lambda comm: big[0], 1024)


def test_grad_flags_reach_the_ranks():
    w = torch.ones(2, requires_grad=True)

    def body(comm, w):
        (w * comm.rank).sum().backward()
        return w.grad

    values = run(body, 2, w).values
    assert values[1].tolist() == [1, 1]
    assert w.grad is None


def test_results_carry_no_history_and_the_callers_classes():
    class Answer:
        def __init__(self, x):
            self.x = x

    def body(comm):
        w = torch.ones(2, requires_grad=True)
        return Answer(w * 2), {"y": (w * 3,)}

    answer, tree = run(body, 2).values[1]
    assert isinstance(answer, Answer)
    assert answer.x.grad_fn is None
    assert tree["y"][0].grad_fn is None


@pytest.mark.parametrize("what", ["variable", "argument", "per_rank", "helper", "result"])
def test_what_cannot_be_copied_is_named(what):
    lock = threading.Lock()

    def helper():
        return lock

    cases = {
        "variable": (lambda: run(lambda comm: lock, 2), "variable `lock`"),
        "argument": (lambda: run(lambda comm, x: 0, 2, lock), "argument 1"),
        "per_rank": (lambda: run(lambda comm, x: 0, 2, per_rank([1, lock])), "rank 1's argument 1"),
        "helper": (lambda: run(lambda comm: helper(), 2), "variable `lock` that helper uses"),
        "result": (lambda: run(lambda comm: (i for i in "ab"), 2), "rank 0 returned"),
    }
    call, words = cases[what]
    with pytest.raises(UncopyableError, match=words):
        call()


def test_a_communicator_cannot_leave_its_rank():
    with pytest.raises(UncopyableError, match="communicator belongs to its rank"):
        run(lambda comm: [{"c": {comm: 1}}], 2)


def test_torch_randomness_is_per_rank_as_in_processes():
    def body(comm):
        torch.manual_seed(5)
        first = torch.rand(2)
        comm.barrier()
        return torch.cat([first, torch.rand(2)])

    torch.manual_seed(5)
    alone = torch.cat([torch.rand(2), torch.rand(2)])
    for got in run(body, 4).values:
        assert torch.equal(got, alone)


def test_ranks_start_with_the_callers_random_state_and_leave_it_alone():
    def body(comm):
        values = [torch.rand(1).item() for _ in range(comm.rank + 1)]
        comm.barrier()
        return [*values, torch.rand(1).item()]

    torch.manual_seed(1)
    expected = [torch.rand(1).item() for _ in range(4)]
    torch.manual_seed(1)
    for rank, got in enumerate(run(body, 3).values):
        assert got == expected[: rank + 2]
    assert torch.rand(1).item() == expected[0]


def test_python_and_numpy_randomness_are_per_rank():
    def body(comm):
        random.seed(3)
        np.random.seed(3)
        first = random.random(), np.random.rand()
        comm.barrier()
        return (*first, random.random(), np.random.rand())

    random.seed(3)
    np.random.seed(3)
    state = random.getstate()
    alone = random.random(), np.random.rand()
    alone = (*alone, random.random(), np.random.rand())
    random.setstate(state)
    assert run(body, 3).values == [alone] * 3
    assert random.getstate() == state


def test_torch_settings_of_the_caller_reach_the_ranks():
    def body(comm):
        x = torch.ones(2, requires_grad=True)
        comm.all_reduce(x)
        return torch.is_grad_enabled(), str((x * 2).device), torch.is_inference_mode_enabled()

    assert run(body, 2).values[1] == (True, "cpu", False)
    with torch.no_grad():
        assert run(body, 2).values[1] == (False, "cpu", False)
    with torch.device("meta"):
        assert run(body, 2).values[1] == (True, "meta", False)
    with torch.inference_mode():
        assert run(body, 2).values[1] == (False, "cpu", True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = run(lambda comm: (torch.ones(2, 2) @ torch.ones(2, 2)).dtype, 2).values
    assert got == [torch.bfloat16] * 2


def test_prints_are_kept_and_labelled(capsys):
    def body(comm):
        print("hello", end=" ")
        comm.barrier()
        print("from", comm.rank)

    result = run(body, 2)
    assert result.stdout == ["hello from 0\n", "hello from 1\n"]
    printed = capsys.readouterr().out
    assert sorted(printed.splitlines()) == ["[rank 0] hello from 0", "[rank 1] hello from 1"]
    out = sys.stdout
    run(body, 2, echo=False)
    assert capsys.readouterr().out == ""
    assert sys.stdout is out


def test_runs_nest():
    def inner(comm):
        return comm.all_reduce(torch.ones(1)).item()

    def outer(comm):
        print("outer", comm.rank)
        return run(inner, 3).values, comm.all_reduce(torch.ones(1)).item()

    assert run(outer, 2).values == [([3.0] * 3, 2.0)] * 2


def test_submodules_are_looked_up_as_cloudpickle_searches_for_them():
    packages = [torch, np, xml, json]
    loaded = sorted(name for name in sys.modules if name.startswith(("torch.", "numpy.", "xml.")))
    assert len(loaded) > 300
    for name in loaded[::40]:
        names = dict.fromkeys([*name.split("."), "nn", "functional", "linalg"])
        code = SimpleNamespace(co_names=tuple(names))
        wanted = isolate.search_submodules(code, packages)
        found = isolate.used_submodules(code, packages)
        assert sys.modules[name] in wanted
        assert {id(module) for module in found} == {id(module) for module in wanted}
        assert len(found) == len(wanted)
    assert isolate.used_submodules(SimpleNamespace(co_names=()), packages) == []
