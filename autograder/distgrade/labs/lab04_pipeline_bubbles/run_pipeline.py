"""One stage of a pipeline, on any engine: `run_pipeline(comm, stage, microbatches, timeline, *,
loss_fn)`.

Rank s holds stage s, a torch.nn.Module whose output has its input's shape and dtype. `microbatches`
are pairs (x, y), the same on all ranks, of different numbers of tokens: x [tokens, d], y [tokens,
d]; float64. `timeline` is, stage by stage, a list of (op, start, end), what `simulate` returns for
any valid orders; ops take time. `loss_fn(output, y)` is the mean loss of a microbatch's tokens.
Afterwards, p.grad of each parameter of the stage is the gradient of the mean over all tokens of
all microbatches, and the last stage has returned that mean. Other stages may return anything.
Cost: each boundary is crossed once by each activation and once by its gradient; a stage holds the
activations of its microbatches in flight, and for a moment those of one more.
Source: Huang et al. 2019 (GPipe), section 2; Narayanan et al. 2021 (arXiv:2104.04473), section 2.2.
Oracle: the whole batch at once, layer by layer, forward and backward by hand in exact fractions.
"""

from distgrade.compare import Symptom, ceiling, compare, name, told_as_changed
from distgrade.exercise import Case, Close, also_right, slip, wrong
from distgrade.labs.lab04_pipeline_bubbles import _orders

NAMES = ("run_pipeline",)
FORBID = ()
TOLERANCE = Close(1e-12, "one step in float64; a mean over tokens is rounded")
CREDIT = {"forward first": 2, "any order": 3, "cost": 1}


def _timeline(*orders: str) -> list:
    """Return the timeline of some orders: F takes 2, B takes 3, on every second stage 1 longer."""
    ops = [_orders.read(order)[0] for order in orders]

    def duration(stage, op):
        return {"F": 2, "B": 3}[op[0]] + stage % 2

    ends = _orders.end_times(ops, duration)
    return [
        [(op[:2], ends[stage, op] - duration(stage, op), ends[stage, op]) for op in order]
        for stage, order in enumerate(ops)
    ]


CASES = (
    Case(
        "two stages, forward first",
        "forward first",
        n=2,
        tokens=(2, 2, 2),
        d=3,
        timeline=_timeline("F0 F1 F2 B0 B1 B2", "F0 F1 F2 B0 B1 B2"),
    ),
    Case(
        "four stages, back in reverse",
        "forward first",
        n=4,
        tokens=(1, 1, 1),
        d=2,
        timeline=_timeline(*["F0 F1 F2 B2 B1 B0"] * 4),
    ),
    Case(
        "one stage",
        "any order",
        n=1,
        tokens=(2, 1, 3),
        d=2,
        timeline=_timeline("F0 F1 B0 F2 B2 B1"),
    ),
    Case(
        "three stages in turns",
        "any order",
        n=3,
        tokens=(1, 3, 2, 2),
        d=2,
        timeline=_timeline(
            "F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"
        ),
    ),
    Case(
        "three stages, each another order",
        "any order",
        n=3,
        tokens=(3, 1, 2, 1),
        d=3,
        timeline=_timeline(
            "F2 F0 F1 F3 B0 B2 B1 B3", "F0 F2 F1 B2 B0 F3 B1 B3", "F2 F0 B2 B0 F1 F3 B1 B3"
        ),
    ),
    Case(
        "five stages, fewer microbatches",
        "any order",
        n=5,
        tokens=(1, 2),
        d=2,
        timeline=_timeline(*["F0 F1 B0 B1"] * 4, "F0 B0 F1 B1"),
    ),
    Case(
        "three stages, memory and bytes",
        "cost",
        n=3,
        tokens=(1, 2, 1, 1, 2, 1),
        d=2,
        timeline=_timeline(
            "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5",
            "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5",
            "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5",
        ),
    ),
)


def given(case, seed):
    from distlab.seeds import integers

    key = "run_pipeline", case.name, seed
    d = case.d
    return {
        "weights": [integers((d, d), *key, "w", s, low=-2, high=2) for s in range(case.n)],
        "biases": [integers((d,), *key, "b", s, low=-9, high=9) for s in range(case.n)],
        "xs": [
            integers((tokens, d), *key, "x", i, low=-9, high=9)
            for i, tokens in enumerate(case.tokens)
        ],
        "ys": [
            integers((tokens, d), *key, "y", i, low=-9, high=9)
            for i, tokens in enumerate(case.tokens)
        ],
        "timeline": case.timeline,
    }


