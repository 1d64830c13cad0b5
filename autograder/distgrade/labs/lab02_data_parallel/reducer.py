"""DDP's reducer: `Reducer(comm, params, cut)` averages gradients, bucket by bucket, under backward.

`cut(order)` cuts a list of param numbers into buckets. In a step, `ready(i, grad)` is called when
backward has made param i's gradient, in an order that may differ from rank to rank, and not at all
for a param that this rank did not use. `finish()` returns the means over ranks, one for each param.
A bucket is one all-reduce, launched (`async_op=True`) once it and all before it are full, so that
all ranks launch in one order. A gradient that never came counts as zeros. The first buckets are
cut([last, ..., 0]); after the first step they are cut anew, once, by the order that rank 0 saw, its
missing params last. Shapes: a gradient is shaped like its param; float64.
Source: Li et al. 2020 (arXiv:2006.15704), sections 3.2.3 and 4.2. Oracle: means in exact fractions;
a step's time as its longest path, a chain of all-reduces behind the bucket that was full last.
"""

from distgrade.compare import Symptom, compare
from distgrade.exercise import Case, Close, also_right, slip

NAMES = ("Reducer",)
FORBID = ()
TOLERANCE = Close(1e-12, "a mean over 3 or 5 ranks is rounded, before or after the sum")
CREDIT = {"means": 2, "unused": 1, "new buckets": 1, "overlap": 2}
UNEQUAL = ((3,), (2, 2), (1,), (5,), (2,))  # buckets of 7, 5 and 3 numbers at first
EQUAL = ((2,), (2,), (1, 2), (2,), (2,))  # each bucket of two could be taken for another
CASES = (  # `steps` holds, step by step, in which order each rank's gradients come
    Case(
        "two ranks, buckets of one size", "means", n=2, shapes=EQUAL, cap=4,
        steps=(("43210", "43210"), ("43210", "21430")),
    ),
    Case(
        "three ranks, three orders", "means", n=3, shapes=UNEQUAL, cap=5,
        steps=(("43210", "21430", "04321"),),
    ),
    Case("one rank", "unused", n=1, shapes=UNEQUAL, cap=5, steps=(("42031",), ("043",))),
    Case(
        "five ranks, some unused", "unused", n=5, shapes=UNEQUAL, cap=5,
        steps=(
            ("43210",) * 5,
            ("4320", "43210", "0", "", "3214"),  # one rank uses none
            ("4310", "0134", "431", "4", "30"),  # nobody uses param 2
        ),
    ),
    Case(
        "another order", "new buckets", n=3, clock=True, shapes=UNEQUAL, cap=5,
        steps=(
            ("13042", "43210", "20134"), ("43210", "13042", "13042"), ("13042", "31204", "43210"),
        ),
    ),
    Case(
        "unused on rank 0 at first", "new buckets", n=2, clock=True, shapes=UNEQUAL, cap=5,
        steps=(("1042", "10423"), ("31024", "10423")),
    ),
    Case(
        "four ranks on a clock", "overlap", n=4, clock=True, shapes=UNEQUAL, cap=5,
        steps=(("43210",) * 4, ("43210",) * 4, ("43210", "21430", "34210", "43120")),
    ),
    Case(
        "two ranks, a slow link", "overlap", n=2, clock=True, shapes=UNEQUAL, cap=5,
        faster=8,  # backward: so the first bucket starts a chain without gaps
        steps=(("43210",) * 2, ("43210", "34210"), ("34210", "43210")),
    ),
)  # fmt: skip


def given(case, seed):
    from distlab.seeds import integers

    key = "reducer", case.name, seed

    def came(rank, number, i):
        grad = integers(case.shapes[i], *key, "grad", rank, number, i)
        time_s = 4.0 if rank == 1 and i == 0 else 1.0 + (2 * rank + 3 * i) % 4 / 4
        return [i, grad, time_s / getattr(case, "faster", 1)]

    return {
        "params": [integers(shape, *key, "param", i) for i, shape in enumerate(case.shapes)],
        "steps": [
            [
                [came(rank, number, int(i)) for i in orders[rank]]
                for number, orders in enumerate(case.steps)
            ]
            for rank in range(case.n)
        ],
        "cap": case.cap,
        "clock": getattr(case, "clock", False),
    }


