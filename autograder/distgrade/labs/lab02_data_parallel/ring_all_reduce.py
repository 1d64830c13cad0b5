"""An all-reduce built from messages: `ring_all_reduce(comm, x)` returns the sum of every rank's x.

Shapes: x has any shape, the same on all ranks; so has the result, on every rank. float64. The
number of ranks need not divide the number of entries.
Cost: 2 (n-1) messages of one chunk, and a chunk holds at most ceil(numel/n) numbers. Everything
that a rank sends is booked in the ledger; collectives are not allowed. `barrier` is: it moves
nothing.
Source: Patarasuk and Yuan (2009), section 3. Oracle: Python's integers, added entry by entry.
"""

from distgrade.compare import Symptom, ceiling, compare, name, told_as_changed
from distgrade.exercise import Case, Exact, also_right, slip, wrong

NAMES = ("ring_all_reduce",)
FORBID = ()
TOLERANCE = Exact()
CREDIT = {"values": 2, "uneven": 1, "bytes": 2}
CASES = (
    Case("one rank", "values", n=1, shape=(3,)),
    Case("two ranks", "values", n=2, shape=(4,)),
    Case("four ranks, a matrix", "values", n=4, shape=(2, 4)),
    Case("three ranks, 7 numbers", "uneven", n=3, shape=(7,)),
    Case("five ranks, 3 numbers", "uneven", n=5, shape=(3, 1)),
    Case("bytes, three ranks", "bytes", n=3, shape=(6,)),
)


def given(case, seed):
    from distlab.seeds import integers

    key = "ring_all_reduce", case.name, seed
    return {"xs": [integers(case.shape, *key, rank, low=-9, high=10) for rank in range(case.n)]}


def observe(student, given):
    import torch

    from distlab import per_rank, run

    ring_all_reduce = student.ring_all_reduce
    n = len(given["xs"])
    messages = ("send", "recv", "sendrecv", "barrier")

    def shares_memory(y, x):
        if not isinstance(y, torch.Tensor):
            return False
        return y.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()

    def on_a_rank(comm, x):
        y = ring_all_reduce(comm, x)
        shared = shares_memory(y, x)
        return (y.detach().clone() if isinstance(y, torch.Tensor) else y), x, shared

    result = run(on_a_rank, n, per_rank(given["xs"]), echo=False)
    sums, inputs, shared = (list(column) for column in zip(*result.values, strict=True))
    used = [{e.op for e in result.ledger.entries if e.rank == rank} for rank in range(n)]
    return {
        "x afterwards": inputs,
        "collectives used": [", ".join(sorted(ops.difference(messages))) for ops in used],
        "the sum": sums,
        "lies in x's memory": shared,
        "bytes sent": [result.ledger.ring_bytes(rank=rank) for rank in range(n)],
    }