def observe(student, given):
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef

    from distlab import per_rank, run

    run_pipeline = student.run_pipeline
    n = len(given["weights"])

    class Stage(torch.nn.Module):
        """Keeps count of the calls whose activations are still in memory."""

        def __init__(self, w, b):
            super().__init__()
            self.w, self.b = (torch.nn.Parameter(t.clone()) for t in (w, b))
            self.held, self.most = [], 0

        def forward(self, x):
            self.held = [refs for refs in self.held if not all(r.expired() for r in refs)]
            self.most = max(self.most, len(self.held) + 1)
            u = x @ self.w + self.b
            y = torch.nn.functional.leaky_relu(u, 0.5)
            self.held.append([StorageWeakRef(t.untyped_storage()) for t in (u, y)])
            return y

    def mean_loss(output, y):
        return (2 * output - y).square().sum(dim=1).mean()  # output and y don't swap

    def on_a_rank(comm, w, b, xs, ys, timeline):
        stage = Stage(w, b)
        pairs = list(zip(xs, ys, strict=True))
        loss = run_pipeline(comm, stage, pairs, timeline, loss_fn=mean_loss)
        if isinstance(loss, torch.Tensor) and loss.numel() == 1:
            loss = loss.item()
        return {
            "x afterwards": [x.detach() for x in xs],
            "y afterwards": ys,
            "weights afterwards": [stage.w.detach(), stage.b.detach()],
            "gradient of w": stage.w.grad,
            "gradient of b": stage.b.grad,
            "mean loss": loss if comm.rank == comm.size - 1 else None,
            "activations held": stage.most,
        }

    mine = per_rank(given["weights"]), per_rank(given["biases"])
    result = run(
        on_a_rank, n, *mine, given["xs"], given["ys"], given["timeline"], echo=False, timeout=60
    )
    tree = {key: [value[key] for value in result.values] for key in result.values[0]}
    return tree | {"bytes sent": [result.ledger.ring_bytes(rank=rank) for rank in range(n)]}


def oracle(case, given):
    from fractions import Fraction

    import torch

    def exact(tensor):
        return [[Fraction(v) for v in row] for row in tensor.reshape(-1, case.d).tolist()]

    def product(p, q):
        return [[sum(map(Fraction.__mul__, row, col)) for col in zip(*q)] for row in p]  # noqa: B905

    def turned(p):
        return [list(col) for col in zip(*p, strict=True)]

    def tensor(rows):
        return torch.tensor([[float(v) for v in row] for row in rows], dtype=torch.float64)

    n, half = case.n, Fraction(1, 2)
    x, y = exact(torch.cat(given["xs"])), exact(torch.cat(given["ys"]))
    ws = [exact(w) for w in given["weights"]]
    bs = [exact(b)[0] for b in given["biases"]]
    inputs, slopes = [x], []
    for w, b in zip(ws, bs, strict=True):
        u = [[v + c for v, c in zip(row, b, strict=True)] for row in product(inputs[-1], w)]
        slopes.append([[1 if v > 0 else half for v in row] for row in u])
        inputs.append([[v if v > 0 else half * v for v in row] for row in u])
    error = [
        [2 * p - q for p, q in zip(*rows, strict=True)] for rows in zip(inputs[-1], y, strict=True)
    ]
    loss = sum(v * v for row in error for v in row) / len(y)
    grad = [[4 * v / len(y) for v in row] for row in error]
    by_w, by_b = [None] * n, [None] * n
    for s in reversed(range(n)):
        both = zip(grad, slopes[s], strict=True)
        grad = [[g * k for g, k in zip(row, slope, strict=True)] for row, slope in both]
        by_w[s] = tensor(product(turned(inputs[s]), grad))
        by_b[s] = tensor([[sum(col) for col in zip(*grad, strict=True)]])[0]
        grad = product(grad, turned(ws[s]))
    crossed = Fraction(len(y) * case.d * 8)  # bytes over one boundary, one way
    held = [_orders.peak([op for op, *_ in row]) for row in case.timeline]
    return {
        "x afterwards": [given["xs"]] * n,
        "y afterwards": [given["ys"]] * n,
        "weights afterwards": [
            list(pair) for pair in zip(given["weights"], given["biases"], strict=True)
        ],
        "mean loss": [None] * (n - 1) + [float(loss)],
        "gradient of w": by_w,
        "gradient of b": by_b,
        "activations held": held,
        "bytes sent": [crossed * ((s > 0) + (s < n - 1)) for s in range(n)],
    }


