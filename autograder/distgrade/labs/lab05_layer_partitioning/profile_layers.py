"""How long each layer takes: `profile_layers(model, batch, clock, *, repeats=5)` returns times.

The model is an nn.Sequential, the batch holds token numbers, `clock()` returns the time. A layer's
time is its forward and its backward (gradients of its weights, and of its input where a layer comes
before it), the median of `repeats` runs after a warm-up, and nothing else. No gradient is left.
Source: derived below; that partitions rest on measured times, PipeDream (SOSP 2019), section 3.1.
Oracle: the layers turn the clock themselves, by times that are written down.
"""

from distgrade.compare import Symptom, compare
from distgrade.exercise import Case, Close, also_right, slip, wrong

NAMES = ("profile_layers",)
TOLERANCE = Close(1e-12, "readings of a clock are subtracted and added in any order")
CREDIT = {"a steady clock": 2, "a first run and odd ones": 2, "what is left behind": 1}
# layers: ticks of forward, of the weights' gradient, of the input's gradient
_FOUR = [[5, 3, 2], [2, 1, 3], [7, 6, 8], [4, 9, 5]]
_FIVE = [[3, 4, 1], [6, 2, 5], [1, 7, 2], [8, 3, 6], [2, 5, 4]]
CASES = (
    Case("four layers", "a steady clock", layers=_FOUR),
    Case("five layers", "a steady clock", layers=_FIVE),
    Case("one layer", "a steady clock", layers=[[4, 3, 2]]),
    Case("two of five runs are odd", "a first run and odd ones", layers=_FOUR, odd=[1, 3]),
    Case("one of three", "a first run and odd ones", layers=_FIVE, odd=[2], repeats=3),
    Case("three of seven", "a first run and odd ones", layers=_FOUR[1:], odd=[2, 4, 5], repeats=7),
    Case("the model afterwards", "what is left behind", layers=_FIVE),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other layers: each of their times some ticks longer.
    more = integers((len(case.layers), 3), "profile", case.name, seed, low=1, high=40).tolist()
    more = more if seed else [[0, 0, 0] for _ in case.layers]
    return {
        "layers": [
            [ticks + extra for ticks, extra in zip(*pair, strict=True)]
            for pair in zip(case.layers, more, strict=True)
        ],
        "odd": getattr(case, "odd", None),
        "repeats": getattr(case, "repeats", None),
    }


def observe(student, given):
    import torch
    from torch import nn
    from torch.overrides import TorchFunctionMode

    noisy, state = given["odd"] is not None, {"now": 1_000.0, "read": 0, "inside": False}

    def clock():
        state["read"] += 1
        return state["now"]

    class Work(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, layer):
            ctx.layer = layer
            ctx.save_for_backward(x, weight)
            layer.spend(0, layer.ticks[0])
            return (x if x.is_floating_point() else x.double()[:, None]) * weight

        @staticmethod
        def backward(ctx, slope):
            (x, weight), state["inside"] = ctx.saved_tensors, True
            mine, before = ctx.needs_input_grad[1], ctx.needs_input_grad[0]
            ticks = mine * ctx.layer.ticks[1] + before * ctx.layer.ticks[2]
            ctx.layer.spend(1, ticks)
            for_weight = (slope * (x if x.dim() > 1 else x[:, None])).sum(0)
            state["inside"] = False
            return slope * weight if before else None, for_weight if mine else None, None

    class Layer(nn.Module):
        def __init__(self, ticks):
            super().__init__()
            self.ticks, self.runs = ticks, [0, 0]
            self.weight = nn.Parameter(torch.ones(2, dtype=torch.float64))

        def spend(self, way, ticks):
            run, self.runs[way] = self.runs[way], self.runs[way] + 1
            if noisy and (run == 0 or run in given["odd"]):
                ticks *= 40 if run == 0 else 8 + run
            state["now"] += ticks if self.training else ticks / 2  # no dropout, say

        def forward(self, x):
            state["inside"] = True
            y = Work.apply(x, self.weight, self)
            state["inside"] = False
            return y

    class Making(TorchFunctionMode):
        """Making a tensor, or a sum, between two readings takes its time as well."""

        def __torch_function__(self, function, types, args=(), kwargs=None):
            name = getattr(function, "__name__", "").removesuffix("_like")
            makes = "clone ones new_ones zeros rand randn empty full randint tensor arange sum mean"
            if name in makes.split() and not state["inside"]:
                state["now"] += 10 + len(name)
            return function(*args, **(kwargs or {}))

    model = nn.Sequential(*map(Layer, given["layers"])).train()
    batch = torch.arange(3, 6)
    more = {} if given["repeats"] is None else {"repeats": given["repeats"]}
    with Making():
        times = student.profile_layers(model, batch, clock, **more)
    times = times.tolist() if hasattr(times, "tolist") else times
    if isinstance(times, list | tuple):
        times = [time.item() if hasattr(time, "item") else time for time in times]
    weights = list(model.parameters())
    return {
        "times": times,
        "the clock was read": state["read"] > 0,
        "left behind": {
            "gradients": sum(weight.grad is not None for weight in weights),
            "in training mode": all(module.training for module in model.modules()),
            "weights as they were": all(bool((weight == 1).all()) for weight in weights)
            and all(weight.requires_grad for weight in weights),
            "batch as it was": batch.tolist() == [3, 4, 5] and not batch.is_floating_point(),
            "no hooks": not any(
                hooks
                for layer in model
                for name, hooks in vars(layer).items()
                if name.endswith("_hooks")
            ),
        },
    }


def oracle(case, given):
    first, *others = given["layers"]
    return {
        # Token numbers have no gradient, so the first layer makes none for its input.
        "times": [float(first[0] + first[1]), *(float(sum(ticks)) for ticks in others)],
        "the clock was read": True,
        "left behind": {
            "gradients": 0,
            "in training mode": True,
            "weights as they were": True,
            "batch as it was": True,
            "no hooks": True,
        },
    }


NOT_READ = "`clock` was never called: the time is what it returns, whatever another clock says."
GRADIENTS_LEFT = "Gradients stay in the model: the first real step would add its own to them."


def judge(got, expected, case):
    if not got["the clock was read"]:
        return [Symptom("values", "the clock", "it was never read", NOT_READ)]
    path = ("times",)
    symptoms = compare(got["times"], expected["times"], rtol=TOLERANCE.rtol, path=path)
    if symptoms or case.group != "what is left behind":
        return symptoms
    if got["left behind"]["gradients"]:
        return [Symptom("values", "the weights' gradients", "some are there", GRADIENTS_LEFT)]
    return compare(got["left behind"], expected["left behind"], rtol=0.0)


@also_right("layer by layer; forward and backward apart, each between two readings")
def apart():
    from statistics import median

    import torch

    def profile_layers(model, batch, clock, *, repeats=5):
        times, inputs = [], batch
        for layer in model:
            samples = []
            for _ in range(repeats + 1):
                x = inputs.detach()
                if x.is_floating_point():
                    x.requires_grad_()
                start = clock()
                y = layer(x)
                forward = clock() - start
                slope = torch.ones_like(y)
                start = clock()
                y.backward(slope)
                samples.append(forward + clock() - start)
            layer.zero_grad()
            times.append(median(samples[1:]))
            inputs = y.detach()
        return times

    return profile_layers


@also_right("the whole model forward, then backward, a reading at every border")
def whole_passes():
    import numpy as np
    import torch

    def profile_layers(model, batch, clock, *, repeats=5):
        rows = []
        for _ in range(1 + repeats):
            row, steps, x = [], [], batch
            for layer in model:
                start = clock()
                y = layer(x)
                row.append(clock() - start)
                steps.append((x, y, list(layer.parameters())))
                x = y.detach().requires_grad_()
            slope = y.new_ones(y.shape)
            for number in reversed(range(len(steps))):
                x, y, wanted = steps[number]
                start = clock()
                slope, *_ = torch.autograd.grad(y, [x] * x.requires_grad + wanted, slope)
                row[number] += clock() - start
            rows.append(row)
        return np.median(rows[1:], axis=0)

    return profile_layers


@also_right("hooks where layers begin, forward and backward; the model runs as a whole")
def by_hooks():
    from itertools import pairwise
    from statistics import median

    def profile_layers(model, batch, clock, *, repeats=5):
        marks, rows, handles, count = [], [], [], len(model)
        for layer in model:
            handles.append(layer.register_forward_pre_hook(lambda *_: marks.append(clock())))
            handles.append(layer.register_full_backward_pre_hook(lambda *_: marks.append(clock())))
        for _ in range(1 + repeats):
            marks.clear()
            y = model(batch)
            marks.append(clock())
            slope = y.new_ones(y.shape)
            y.backward(slope)
            marks.append(clock())
            spent = [later - earlier for earlier, later in pairwise(marks)]
            rows.append([spent[i] + spent[-1 - i] for i in range(count)])
        for handle in handles:
            handle.remove()
        model.zero_grad()
        return [median(row[i] for row in rows[1:]) for i in range(count)]

    return profile_layers


no_warm_up = slip(
    apart,
    "The first run counts too: it loads and allocates, which no later one does. Run once before.",
    ("range(repeats + 1)", "range(repeats)"),
    ("median(samples[1:])", "median(samples)"),
)
warm_up_without_backward = slip(
    apart,
    "The warm-up runs forward alone: backward's first run is slow as well.",
    ("samples = []\n", "samples = []\n        layer(inputs)\n"),
    ("range(repeats + 1)", "range(repeats)"),
    ("median(samples[1:])", "median(samples)"),
)
mean_of_runs = slip(
    apart,
    "A mean moves with every odd run: take the median.",
    ("from statistics import median", "from statistics import mean"),
    ("median(samples[1:])", "mean(samples[1:])"),
)
slowest_run = slip(
    apart,
    "The slowest run is the oddest one: take the median.",
    ("from statistics import median\n\n", ""),
    ("median(samples[1:])", "max(samples[1:])"),
)
sum_of_runs = slip(
    apart,
    "All runs are added up: a layer's time is that of one run.",
    ("from statistics import median\n\n", ""),
    ("median(samples[1:])", "sum(samples[1:])"),
)
clock_read_once = slip(
    apart,
    "The clock's start is read once before all runs, so each run holds those before it.",
    ("samples = []\n", "samples, start = [], clock()\n"),
    ("            start = clock()\n            y = layer(x)", "            y = layer(x)"),
    ("            forward = clock() - start\n", ""),
    ("            start = clock()\n            y.backward", "            y.backward"),
    ("forward + clock() - start", "clock() - start"),
)
cumulative = slip(
    apart,
    "Each time holds the layers before it: read the clock again where a layer begins.",
    ("times.append(median(samples[1:]))", "times.append(sum(times[-1:]) + median(samples[1:]))"),
)
forward_forgotten = slip(
    apart,
    "Forward is missing: a slot has a forward and a backward.",
    ("forward + clock() - start", "clock() - start"),
)
backward_forgotten = slip(
    apart,
    "Backward is missing: it takes about twice the time of forward, and not in every layer.",
    ("forward + clock() - start", "forward"),
)
no_input_gradient = slip(
    apart,
    "No gradient is made for the inputs, though the layer before needs it: requires_grad_().",
    ("            if x.is_floating_point():\n                x.requires_grad_()\n", ""),
)
makes_slope_inside = slip(
    apart,
    "Making the gradient that backward begins with is measured too: make it before you read.",
    ("            slope = torch.ones_like(y)\n", ""),
    ("y.backward(slope)", "y.backward(torch.ones_like(y))"),
)
sums_inside = slip(
    apart,
    "A sum over the outputs is measured too: backward(slope) needs none.",
    ("            slope = torch.ones_like(y)\n", ""),
    ("y.backward(slope)", "y.sum().backward()"),
    ("import torch\n\n", ""),
)
gradients_left = slip(apart, GRADIENTS_LEFT, ("        layer.zero_grad()\n", ""))
evaluating = slip(
    apart,
    "A model in eval mode leaves out what training does, dropout for one: measure in train mode.",
    ("times, inputs = [], batch", "times, inputs = [], batch\n    model.eval()"),
    ("    return times", "    model.train()\n    return times"),
)
own_clock = slip(
    apart,
    NOT_READ,
    (
        "times, inputs = [], batch",
        "from time import perf_counter as clock\n\n    times, inputs = [], batch",
    ),
    ("batch, clock, *", "batch, _clock, *"),
)


@wrong("Inputs come from the layers before, run again and measured again: make them beforehand.")
def inputs_made_inside():
    from statistics import median

    import torch

    def profile_layers(model, batch, clock, *, repeats=5):
        times = []
        for number, layer in enumerate(model):
            samples = []
            slope = torch.ones_like(model[: number + 1](batch))
            for _ in range(repeats + 1):
                start = clock()
                x = model[:number](batch).detach()
                if x.is_floating_point():
                    x.requires_grad_()
                layer(x).backward(slope)
                samples.append(clock() - start)
            times.append(median(samples[1:]))
        model.zero_grad()
        return times

    return profile_layers


@wrong("Backward goes on into the layers before: detach a layer's inputs from what made them.")
def not_detached():
    from statistics import median

    import torch

    def profile_layers(model, batch, clock, *, repeats=5):
        times = []
        for number, layer in enumerate(model):
            samples = []
            for _ in range(repeats + 1):
                x = model[:number](batch)
                start = clock()
                y = layer(x)
                forward = clock() - start
                slope = torch.ones_like(y)
                start = clock()
                y.backward(slope)
                samples.append(forward + clock() - start)
            times.append(median(samples[1:]))
        model.zero_grad()
        return times

    return profile_layers


@wrong("The whole model's time, in equal shares: each layer has a time of its own.")
def total_shared():
    from statistics import median

    import torch

    def profile_layers(model, batch, clock, *, repeats=5):
        samples = []
        slope = torch.ones_like(model(batch))
        for _ in range(repeats + 1):
            start = clock()
            model(batch).backward(slope)
            samples.append(clock() - start)
        model.zero_grad()
        return [median(samples[1:]) / len(model)] * len(model)

    return profile_layers


EQUIVALENT = {
    "apart profile_layers: torch.ones_like(y) -> y": "backward takes as long with any slope",
    "profile_layers: torch.ones_like(y) -> y": "backward takes as long with any slope",
}
