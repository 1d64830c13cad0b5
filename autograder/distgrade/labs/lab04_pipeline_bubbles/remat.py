"""Rematerialisation: `remat(stage, x) -> y`, which keeps the input of a stage and no more.

`stage` is a module, called once now and once more in backward. y, the gradient of x and those of
the stage's weights, in `.grad`, are those of `stage(x)`; so are the random numbers that the stage
draws, and the ones that come after. Between forward and backward none of the stage's inner results
is alive. x may be a first stage's, without a gradient; weights may be frozen.
Source: Chen et al. 2016 (arXiv:1604.06174); Huang et al. 2019 (arXiv:1811.06965), section 2.3.
Oracle: each stage's derivatives by hand, no autograd. `torch.utils.checkpoint` is the library's
answer, so it is on FORBID. Whether an inner result is alive, its storage tells.
"""

from distgrade.compare import Symptom, compare, told_as_changed
from distgrade.exercise import Case, Close, also_right, slip, wrong

NAMES = ("remat",)
FORBID = (
    "torch.utils.checkpoint.checkpoint",
    "torch.utils.checkpoint.checkpoint_sequential",
    "torch.utils.checkpoint.CheckpointFunction",
)
TOLERANCE = Close(1e-12, "sums of a few dozen products in another order, in float64")
CREDIT = {"gradients": 3, "random numbers": 2, "first stages": 1}
# "drop" is the share of hidden numbers that a stage drops at random.
CASES = (
    Case("one microbatch", "gradients", order=[0]),
    Case("three microbatches, the last one first", "gradients", order=[2, 1, 0]),
    Case("two stages in a row", "gradients", order=[1, 0], chain=True),
    Case("a frozen weight", "gradients", order=[0, 1], frozen=True),
    Case("dropout", "random numbers", order=[0], drop=0.5),
    Case("dropout, the last one first", "random numbers", order=[2, 0, 1], drop=0.25),
    Case("dropout in two stages", "random numbers", order=[0, 1], drop=0.5, chain=True),
    Case("an input without a gradient", "first stages", order=[1, 0], first="numbers"),
    Case("numbers of words", "first stages", order=[0, 1], first="words"),
)


def given(case, seed):
    from distlab.seeds import integers, normal, seed_of

    key = "remat", case.name, seed
    rows, width, hidden = 6, 4, 10
    count, stages = len(case.order), 2 if getattr(case, "chain", False) else 1
    first = getattr(case, "first", "")
    if first == "words":
        xs = [integers((rows,), *key, "x", k, low=1, high=9) for k in range(count)]
        xs = [x.long() for x in xs]
    else:
        xs = [normal((rows, width), *key, "x", k) for k in range(count)]
    return {
        "xs": xs,
        "dys": [normal((rows, width), *key, "dy", k) for k in range(count)],
        "ups": [normal((width, hidden), *key, "up", s) / 2 for s in range(stages)],
        "downs": [normal((hidden, width), *key, "down", s) / 3 for s in range(stages)],
        "table": normal((10, width), *key, "table"),
        "order": case.order,
        "keep": 1 - getattr(case, "drop", 0),
        "frozen": getattr(case, "frozen", False),
        "first": first,
        "seed": seed_of(*key, "random numbers"),
    }


def observe(student, given):
    from weakref import ref

    import torch

    calls, inner = [0], []

    class Stage(torch.nn.Module):
        def __init__(self, up, down, table):
            super().__init__()
            self.up = torch.nn.Parameter(up.clone(), requires_grad=not given["frozen"])
            self.down = torch.nn.Parameter(down.clone())
            self.table = None if table is None else torch.nn.Parameter(table.clone())

        def forward(self, x):
            calls[0] += 1
            x = x if self.table is None else self.table[x]
            h = torch.tanh(x @ self.up)
            inner.append((ref(h.untyped_storage()), h.nbytes))
            if given["keep"] < 1 and self.training:
                h = h * (torch.rand(h.shape, dtype=h.dtype) < given["keep"]) / given["keep"]
                inner.append((ref(h.untyped_storage()), h.nbytes))
            return h @ self.down

    table = given["table"] if given["first"] == "words" else None
    pairs = enumerate(zip(given["ups"], given["downs"], strict=True))
    stages = [Stage(up, down, table if s == 0 else None) for s, (up, down) in pairs]
    xs = [x.clone().requires_grad_(not given["first"]) for x in given["xs"]]
    dys = [dy.clone() for dy in given["dys"]]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(given["seed"])
        ys = []
        for x in xs:
            y = x
            for stage in stages:
                y = student.remat(stage, y)
                if not isinstance(y, torch.Tensor):
                    raise TypeError("remat should return a tensor, y of the stage")
            ys.append(y)
        forward_calls = calls[0]
        alive = sum(size_bytes for storage, size_bytes in inner if storage() is not None)
        made = sum(size_bytes for _, size_bytes in inner)
        between = torch.rand(4, dtype=torch.float64)
        for k in given["order"]:
            ys[k].backward(dys[k])
        after = torch.rand(4, dtype=torch.float64)
    drawn = {"random numbers after forward": between, "random numbers after backward": after}
    grads = [None if w.grad is None else w.grad for stage in stages for w in stage.parameters()]
    return {
        "y": [y.detach() for y in ys],
        "gradient of x": [x.grad for x in xs],
        "gradients of weights": grads,
        "inner results kept": [alive, made],
        "runs": [forward_calls, calls[0] - forward_calls],
        "x afterwards": [x.detach() for x in xs],
    } | (drawn if given["keep"] < 1 else {})