def judge(got, expected, case):
    # Costs earn their point only beside right values.
    costs = ("activations held", "bytes sent")
    values = [key for key in expected if key not in costs]
    symptoms = told_as_changed(
        compare(
            *({key: tree[key] for key in values} for tree in (got, expected)),
            rtol=TOLERANCE.rtol,
            n=case.n,
        )
    )
    if case.group == "cost":
        symptoms += ceiling(got["bytes sent"], expected["bytes sent"], "bytes sent")
        pairs = zip(got["activations held"], expected["activations held"], strict=True)
        for rank, (held, flying) in enumerate(pairs):
            if held > flying + 1:  # names that a loop leaves behind may hold one more
                seen = f"{held - flying} more than there are microbatches in flight"
                look = "Let go of what backward has used: take it out of the list or dict."
                symptoms.append(
                    Symptom("cost", name(("activations held", rank), case.n), seen, look)
                )
    return symptoms


@also_right("gradients by torch.autograd.grad, weighted by tokens and divided at the end")
def divided_at_the_end():
    import torch

    def run_pipeline(comm, stage, microbatches, timeline, *, loss_fn):
        me, last = comm.rank, comm.size - 1
        params = list(stage.parameters())
        sums = [torch.zeros_like(p) for p in params]
        inbox, kept = {}, {}
        loss, tokens = 0.0, sum(len(y) for _, y in microbatches)
        events = [(start, s, op) for s, row in enumerate(timeline) for op, start, _ in row]
        for _, s, op in sorted(events):
            kind, i = op
            x, y = microbatches[i]
            if s == me and kind == "F":
                data = inbox.pop(op, x).requires_grad_(me > 0)
                kept[i] = data, stage(data)
                if me < last:
                    comm.send(kept[i][1], me + 1, tag=i)
            elif s == me:
                data, out = kept.pop(i)
                if me == last:
                    out = loss_fn(out, y) * len(y)
                    loss += out.item()
                wanted = [*params, data] if me else params
                grads = torch.autograd.grad(out, wanted, inbox.pop(op, None))
                for k, total in enumerate(sums):
                    total += grads[k]
                if me:
                    comm.send(grads[-1], me - 1, tag=i)
            elif s == (me - 1 if kind == "F" else me + 1):
                inbox[op] = comm.recv(x, s, tag=i)
        for k, p in enumerate(params):
            p.grad = sums[k] / tokens
        return loss / tokens if me == last else None

    return run_pipeline


@also_right("a common order of its own out of the orders alone, and parts as one loop each")
def in_rounds():
    def run_pipeline(comm, stage, microbatches, timeline, *, loss_fn):
        rank, size = comm.rank, comm.size
        orders = [[op for op, *_ in row] for row in timeline]
        done, common = set(), []
        for _ in range(sum(len(order) for order in orders)):
            for s, order in enumerate(orders):
                for kind, i in order:
                    if (s, kind, i) in done:
                        continue
                    before = (s - 1, kind, i) if kind == "F" else (s + 1, kind, i)
                    if before[0] == size:
                        before = s, "F", i
                    if before[0] >= 0 and before not in done:
                        break
                    done.add((s, kind, i))
                    common.append((s, kind, i))
        share = [len(y) for _, y in microbatches]
        share = [count / sum(share) for count in share]
        x_in, g_in, y_out, losses = {}, {}, {}, []
        for s, kind, i in common:
            x, y = microbatches[i]
            if (s, kind) == (rank, "F"):
                if rank == 0:
                    x_in[i] = x
                y_out[i] = stage(x_in[i])
                if rank + 1 < size:
                    comm.send(y_out[i].detach(), rank + 1)
            elif (s, kind) == (rank, "B"):
                if rank + 1 == size:
                    losses.append(share[i] * loss_fn(y_out.pop(i), y))
                    losses[-1].backward()
                else:
                    y_out.pop(i).backward(g_in.pop(i))
                x_mine = x_in.pop(i)
                if rank > 0:
                    comm.send(x_mine.grad, rank - 1)
            elif (s, kind) == (rank - 1, "F"):
                x_in[i] = comm.recv(x, s).requires_grad_()
            elif (s, kind) == (rank + 1, "B"):
                g_in[i] = comm.recv(x, s)
        return sum(losses)

    return run_pipeline