def oracle(case, given):
    from fractions import Fraction

    import torch

    n, xs = case.n, given["xs"]
    columns = zip(*(map(int, x.flatten().tolist()) for x in xs), strict=True)
    total = torch.tensor([float(sum(column)) for column in columns], dtype=torch.float64)
    chunk = -(-xs[0].numel() // n)  # the largest of n chunks
    return {
        "x afterwards": xs,
        "collectives used": [""] * n,
        "the sum": [total.reshape(case.shape)] * n,
        "lies in x's memory": [False] * n,
        "bytes sent": [Fraction(2 * (n - 1) * chunk * 8)] * n,
    }


def judge(got, expected, case):
    # Bytes earn their points only beside right values: who sends nothing would be cheapest.
    symptoms = []
    for rank, used in enumerate(got["collectives used"]):
        if used != "":
            where = name(("the sum", rank), case.n)
            symptoms.append(Symptom("cost", where, f"made by {used}, where only messages may be"))
    values = ("x afterwards", "the sum")
    symptoms += told_as_changed(
        compare(
            *({key: tree[key] for key in values} for tree in (got, expected)),
            rtol=TOLERANCE.rtol,
            n=case.n,
        )
    )
    for rank, shared in enumerate(got["lies in x's memory"]):
        if shared is not False:
            where = name(("the sum", rank), case.n)
            symptoms.append(Symptom("values", where, "it lies in the memory of x"))
    if case.group == "bytes":
        symptoms += ceiling(got["bytes sent"], expected["bytes sent"], "bytes sent")
    return symptoms


@wrong("The sum is divided by the number of ranks: an all-reduce adds up, whoever needs means.")
def averaged():
    import torch

    def ring_all_reduce(comm, x):
        n, rank = comm.size, comm.rank
        chunks = list(x.flatten().tensor_split(n))
        for hop in range(2 * (n - 1)):
            out, into = (rank - hop) % n, (rank - hop - 1) % n
            came = comm.sendrecv(chunks[out], (rank + 1) % n, (rank - 1) % n, like=chunks[into])
            chunks[into] = chunks[into] + came if hop < n - 1 else came
        return torch.cat(chunks).reshape(x.shape) / n

    return ring_all_reduce


@wrong("Only two neighbours are added: with n ranks, a sum needs n - 1 hops to collect all terms.")
def right_for_two():
    def ring_all_reduce(comm, x):
        n, rank = comm.size, comm.rank
        if n == 1:
            return x.clone()
        return x + comm.sendrecv(x, (rank + 1) % n, (rank - 1) % n)

    return ring_all_reduce


@wrong("The tail is lost: n chunks of numel // n leave a rest where n does not divide.")
def tail_lost():
    def ring_all_reduce(comm, x):
        n, rank = comm.size, comm.rank
        y = x.clone()
        flat = y.view(-1)
        width = len(flat) // n
        chunks = [flat[i * width : (i + 1) * width] for i in range(n)]
        for hop in range(2 * (n - 1)):
            out, into = (rank - hop) % n, (rank - hop - 1) % n
            came = comm.sendrecv(chunks[out], (rank + 1) % n, (rank - 1) % n)
            chunks[into].copy_(chunks[into] + came if hop < n - 1 else came)
        return y

    return ring_all_reduce


@wrong("x itself is overwritten: flatten() and tensor_split() give views, so copy before adding.")
def input_changed():
    def ring_all_reduce(comm, x):
        n, rank = comm.size, comm.rank
        chunks = x.view(-1).tensor_split(n)
        for hop in range(2 * (n - 1)):
            out, into = (rank - hop) % n, (rank - hop - 1) % n
            came = comm.sendrecv(chunks[out], (rank + 1) % n, (rank - 1) % n, like=chunks[into])
            chunks[into].copy_(chunks[into] + came if hop < n - 1 else came)
        return x.clone()

    return ring_all_reduce


@wrong("One rank alone returns x itself: the result needs memory of its own there too.")
def alias_on_one_rank():
    import torch

    def ring_all_reduce(comm, x):
        n, rank = comm.size, comm.rank
        if n == 1:
            return x
        chunks = list(x.flatten().tensor_split(n))
        for hop in range(2 * (n - 1)):
            out, into = (rank - hop) % n, (rank - hop - 1) % n
            came = comm.sendrecv(chunks[out], (rank + 1) % n, (rank - 1) % n, like=chunks[into])
            chunks[into] = chunks[into] + came if hop < n - 1 else came
        return torch.cat(chunks).reshape(x.shape)

    return ring_all_reduce


@wrong("The whole vector travels on every hop: n - 1 times S, where chunks need 2 (n-1)/n of S.")
def whole_vector_every_hop():
    def ring_all_reduce(comm, x):
        n, rank = comm.size, comm.rank
        total, travelling = x.clone(), x
        for _ in range(n - 1):
            travelling = comm.sendrecv(travelling, (rank + 1) % n, (rank - 1) % n)
            total = total + travelling
        return total

    return ring_all_reduce


@wrong("All ranks send first, and nobody takes: sendrecv does both at once.")
def everyone_sends_first():
    import torch

    def ring_all_reduce(comm, x):
        n, rank = comm.size, comm.rank
        chunks = [chunk.clone() for chunk in x.flatten().tensor_split(n)]
        for hop in range(2 * (n - 1)):
            out, into = (rank - hop) % n, (rank - hop - 1) % n
            comm.send(chunks[out], (rank + 1) % n)
            came = comm.recv(chunks[into], (rank - 1) % n)
            chunks[into] = chunks[into] + came if hop < n - 1 else came
        return torch.cat(chunks).reshape(x.shape)

    return ring_all_reduce


@wrong("This asks for all_reduce: here you build it, from send, recv and sendrecv alone.")
def by_the_collective():
    def ring_all_reduce(comm, x):
        return comm.all_reduce(x)

    return ring_all_reduce


@wrong(
    "The second round is missing: each rank ends with one finished chunk and n - 1 partial sums."
)
def only_the_first_round():
    import torch

    def ring_all_reduce(comm, x):
        n, rank = comm.size, comm.rank
        chunks = [chunk.clone() for chunk in x.flatten().tensor_split(n)]
        for hop in range(n - 1):
            out, into = (rank - hop) % n, (rank - hop - 1) % n
            came = comm.sendrecv(chunks[out], (rank + 1) % n, (rank - 1) % n, like=chunks[into])
            chunks[into] = chunks[into] + came
        return torch.cat(chunks).reshape(x.shape)

    return ring_all_reduce


@wrong("The second round adds again: finished chunks should replace what is there.")
def adds_in_both_rounds():
    import torch

    def ring_all_reduce(comm, x):
        n, rank = comm.size, comm.rank
        chunks = [chunk.clone() for chunk in x.flatten().tensor_split(n)]
        for hop in range(2 * (n - 1)):
            out, into = (rank - hop) % n, (rank - hop - 1) % n
            came = comm.sendrecv(chunks[out], (rank + 1) % n, (rank - 1) % n, like=chunks[into])
            chunks[into] = chunks[into] + came
        return torch.cat(chunks).reshape(x.shape)

    return ring_all_reduce


@wrong("Each rank passes on its own chunks, not its running sums, so terms get lost.")
def own_chunk_sent_on():
    import torch

    def ring_all_reduce(comm, x):
        n, rank = comm.size, comm.rank
        own = [chunk.clone() for chunk in x.flatten().tensor_split(n)]
        chunks = list(own)
        for hop in range(n - 1):
            out, into = (rank - hop) % n, (rank - hop - 1) % n
            came = comm.sendrecv(own[out], (rank + 1) % n, (rank - 1) % n, like=own[into])
            chunks[into] = chunks[into] + came
        for hop in range(n - 1):
            out, into = (rank + 1 - hop) % n, (rank - hop) % n
            came = comm.sendrecv(chunks[out], (rank + 1) % n, (rank - 1) % n, like=own[into])
            chunks[into] = came
        return torch.cat(chunks).reshape(x.shape)

    return ring_all_reduce


@wrong("Everything goes through rank 0: it sends the whole sum n - 1 times, others wait for it.")
def through_rank_0():
    def ring_all_reduce(comm, x):
        if comm.rank:
            comm.send(x, 0)
            return comm.recv(x, 0)
        total = x.clone()
        for rank in range(1, comm.size):
            total = total + comm.recv(x, rank)
        for rank in range(1, comm.size):
            comm.send(total, rank)
        return total

    return ring_all_reduce


@also_right("the other way round the ring")
def to_the_left():
    import torch

    def ring_all_reduce(comm, x):
        n, rank = comm.size, comm.rank
        chunks = list(x.reshape(-1).tensor_split(n))
        for hop in range(n - 1):
            out, into = (rank + hop) % n, (rank + hop + 1) % n
            chunks[into] = chunks[into] + comm.sendrecv(
                chunks[out], (rank - 1) % n, (rank + 1) % n, like=chunks[into]
            )
        for hop in range(n - 1):
            out, into = (rank + hop - 1) % n, (rank + hop) % n
            chunks[into] = comm.sendrecv(
                chunks[out], (rank - 1) % n, (rank + 1) % n, like=chunks[into]
            )
        return torch.cat(chunks).reshape(x.shape)

    return ring_all_reduce


@also_right("padded to equal chunks, as rows of a table that starts with this rank's own")
def padded():
    import torch

    def ring_all_reduce(comm, x):
        n, right, left = comm.size, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
        width = (x.numel() + n - 1) // n
        table = torch.zeros(n * width, dtype=x.dtype)
        table[: x.numel()] = x.flatten()
        table = table.view(n, width).roll(-comm.rank, 0)  # row i is chunk rank + i
        for hop in range(n - 1):
            table[-hop - 1] += comm.sendrecv(table[-hop], right, left)
        for hop in range(n - 1):
            table[-hop] = comm.sendrecv(table[1 - hop], right, left)
        return table.roll(comm.rank, 0).flatten()[: x.numel()].reshape(x.shape)

    return ring_all_reduce


@also_right("straight to each chunk's owner and back, in n - 1 shifts each: as many bytes")
def straight_to_the_owner():
    import torch

    def ring_all_reduce(comm, x):
        n, rank = comm.size, comm.rank
        chunks = [chunk.clone() for chunk in x.flatten().tensor_split(n)]
        for shift in range(1, n):
            to, source = (rank + shift) % n, (rank - shift) % n
            chunks[rank] = chunks[rank] + comm.sendrecv(chunks[to], to, source, like=chunks[rank])
        for shift in range(1, n):
            to, source = (rank + shift) % n, (rank - shift) % n
            chunks[source] = comm.sendrecv(chunks[rank], to, source, like=chunks[source])
        return torch.cat(chunks).reshape(x.shape)

    return ring_all_reduce


second_round_from_its_own = slip(
    to_the_left,
    "The second round starts from chunk r again: the finished chunk is the one that came last.",
    ("(rank + hop - 1) % n, (rank + hop) % n", "(rank + hop) % n, (rank + hop + 1) % n"),
)
one_hop_too_many = slip(
    to_the_left,
    "One hop of adding too many: n - 1 bring every rank's term, the next brings one twice.",
    (
        "for hop in range(n - 1):\n        out, into = (rank + hop) % n",
        "for hop in range(n):\n        out, into = (rank + hop) % n",
    ),
)

_TURNED = (
    "straight_to_the_owner ring_all_reduce: ((rank + shift) % n, (rank - shift) % n)"
    " -> ((rank - shift) % n, (rank + shift) % n)"
)
EQUIVALENT = {
    _TURNED: "each shift has its opposite, so all pairs still meet once",
    "straight_to_the_owner ring_all_reduce: 1 -> 0": (
        "in the second round a finished chunk goes to its own rank too, which sends nothing"
    ),
}
