"""A trace of storages tells what PyTorch did: appeared, looked at, gone, in this order."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from distlab.storages import Event, recording


def test_recording_is_imported_without_torch():
    code = "import sys, distlab.storages; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_result_is_there_until_nothing_holds_it():
    x = torch.ones(3)
    with recording() as trace:
        y = x.exp()
        z = y.exp()
        del y
        w = z.double()
    assert trace.before == {0: 12}
    assert trace.events == [
        Event("allocate", 1, 12),
        Event("allocate", 2, 12),
        Event("free", 1, 12),
        Event("allocate", 1, 24),  # the number comes back
    ]
    assert w.shape == z.shape


def test_a_view_adds_nothing_and_holds_its_storage():
    with recording() as trace:
        x = torch.ones(2, 4)
        left, _ = x.chunk(2, dim=-1)
        del x, _
        left.mul_(2.0)
        del left
    assert trace.before == {}
    assert trace.events == [
        Event("allocate", 0, 32),
        Event("view", 0, 16),
        Event("view", 0, 16),
        Event("view", 0, 16),  # in place: the result lies where its input did
        Event("free", 0, 32),
    ]


def test_what_was_there_before_may_go():
    x = torch.ones(5)
    with recording() as trace:
        y = x + 1
        del x
    assert trace.before == {0: 20}
    assert trace.events == [Event("allocate", 1, 20), Event("free", 0, 20)]
    assert y.numel() == 5


def test_what_was_there_before_has_a_number_that_no_earlier_event_had():
    x, weight = torch.ones(5), torch.ones(3)
    with recording() as trace:
        x.exp()  # appears as 1, and goes
        y = weight.exp()  # the weight is met only now, but was there from the start
    assert trace.before == {0: 20, 2: 12}
    numbers = [(event.kind, event.storage) for event in trace.events]
    assert numbers == [("allocate", 1), ("free", 1), ("allocate", 1)]
    assert y.numel() == 3


def test_marks_stand_between_events_and_nothing_is_added_afterwards():
    with recording() as trace:
        x = torch.ones(1)
        trace.mark("now")
        y = x.exp()
    length = len(trace.events)
    del x, y
    assert trace.marks == {"now": 1}
    assert len(trace.events) == length == 2


def test_an_error_ends_the_recording():
    x = torch.ones(1)
    with pytest.raises(RuntimeError, match="shape"), recording() as trace:
        x.view(3, 3)
    del x
    assert trace.before == {0: 4}
    assert trace.events == []


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_layer_that_is_run_again_keeps_only_its_input(device):
    with torch.device(device):
        x = torch.ones(3, 5)
        layers = [nn.Sequential(nn.Linear(5, 20), nn.GELU(), nn.Linear(20, 5)) for _ in "abc"]
    kept = {}
    for name, run in (
        ("whole", lambda layer, x: layer(x)),
        ("again", lambda layer, x: checkpoint(layer, x, use_reentrant=False)),
    ):
        for layer in layers:
            layer.zero_grad()
        with recording() as trace:
            y = x
            for layer in layers:
                y = run(layer, y)
            trace.mark("backward")
            y.sum().backward()
        signs = {"allocate": 1, "view": 0, "free": -1}
        forward = trace.events[: trace.marks["backward"]]
        kept[name] = sum(signs[kind] * size_bytes for kind, _, size_bytes in forward)
        assert sum(kind == "free" for kind, *_ in trace.events) > 0
        assert all(p.grad is not None for layer in layers for p in layer.parameters())
    # A layer's output, and two tensors of 20 numbers for each of 3 rows in between.
    assert kept == {"whole": 3 * 3 * (5 + 2 * 20) * 4, "again": 3 * 3 * 5 * 4}