@also_right("runs the stage again before its backward pass, and keeps only what came in")
def with_recompute():
    import torch

    def run_pipeline(comm, stage, microbatches, timeline, *, loss_fn):
        first, last = comm.rank == 0, comm.rank == comm.size - 1
        total = sum(y.shape[0] for _, y in microbatches)
        came, back, loss = {}, {}, torch.zeros(())
        ends = {(end, s, op) for s, row in enumerate(timeline) for op, _, end in row}
        for _, s, (kind, i) in sorted(ends):
            x, y = microbatches[i]
            if kind == "F":
                if s == comm.rank - 1:
                    came[i] = comm.recv(x, s)
                if s == comm.rank and not last:
                    with torch.no_grad():
                        comm.send(stage(x if first else came[i]), s + 1)
                continue
            if s == comm.rank + 1:
                back[i] = comm.recv(x, s)
            if s == comm.rank:
                x = (x if first else came.pop(i)).detach().requires_grad_()
                out = stage(x)
                if last:
                    part = loss_fn(out, y) * y.shape[0] / total
                    loss = loss + part.detach()
                    part.backward()
                else:
                    (out * back.pop(i)).sum().backward()
                if not first:
                    comm.send(x.grad, s - 1)
        return loss

    return run_pipeline


@also_right("transfers in the order of ends; what arrives waits in a dict")
def by_end_times():
    def run_pipeline(comm, stage, microbatches, timeline, *, loss_fn):
        rank, last = comm.rank, comm.size - 1
        tokens = sum(len(y) for _, y in microbatches)
        events = [(end, s, op) for s, row in enumerate(timeline) for op, _, end in row]
        arrived, saved, mean = {}, {}, 0
        for _, s, op in sorted(events):
            kind, i = op
            x, y = microbatches[i]
            if s == rank and kind == "F":
                into = x if rank == 0 else arrived.pop(op).requires_grad_()
                out = stage(into)
                if rank < last:
                    comm.send(out.detach(), rank + 1)
                else:
                    out = loss_fn(out, y) * len(y) / tokens
                    mean = mean + out.detach()
                saved[i] = into, out
            elif s == rank:
                into, out = saved.pop(i)
                out.backward(arrived.pop(op, None))
                if rank > 0:
                    comm.send(into.grad, rank - 1)
            elif s == (rank - 1 if kind == "F" else rank + 1):
                arrived[op] = comm.recv(x, s)
        return mean

    return run_pipeline