def observe(student, given):
    import torch

    from distlab import per_rank, run
    from distlab.hardware import H100_SXM, Cluster, Link

    Reducer = student.Reducer
    sizes, cap = [p.numel() for p in given["params"]], given["cap"]
    n, count = len(given["steps"]), len(given["steps"][0])
    link = Link("slow", 64.0, latency_s=0.125)

    def cut(order):
        buckets = [[]]
        for i in order:
            if sum(sizes[j] for j in buckets[-1]) >= cap:
                buckets.append([])
            buckets[-1].append(int(i))
        return buckets

    def plain(answer):
        if not isinstance(answer, list | tuple):
            return answer
        return [g.detach().clone() if isinstance(g, torch.Tensor) else g for g in answer]

    def on_a_rank(comm, steps, params):
        reducer = Reducer(comm, params, cut)
        means = []
        for number, step in enumerate(steps):
            comm.barrier()
            comm.compute(time_s=1.0, name=f"forward {number}")
            for i, grad, time_s in step:
                comm.compute(time_s=time_s, name="backward")
                reducer.ready(i, grad)
            means.append(plain(reducer.finish()))
            comm.compute(time_s=1.0, name=f"optimiser {number}")
        return means

    result = run(
        on_a_rank,
        n,
        per_rank(given["steps"]),
        given["params"],
        echo=False,
        cluster=Cluster("slow", H100_SXM, 1, link) if given["clock"] else None,
    )

    def start(rank, name):
        return next(e.start for e in result.timeline.of(rank, "compute") if e.name == name)

    def sent(rank, number):
        first, last = (start(rank, f"{name} {number}") for name in ("forward", "optimiser"))
        return " ".join(
            str(e.payload_bytes // 8)
            for e in result.timeline.of(rank, "comm")
            if e.kind == "all_reduce" and first <= e.start < last
        )

    tree = {}
    for number in range(count):
        tree[f"means of step {number + 1}"] = [means[number] for means in result.values]
    if not given["clock"]:
        return tree
    for number in range(count):
        tree[f"numbers sent in step {number + 1}"] = [sent(rank, number) for rank in range(n)]
    times, last = [], count - 1
    for rank in range(n):
        begin, end = (start(rank, f"{name} {last}") for name in ("forward", "optimiser"))
        working = [e.end for e in result.timeline.of(rank) if e.name == "backward"]
        working += [e.end for e in result.timeline.of(rank, "comm") if e.kind == "all_reduce"]
        times.append(max(time for time in working if time <= end) - begin)
    tree["time to the last sum"] = times
    return tree


def oracle(case, given):
    from fractions import Fraction
    from itertools import accumulate

    import torch

    n, params, steps = case.n, given["params"], given["steps"]
    count = len(case.steps)
    everyone = list(range(len(params)))
    seen = [int(i) for i in case.steps[0][0]]
    seen += [i for i in everyone if i not in seen]

    def buckets(number):
        order = list(everyone[::-1] if number == 0 else seen)
        found = []
        for last in range(len(order) - 1, -1, -1):  # from the end: where does a bucket begin?
            before = list(accumulate([params[i].numel() for i in order[:last]], initial=0))
            begins = [0]
            for at in range(1, last + 1):
                if before[at] - before[begins[-1]] >= case.cap:
                    begins.append(at)
            if found and last >= found[0][0]:
                continue
            found.insert(0, (begins[-1], order[begins[-1] : last + 1]))
        return [bucket for _, bucket in found]

    def mean(number, i):
        rows = [
            [Fraction(v) for v in grad.flatten().tolist()]
            for rank in range(n)
            for j, grad, _ in steps[rank][number]
            if i == j
        ]
        zeros = [Fraction(0)] * params[i].numel()
        values = [float(sum(column) / n) for column in zip(zeros, *rows, strict=True)]
        return torch.tensor(values, dtype=torch.float64).reshape(params[i].shape)

    def full_at(rank, number, upto):
        # when this rank has all gradients of the first buckets, or ends its backward without them
        came = {i: time_s for i, _, time_s in steps[rank][number]}
        wanted = {i for bucket in buckets(number)[: upto + 1] for i in bucket}
        order = list(came)
        last = len(order) - 1
        if wanted <= set(came):
            last = max(order.index(i) for i in wanted)
        return 1 + sum(Fraction(came[i]) for i in order[: last + 1])

    def lasts(number):
        takes = []
        for bucket in buckets(number):
            size = 8 * sum(params[i].numel() for i in bucket)
            takes.append(2 * (n - 1) * (Fraction(1, 8) + Fraction(size, 64 * n)))
        return max(
            max(full_at(rank, number, k) for rank in range(n)) + sum(takes[k:])
            for k in range(len(takes))
        )

    tree = {}
    for number in range(count):
        right = [mean(number, i) for i in everyone]
        tree[f"means of step {number + 1}"] = [right] * n
    if not given["clock"]:
        return tree
    for number in range(count):
        sizes = [sum(params[i].numel() for i in bucket) for bucket in buckets(number)]
        tree[f"numbers sent in step {number + 1}"] = [" ".join(map(str, sizes))] * n
    tree["time to the last sum"] = [lasts(count - 1)] * n
    return tree


def judge(got, expected, case):
    # When launches and time are looked at, the means must be right as well: who launches before
    # the gradients are there would be fastest.
    means = [key for key in expected if key.startswith("means")]
    symptoms = compare(
        *({key: tree[key] for key in means} for tree in (got, expected)),
        rtol=TOLERANCE.rtol,
        n=case.n,
    )
    if case.group not in ("new buckets", "overlap"):  # those have no clock
        return symptoms
    for number in range(1, len(case.steps) + 1):
        key = f"numbers sent in step {number}"
        for rank in range(case.n):
            sent, right = (tree[key][rank].split() for tree in (got, expected))
            # Between the first two steps ranks also agree on an order, by whatever collective.
            if number == 1:
                sent = sent[: len(right)]
            elif number == 2:
                sent = sent[-len(right) :]
            if sent != right:
                seen = f"all-reduces of {', '.join(sent)} numbers" if sent else "no all-reduce"
                symptoms.append(Symptom("values", f"{key} on rank {rank}", seen))
    if case.group == "overlap":
        key = "time to the last sum"
        for rank in range(case.n):
            took, least = got[key][rank], expected[key][rank]
            if took > least:
                seen = f"{float(took / least):.3g} times the time that it needs"
                look = "Launch in `ready` whatever is full and in turn; wait in `finish`."
                symptoms.append(Symptom("cost", f"{key} on rank {rank}", seen, look))
    return symptoms


@also_right("gradients by number, launched from the front of the list; summed, then divided")
def by_number():
    import torch

    class Reducer:
        def __init__(self, comm, params, cut):
            self.comm, self.params, self.cut = comm, params, cut
            self.buckets, self.first = cut(list(range(len(params)))[::-1]), True
            self.grads, self.handles = {}, []

        def launch(self, bucket):
            flat = torch.cat([self.grads[i].flatten() for i in bucket])
            self.handles.append(self.comm.all_reduce(flat, async_op=True))

        def ready(self, i, grad):
            self.grads[i] = grad
            for bucket in self.buckets[len(self.handles) :]:
                if not all(j in self.grads for j in bucket):
                    break
                self.launch(bucket)

        def finish(self):
            order = list(self.grads)
            order += [i for i in range(len(self.params)) if i not in order]
            self.grads = {i: torch.zeros_like(p) for i, p in enumerate(self.params)} | self.grads
            for bucket in self.buckets[len(self.handles) :]:
                self.launch(bucket)
            means = {}
            for bucket, handle in zip(self.buckets, self.handles, strict=True):
                flat = handle.wait() / self.comm.size
                parts = flat.split([self.params[i].numel() for i in bucket])
                means |= {i: p.view_as(self.params[i]) for i, p in zip(bucket, parts, strict=True)}
            if self.first:
                seen = self.comm.broadcast(torch.tensor(order))
                self.buckets = self.cut(seen.tolist())
            self.grads, self.handles, self.first = {}, [], False
            return [means[i] for i in range(len(means))]

    return Reducer


waits_at_each_launch = slip(
    by_number,
    "Each bucket is waited for where it is launched: backward stands still. Wait in `finish`.",
    ("all_reduce(flat, async_op=True)", "all_reduce(flat)"),
    ("handle.wait()", "handle"),
)
waits_for_the_one_before = slip(
    by_number,
    "A bucket is launched only when the one before has arrived: launch it, and wait in `finish`.",
    (
        "        self.handles.append(",
        "        for handle in self.handles[-1:]:\n            handle.wait()\n"
        "        self.handles.append(",
    ),
)
launched_at_the_end = slip(
    by_number,
    "Everything is launched in `finish`: nothing travels while backward runs.",
    ("if not all(j in self.grads for j in bucket):", "if True:"),
)
sums = slip(
    by_number,
    "These are sums over the ranks: their means are asked for.",
    ("handle.wait() / self.comm.size", "handle.wait()"),
)
unused_never_launched = slip(
    by_number,
    "A bucket that lacks an unused param is never launched here, and other ranks wait for it.",
    (
        "        for bucket in self.buckets[len(self.handles) :]:\n"
        "            self.launch(bucket)\n        means = {}",
        "        means = dict(self.grads)",
    ),
    ("self.handles, strict=True", "self.handles"),
)
unused_left_out = slip(
    by_number,
    "Unused params keep a bucket from being launched, and have no mean: count them as zeros.",
    (
        "        for bucket in self.buckets[len(self.handles) :]:\n"
        "            self.launch(bucket)\n        means = {}",
        "        means = dict.fromkeys(range(len(self.params)))",
    ),
    ("self.handles, strict=True", "self.handles"),
)
each_ranks_own_order = slip(
    by_number,
    "Each rank cuts anew by its own order, so the buckets differ: all need rank 0's.",
    ("self.comm.broadcast(torch.tensor(order))", "torch.tensor(order)"),
)
last_ranks_order = slip(
    by_number,
    "The new buckets follow the order of the last rank: rank 0's is asked for.",
    ("torch.tensor(order))", "torch.tensor(order), src=self.comm.size - 1)"),
)
launched_before_it_is_full = slip(
    by_number,
    "A bucket leaves with its first gradient, zeros in the others' places: wait for all of them.",
    ("not all(", "not any("),
    ("self.grads[i].flatten()", "self.grads.get(i, torch.zeros_like(self.params[i])).flatten()"),
)
counted_only = slip(
    by_number,
    "Gradients are counted but not told apart: as many as a bucket holds may be another bucket's.",
    (
        "not all(j in self.grads for j in bucket)",
        "len(self.grads) < sum(map(len, self.buckets[: len(self.handles) + 1]))",
    ),
)
last_bucket_stays = slip(
    by_number,
    "The last bucket is never sent: its gradients are still each rank's own.",
    ("len(self.handles) :]:\n            if", "len(self.handles) : -1]:\n            if"),
    ("len(self.handles) :]:\n            self", "len(self.handles) : -1]:\n            self"),
    ("means = {}", "means = dict(self.grads)"),
    ("self.handles, strict=True", "self.handles"),
)
from_the_front = slip(
    by_number,
    "The first buckets go from param 0 on: backward makes the last param's gradient first.",
    ("[::-1]", ""),
)
never_cut_anew = slip(
    by_number,
    "The buckets stay as they were at first: cut them anew after the first step.",
    ("self.cut(seen.tolist())", "self.buckets"),
)
cut_anew_each_step = slip(
    by_number,
    "The buckets are cut anew after every step: once, after the first, is enough.",
    ("{}, [], False", "{}, [], True"),
)
lost_by_the_new_buckets = slip(
    by_number,
    "What rank 0 didn't use in the first step is missing from the new order: put it last.",
    ("order += [i for i in range(len(self.params)) if i not in order]", "pass"),
)
missing_ones_first = slip(
    by_number,
    "What rank 0 didn't use in the first step comes first in the new order: put it last.",
    (
        "order += [i for i in range(len(self.params)) if i not in order]",
        "order = [i for i in range(len(self.params)) if i not in order] + order",
    ),
)
looks_full_already = slip(
    by_number,
    "Gradients of the step before are still there, so buckets look full: begin each step anew.",
    ("self.first = {}, [], False", "self.first = self.grads, [], False"),
)
gradient_of_an_earlier_step = slip(
    by_number,
    "An unused param brings its gradient of an earlier step: here it counts as zeros.",
    ("self.grads, self.handles = {}, []", "self.grads, self.handles, self.kept = {}, [], {}"),
    ("{i: torch.zeros_like(p) for", "{i: self.kept.get(i, torch.zeros_like(p)) for"),
    (
        "self.grads, self.handles, self.first = {}",
        "self.kept = self.grads\n        self.grads, self.handles, self.first = {}",
    ),
)
unused_brings_its_values = slip(
    by_number,
    "An unused param brings its own values in place of a gradient: here it counts as zeros.",
    ("{i: torch.zeros_like(p) for", "{i: p.clone() for"),
)
result_of_wait_dropped = slip(
    by_number,
    "What `wait()` returns is dropped: an all-reduce leaves its input as it is.",
    (
        "self.comm.all_reduce(flat, async_op=True)",
        "(flat, self.comm.all_reduce(flat, async_op=True))",
    ),
    ("for bucket, handle in", "for bucket, (flat, handle) in"),
    ("flat = handle.wait() /", "handle.wait()\n            flat = flat /"),
)
divided_by_its_users = slip(
    by_number,
    "A param's sum is divided by the ranks that used it: divide by all ranks, as DDP does.",
    (
        "order = list(self.grads)",
        "order = list(self.grads)\n"
        "        mine = torch.tensor([i in order for i in range(len(self.params))]).double()",
    ),
    ("means = {}", "users, means = self.comm.all_reduce(mine).clamp(min=1), {}"),
    ("handle.wait() / self.comm.size", "handle.wait()"),
    ("p.view_as(self.params[i])", "p.view_as(self.params[i]) / users[i]"),
)
a_message_for_each = slip(
    by_number,
    "Each gradient travels alone: a bucket's gradients go together, in one flat tensor.",
    ("cut(list(range(len(params)))[::-1])", "[[i] for i in range(len(params))][::-1]"),
    ("self.cut(seen.tolist())", "[[i] for i in seen.tolist()]"),
)
one_launch_at_a_time = slip(
    by_number,
    "A `ready` launches one bucket at most: if the next one is full already, it waits in vain.",
    (
        "break\n            self.launch(bucket)",
        "break\n            self.launch(bucket)\n            break",
    ),
)
launched_as_they_fill = slip(
    by_number,
    "Buckets are launched as they fill, in another order on each rank: keep the list's order.",
    ("self.handles = {}, []", "self.handles = {}, {}"),
    ("self.first = {}, [],", "self.first = {}, {},"),
    (
        "self.handles.append(self.comm.all_reduce(flat, ",
        'self.handles[tuple(bucket)] = (self.comm.all_reduce(flat, "mean", ',
    ),
    (" / self.comm.size", ""),
    (
        "self.buckets[len(self.handles) :]:\n            if not",
        "self.buckets:\n            if tuple(bucket) in self.handles or not",
    ),
    ("break", "continue"),
    (
        "self.buckets[len(self.handles) :]:",
        "[b for b in self.buckets if tuple(b) not in self.handles]:",
    ),
    (
        "zip(self.buckets, self.handles, strict=True)",
        "[(b, self.handles[tuple(b)]) for b in self.buckets]",
    ),
)


@also_right(
    "DDP's own way: flat buffers that gradients are copied into, counted down; order lazily"
)
def flat_buffers():
    import torch

    class Reducer:
        def __init__(self, comm, params, cut):
            self.comm, self.params, self.cut = comm, params, cut
            self.order = list(range(len(params) - 1, -1, -1))
            self.steps, self.handles = 0, None

        def begin(self):
            if self.steps == 1:
                seen = self.seen + [i for i in self.order if i not in self.seen]
                self.order = self.comm.broadcast(torch.tensor(seen)).tolist()
            self.buckets = self.cut(self.order)
            self.views, self.flats, self.of = {}, [], {}
            for k, bucket in enumerate(self.buckets):
                sizes = [self.params[i].numel() for i in bucket]
                flat = torch.zeros(sum(sizes), dtype=self.params[0].dtype)
                self.flats.append(flat)
                for i, view in zip(bucket, flat.split(sizes), strict=True):
                    self.views[i], self.of[i] = view, k
            self.missing = [len(bucket) for bucket in self.buckets]
            self.seen, self.handles = [], []

        def ready(self, i, grad):
            if self.handles is None:
                self.begin()
            self.seen.append(i)
            self.views[i].copy_(grad.flatten())
            self.missing[self.of[i]] -= 1
            self.launch()

        def launch(self, everything=False):
            for k in range(len(self.handles), len(self.flats)):
                if self.missing[k] > 0 and not everything:
                    return
                self.handles.append(self.comm.all_reduce(self.flats[k], "mean", async_op=True))

        def finish(self):
            if self.handles is None:
                self.begin()
            self.launch(everything=True)
            for flat, handle in zip(self.flats, self.handles, strict=True):
                flat.copy_(handle.wait())
            self.steps, self.handles = self.steps + 1, None
            return [self.views[i].view_as(p) for i, p in enumerate(self.params)]

    return Reducer


@also_right("divided before it is sent; all ranks' orders gathered, and the first one taken")
def orders_gathered():
    import torch

    class Reducer:
        def __init__(self, comm, params, cut):
            self.comm, self.cut, self.buckets = comm, cut, cut(list(range(len(params)))[::-1])
            self.zeros = [torch.zeros_like(p) for p in params]
            self.orders = []
            self.begin()

        def begin(self):
            self.waiting = list(self.buckets)
            self.parts, self.order, self.running = list(self.zeros), [], []

        def ready(self, i, grad):
            self.parts[i] = grad / self.comm.size
            self.order.append(i)
            for bucket in list(self.waiting):
                if bucket is self.waiting[0] and set(bucket) <= set(self.order):
                    self.send()

        def send(self):
            flat = torch.cat([self.parts[i].flatten() for i in self.waiting.pop(0)])
            self.running.append(self.comm.all_reduce(flat, async_op=True))

        def finish(self):
            for _ in list(self.waiting):
                self.send()
            if not self.orders:
                rest = set(range(len(self.zeros))) - set(self.order)
                self.orders = self.comm.all_gather(torch.tensor([[*self.order, *rest]])).tolist()
            flat = torch.cat([handle.wait() for handle in self.running])
            numbers = [i for bucket in self.buckets for i in bucket]
            cuts = flat.split([self.zeros[i].numel() for i in numbers])
            means = dict(zip(numbers, cuts, strict=True))
            self.buckets = self.cut(self.orders[0])
            self.begin()
            return [means[i].reshape(zero.shape) for i, zero in enumerate(self.zeros)]

    return Reducer


STRICT = "both are equally long in a right answer; strict only says so"
RANGE = "cut takes any sequence of numbers, so a range does as a list"
DTYPE = "all params have one dtype, so any of them tells it"
_ZIPS = {
    "Reducer.finish": ["self.buckets, self.handles", "bucket, handle.wait().split(sizes)"],
    "by_number Reducer.finish": ["self.buckets, self.handles", "bucket, parts"],
    "flat_buffers Reducer.begin": ["bucket, flat.split(sizes)"],
    "flat_buffers Reducer.finish": ["self.flats, self.handles"],
    "orders_gathered Reducer.finish": ["numbers, cuts"],
}
_RANGES = {
    "Reducer": "reversed(range(len(params)))",
    "by_number Reducer": "range(len(params))",
    "flat_buffers Reducer": "range(len(params) - 1, -1, -1)",
    "orders_gathered Reducer": "range(len(params))",
}
EQUIVALENT = {
    **{
        f"{scope}: zip({pair}, strict=True) -> zip({pair})": STRICT
        for scope, pairs in _ZIPS.items()
        for pair in pairs
    },
    **{f"{scope}: True -> False": STRICT for scope in _ZIPS},
    **{f"{scope}.__init__: list({r}) -> {r}": RANGE for scope, r in _RANGES.items()},
    **{f"flat_buffers Reducer.begin: 0 -> {i}": DTYPE for i in (1, -1)},
}