def oracle(case, given):
    import torch

    ups, downs, keep = given["ups"], given["downs"], given["keep"]
    words = given["first"] == "words"
    inputs = [given["table"][x] if words else x for x in given["xs"]]
    ys, tapes = [], []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(given["seed"])
        for y in inputs:
            tape = []
            for up, down in zip(ups, downs, strict=True):
                h = (y @ up).tanh()
                mask = torch.ones_like(h)
                if keep < 1:
                    mask = (torch.rand(h.shape, dtype=h.dtype) < keep).to(h.dtype) / keep
                tape.append((y, h, mask))
                y = (h * mask) @ down
            ys.append(y)
            tapes.append(tape)
        between, after = torch.rand(4, dtype=torch.float64), torch.rand(4, dtype=torch.float64)
    dups = [torch.zeros_like(up) for up in ups]
    ddowns = [torch.zeros_like(down) for down in downs]
    dtable, dxs = torch.zeros_like(given["table"]), []
    for k, dy in enumerate(given["dys"]):
        for s in reversed(range(len(ups))):
            x, h, mask = tapes[k][s]
            ddowns[s] += (h * mask).T @ dy
            dh = (dy @ downs[s].T) * mask * (1 - h * h)
            dups[s] += x.T @ dh
            dy = dh @ ups[s].T
        dxs.append(dy)
        if words:
            dtable.index_add_(0, given["xs"][k], dy)
    grads = []
    for up, down in zip(dups, ddowns, strict=True):
        grads += [None if given["frozen"] else up, down]
    runs = len(ups) * len(ys)
    drawn = {"random numbers after forward": between, "random numbers after backward": after}
    return {
        "y": ys,
        "gradient of x": [None] * len(dxs) if given["first"] else dxs,
        "gradients of weights": grads + ([dtable] if words else []),
        "inner results kept": [0, 0],
        "runs": [runs, runs],
        "x afterwards": given["xs"],
    } | (drawn if keep < 1 else {})


def judge(got, expected, case):
    apart = ("inner results kept", "runs")
    rest = {key: value for key, value in got.items() if key not in apart}
    wanted = {key: value for key, value in expected.items() if key not in apart}
    symptoms = told_as_changed(compare(rest, wanted, rtol=TOLERANCE.rtol))
    if symptoms:
        return symptoms
    alive, made = got["inner results kept"]
    if alive:
        seen = f"{alive / made:.0%} of the bytes of inner results live on"
        look = "Only x should live on: run the stage without a graph, and again in backward."
        return [Symptom("cost", "what is kept after forward", seen, look)]
    for when, runs, most in zip(
        ("forward", "backward"), got["runs"], expected["runs"], strict=True
    ):
        if runs > most:
            seen = f"{runs / most:.3g} times as often as needed"
            look = "A stage runs once in forward, and once more in backward."
            return [Symptom("cost", f"how often a stage runs in {when}", seen, look)]
    return []


@also_right("an autograd.Function that gives the weights' gradients itself")
def all_gradients():
    import torch

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, stage, x, *weights):
            ctx.stage, ctx.state = stage, torch.get_rng_state()
            ctx.save_for_backward(x, *weights)
            return stage(x)

        @staticmethod
        def backward(ctx, dy):
            x, *weights = ctx.saved_tensors
            x = x.detach().requires_grad_(ctx.needs_input_grad[1])
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.set_rng_state(ctx.state)
                y = ctx.stage(x)
            needed = [t for t in (x, *weights) if t.requires_grad]
            grads = iter(torch.autograd.grad(y, needed, dy))
            return None, *(next(grads) if t.requires_grad else None for t in (x, *weights))

    def remat(stage, x):
        return Again.apply(stage, x, *stage.parameters())

    return remat


@also_right("backward run inside backward; a tensor of nothing keeps the graph going")
def inner_backward():
    import torch

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, nothing, stage, x):
            ctx.state = torch.get_rng_state()
            ctx.stage, ctx.x = stage, x
            with torch.no_grad():
                y = stage(x)
            return y

        @staticmethod
        def backward(ctx, dy):
            now = torch.get_rng_state()
            torch.set_rng_state(ctx.state)
            x = ctx.x.detach().clone()
            if ctx.x.requires_grad:
                x.requires_grad_()
            with torch.enable_grad():
                y = ctx.stage(x)
            torch.set_rng_state(now)
            y.backward(dy)
            return None, None, x.grad

    def remat(stage, x):
        return Again.apply(torch.zeros(0, requires_grad=True), stage, x)

    return remat