loss_for_everyone = slip(
    by_end_times,
    "More is sent than activations and their gradients: the loss stays on the last stage.",
    ("return mean", "return comm.broadcast(torch.as_tensor(mean).double(), last)"),
    ("def run_pipeline", "import torch\n\n\ndef run_pipeline"),
)
mean_of_means = slip(
    by_end_times,
    "Microbatches count alike here: one with more tokens counts for more, by its share of all.",
    ("* len(y) / tokens", "/ len(microbatches)"),
)
sum_of_means = slip(
    by_end_times,
    "The microbatches' mean losses are added as they are: weight each by its share of all tokens.",
    (" * len(y) / tokens", ""),
)
sum_over_tokens = slip(
    by_end_times,
    "This is the sum over tokens, not their mean: divide by the number of all tokens.",
    ("* len(y) / tokens", "* len(y)"),
)
weighted_on_every_stage = slip(
    by_end_times,
    "The share is applied on every stage: it is in the gradient already that comes from the last.",
    ("comm.send(into.grad, rank - 1)", "comm.send(into.grad * len(y) / tokens, rank - 1)"),
)
labels_by_turn = slip(
    by_end_times,
    "The loss is taken with the labels of another microbatch: take those of the op's number.",
    ("loss_fn(out, y)", "loss_fn(out, microbatches[len(saved)][1])"),
)
last_gradient_only = slip(
    by_end_times,
    "Only the last microbatch's gradient is left: gradients add up over the microbatches.",
    ("into, out = saved.pop(i)", "stage.zero_grad()\n            into, out = saved.pop(i)"),
)
overwritten = slip(
    by_end_times,
    "One place for all activations: each F overwrites the last. Keep them by microbatch.",
    ("saved[i] = into, out", "saved[0] = into, out"),
    ("into, out = saved.pop(i)", "into, out = saved[0]"),
)
as_a_stack = slip(
    by_end_times,
    "B takes the activations of the latest F, not of its own: keep them by microbatch.",
    ("into, out = saved.pop(i)", "into, out = saved.pop(list(saved)[-1])"),
)
as_a_queue = slip(
    by_end_times,
    "B takes the oldest activations, not those of its own F: keep them by microbatch.",
    ("into, out = saved.pop(i)", "into, out = saved.pop(next(iter(saved)))"),
)
inbox_is_a_queue = slip(
    by_end_times,
    "What arrived first is used first: stages may run microbatches in another order.",
    (
        "arrived.pop(op).requires_grad_()",
        "arrived.pop(next(k for k in arrived if k[0] == kind)).requires_grad_()",
    ),
)
never_released = slip(
    by_end_times,
    "All activations are kept to the end: let go of a microbatch's after its backward pass.",
    ("into, out = saved.pop(i)", "into, out = saved[i]"),
)
gradient_not_sent = slip(
    by_end_times,
    "The stage before never gets its gradient: send that of the stage's input after each B.",
    ("if rank > 0:", "if False:"),
)
gradient_of_the_output = slip(
    by_end_times,
    "What came in from the stage after is sent on: send the gradient of this stage's input.",
    (
        "out.backward(arrived.pop(op, None))",
        "came = arrived.pop(op, None)\n            out.backward(came)",
    ),
    ("comm.send(into.grad, rank - 1)", "comm.send(into.grad if came is None else came, rank - 1)"),
)
input_without_gradient = slip(
    by_end_times,
    "What was received has no gradient after backward: call requires_grad_() on it before F.",
    ("arrived.pop(op).requires_grad_()", "arrived.pop(op)"),
)
last_loss_only = slip(
    by_end_times,
    "The loss is that of the last microbatch: add up all microbatches' shares.",
    ("mean = mean + out.detach()", "mean = out.detach()"),
)
no_loss = slip(
    by_end_times,
    "The last stage should return the mean loss of the whole batch.",
    ("return mean", "return None"),
)
to_everybody = slip(
    by_end_times,
    "Each tensor goes to all ranks: only the neighbouring stage needs it, by send and recv.",
    ("comm.send(out.detach(), rank + 1)", "comm.broadcast(out.detach(), s)"),
    ("comm.send(into.grad, rank - 1)", "comm.broadcast(into.grad, s)"),
    ('elif s == (rank - 1 if kind == "F" else rank + 1):', 'elif s != (last, 0)[kind == "B"]:'),
    (
        "arrived[op] = comm.recv(x, s)",
        "came = comm.broadcast(x, s)\n"
        '            if s == (rank - 1 if kind == "F" else rank + 1):\n'
        "                arrived[op] = came",
    ),
)


@wrong(
    "Two neighbours send to each other and wait for ever: make all transfers in one common order."
)
def in_its_own_order():
    def run_pipeline(comm, stage, microbatches, timeline, *, loss_fn):
        rank, last = comm.rank, comm.size - 1
        tokens = sum(len(y) for _, y in microbatches)
        saved, mean = {}, 0
        for (kind, i), _, _ in timeline[rank]:
            x, y = microbatches[i]
            if kind == "F":
                into = x if rank == 0 else comm.recv(x, rank - 1, tag=i).requires_grad_()
                out = stage(into)
                if rank < last:
                    comm.send(out.detach(), rank + 1, tag=i)
                else:
                    out = loss_fn(out, y) * len(y) / tokens
                    mean = mean + out.detach()
                saved[i] = into, out
            else:
                into, out = saved.pop(i)
                out.backward(comm.recv(x, rank + 1, tag=i) if rank < last else None)
                if rank > 0:
                    comm.send(into.grad, rank - 1, tag=i)
        return mean

    return run_pipeline


_ITS_OWN = "the batch's own x gets a gradient too, which nobody reads"
EQUIVALENT = {
    "divided_at_the_end run_pipeline: me > 0 -> me >= 0": _ITS_OWN,
    "divided_at_the_end run_pipeline: 0 -> -1": _ITS_OWN,
}