@also_right("hooks that drop what autograd saves, and make it again when it is asked for")
def by_hooks():
    from contextlib import ExitStack

    import torch
    from torch.autograd.graph import saved_tensors_hooks

    def remat(stage, x):
        state, numbers, made = torch.get_rng_state(), [], []

        def drop(tensor):
            numbers.append(len(numbers))
            return numbers[-1]

        def make_again(number):
            if not made:
                with ExitStack() as stack:
                    stack.enter_context(torch.random.fork_rng(devices=[]))
                    stack.enter_context(torch.enable_grad())
                    stack.enter_context(
                        saved_tensors_hooks(lambda t: made.append(t.detach()), lambda _: None)
                    )
                    torch.set_rng_state(state)
                    stage(x.detach().requires_grad_(x.requires_grad))
            return made[number]

        with saved_tensors_hooks(drop, make_again):
            return stage(x)

    return remat


@wrong("Everything is kept: autograd saves the stage's inner results, and nothing runs again.")
def keeps_everything():
    def remat(stage, x):
        return stage(x)

    return remat


twice_in_forward = slip(
    inner_backward,
    "The stage runs twice in forward: the second run belongs into backward.",
    (
        "with torch.no_grad():",
        "stage(x)\n        torch.set_rng_state(ctx.state)\n        with torch.no_grad():",
    ),
)
other_random_numbers = slip(
    all_gradients,
    "Other random numbers in the second run: set the state from before the first one.",
    ("torch.set_rng_state(ctx.state)", "pass"),
)
state_too_late = slip(
    inner_backward,
    "The random state is taken after the stage has drawn: take it before.",
    (
        "return y\n\n    @staticmethod",
        "ctx.state = torch.get_rng_state()\n        return y\n\n    @staticmethod",
    ),
)
state_not_put_back = slip(
    inner_backward,
    "Backward leaves the random state where it was in forward: the next step draws the same again.",
    ("        torch.set_rng_state(now)\n", ""),
)
seeded_anew = slip(
    inner_backward,
    "A seed of your own changes the stage's random numbers: save and restore the state there is.",
    (
        "ctx.state = torch.get_rng_state()",
        "torch.manual_seed(0)\n        ctx.state = torch.get_rng_state()",
    ),
)
without_dropout = slip(
    all_gradients,
    "The second run is in eval mode, so it drops nothing: it must repeat the first one.",
    ("y = ctx.stage(x)", "y = ctx.stage.eval()(x)\n            ctx.stage.train()"),
)
input_gradient_lost = slip(
    inner_backward,
    "The gradient of x is lost: the stage before waits for it.",
    ("return None, None, x.grad", "return None, None, None"),
)
weights_forgotten = slip(
    all_gradients,
    "The weights get no gradient: the second run has to reach them too.",
    ("return None, *(", "return None, *(None if t is not x else "),
)
weights_twice = slip(
    all_gradients,
    "The weights' gradients count twice: added to .grad by one backward, and returned as well.",
    ("needed = [", "y.backward(dy, retain_graph=True)\n        needed = ["),
)
input_not_detached = slip(
    inner_backward,
    "x gets its gradient twice: run the stage again on a detached x.",
    ("x = ctx.x.detach().clone()", "x = ctx.x"),
)
first_stage_without_graph = slip(
    inner_backward,
    "A first stage's x needs no gradient, but its weights do: give autograd a tensor that does.",
    ("torch.zeros(0, requires_grad=True)", "torch.zeros(0)"),
)
without_a_record = slip(
    inner_backward,
    "In backward nothing is recorded unless you ask: run the stage under torch.enable_grad().",
    ("with torch.enable_grad():", "if True:"),
)
every_input_needs_one = slip(
    inner_backward,
    "Not every x can have a gradient: numbers of words can't, a first stage's input need not.",
    ("if ctx.x.requires_grad:", "if True:"),
)
one_for_all = slip(
    inner_backward,
    "Microbatches share one place: each one's x and random state are its own.",
    ("ctx.stage, ctx.x = stage, x", "ctx.stage, Again.x = stage, x"),
    ("ctx.x.detach()", "Again.x.detach()"),
    ("if ctx.x.requires_grad", "if Again.x.requires_grad"),
)

_CPU = "this only saves GPUs' random states as well"
EQUIVALENT = {
    "RunAgain.backward: torch.random.fork_rng(devices=[]) -> torch.random.fork_rng()": _CPU,
    "RunAgain.backward: 2 -> 1": "PyTorch takes a None more at the end",
    "all_gradients Again.backward: x = x.detach().requires_grad_(ctx.needs_input_grad[1])"
    " -> pass": ("torch.autograd.grad stops at x, detached or not"),
    "all_gradients Again.backward: torch.random.fork_rng(devices=[])"
    " -> torch.random.fork_rng()": _CPU,
    "inner_backward remat: 0 -> 1": "any tensor that needs a gradient will do",
    "by_hooks remat.make_again: torch.random.fork_rng(devices=[]) -> torch.random.fork_rng()": _CPU,
}
