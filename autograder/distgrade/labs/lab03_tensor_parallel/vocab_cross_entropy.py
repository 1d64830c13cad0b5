"""Cross entropy over a vocabulary cut over t ranks: `vocab_parallel_cross_entropy`.

`vocab_parallel_cross_entropy(comm, logits_shard, targets)`: logits_shard [N, V/t] float64, this
rank's columns of the logits, in rank order; targets [N] int64, words of the whole vocabulary, equal
on all ranks. Returns the loss of every token, [N], on every rank, differentiable in logits_shard.
Cost: three all-reduces of N numbers forward (largest logit, sum of exponentials, the target's
logit), nothing backward: 3 · 2 (t-1)/t · 8 N bytes sent per rank, each tensor padded to a multiple
of t for those who reduce-scatter and all-gather.
Source: Shoeybi et al. 2019 (arXiv:1909.08053), section 3. Oracle: the whole row of logits, token by
token, with Python's own floats.
"""

from distgrade.compare import ceiling, compare, told_as_changed
from distgrade.exercise import Case, Close, also_right, slip, wrong

NAMES = ("vocab_parallel_cross_entropy",)
FORBID = ()
TOLERANCE = Close(1e-12, "exponentials and logarithms are rounded, sums come in any order")
CREDIT = {"values": 2, "large": 1, "bytes": 1}
CASES = (
    Case("one rank", "values", n=1, tokens=3, words=5, shift=0.0),
    Case("two ranks", "values", n=2, tokens=5, words=3, shift=0.0),
    Case("three ranks, two words each", "values", n=3, tokens=7, words=2, shift=0.0),
    Case("two ranks, large logits", "large", n=2, tokens=4, words=3, shift=900.0),
    Case("four ranks far apart", "large", n=4, tokens=6, words=2, shift=-1500.0),
    Case("bytes, five ranks", "bytes", n=5, tokens=6, words=4, shift=0.0),
)


def given(case, seed):
    import torch

    from distlab.seeds import generator, normal

    key = ("vocab_cross_entropy", case.name, seed)
    made = generator(*key, "targets")
    # Ranks and tokens stand `shift` apart: the largest logit differs from rank to rank and from
    # token to token by more than an exponential bears.
    steps = torch.arange(case.tokens, dtype=torch.float64)[:, None]
    logits = [
        normal((case.tokens, case.words), *key, rank) + (rank + 1 + steps) * case.shift
        for rank in range(case.n)
    ]
    targets = torch.randperm(max(case.tokens, case.n * case.words), generator=made)
    return {
        "logits": logits,
        "targets": targets[: case.tokens] % (case.n * case.words),
        "upstream": normal((case.tokens,), *key, "upstream"),
    }


def observe(student, given):
    import torch

    from distlab import per_rank, run

    cross_entropy = student.vocab_parallel_cross_entropy
    n = len(given["logits"])

    def losses(comm, logits, targets, upstream):
        before, wanted = logits.clone(), targets.clone()
        logits = logits.clone().requires_grad_()
        loss = cross_entropy(comm, logits, targets)
        # An answer of another shape or without history has no gradient: its shape is told first.
        good = isinstance(loss, torch.Tensor) and loss.requires_grad
        if good and (loss.shape, loss.dtype) == (upstream.shape, upstream.dtype):
            loss.backward(upstream)
        same = torch.equal(before, logits.detach()) and torch.equal(wanted, targets)
        return same, loss.detach().clone() if isinstance(loss, torch.Tensor) else loss, logits.grad

    shards = per_rank(given["logits"])
    result = run(losses, n, shards, given["targets"], given["upstream"], echo=False)
    names = ["inputs afterwards", "loss", "gradient of logits_shard"]
    columns = [list(column) for column in zip(*result.values, strict=True)]
    sent = [result.ledger.ring_bytes(rank=rank) for rank in range(n)]
    return dict(zip(names, columns, strict=True)) | {"ring_bytes with backward": sent}


def oracle(case, given):
    from fractions import Fraction
    from math import exp, fsum, log

    import torch

    n, words = case.n, case.words
    rows = torch.cat(given["logits"], dim=1).tolist()
    targets, upstream = given["targets"].tolist(), given["upstream"].tolist()
    loss, gradient = [], []
    for row, target, weight in zip(rows, targets, upstream, strict=True):
        top = max(row)
        scores = [exp(value - top) for value in row]
        total = fsum(scores)
        loss.append(log(total) + top - row[target])
        shares = [score / total - (word == target) for word, score in enumerate(scores)]
        gradient.append([weight * share for share in shares])
    loss = torch.tensor(loss, dtype=torch.float64)
    whole = torch.tensor(gradient, dtype=torch.float64)
    padded_bytes = -(-case.tokens // n) * n * 8  # float64
    return {
        "inputs afterwards": [True] * n,
        "loss": [loss] * n,
        "gradient of logits_shard": list(whole.split(words, dim=1)),
        "ring_bytes with backward": [3 * Fraction(2 * (n - 1), n) * padded_bytes] * n,
    }


def judge(got, expected, case):
    # Bytes earn their point only beside right values: who sends nothing would be cheapest.
    cost = "ring_bytes with backward"
    trees = ({k: tree[k] for k in expected if k != cost} for tree in (got, expected))
    symptoms = told_as_changed(compare(*trees, rtol=TOLERANCE.rtol, n=case.n))
    return symptoms + (ceiling(got[cost], expected[cost], cost) if case.group == "bytes" else [])


@also_right("scores and a one-hot of this rank's words, both kept for backward as their difference")
def by_one_hot():
    import torch

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits, targets, comm):
            top = comm.all_reduce(logits.max(dim=1).values, op="max")
            scores = torch.exp(logits - top[:, None])
            total = comm.all_reduce(scores.sum(dim=1))
            words = logits.shape[1]
            at = targets - comm.rank * words
            mine = (at >= 0) & (at < words)
            near = torch.nn.functional.one_hot(at.clamp(0, words - 1), words)
            hot = near * mine[:, None]
            target = comm.all_reduce((logits * hot).sum(dim=1))
            ctx.save_for_backward(scores / total[:, None] - hot)
            return total.log() + top - target

        @staticmethod
        def backward(ctx, grad):
            (slope,) = ctx.saved_tensors
            return grad[:, None] * slope, None, None

    def vocab_parallel_cross_entropy(comm, logits_shard, targets):
        return Loss.apply(logits_shard, targets, comm)

    return vocab_parallel_cross_entropy


local_largest = slip(
    by_one_hot,
    "Each rank subtracts its own largest logit, so exponentials don't add up: share the largest.",
    ('comm.all_reduce(logits.max(dim=1).values, op="max")', "logits.max(dim=1).values"),
)
local_denominator = slip(
    by_one_hot,
    "Each rank divides by the sum over its own words: the softmax is over all words.",
    ("comm.all_reduce(scores.sum(dim=1))", "scores.sum(dim=1)"),
)
no_largest = slip(
    by_one_hot,
    "Large logits overflow: subtract the largest of all ranks before you take exponentials.",
    ('comm.all_reduce(logits.max(dim=1).values, op="max")', "torch.zeros(len(logits))"),
)
local_target_logit = slip(
    by_one_hot,
    "Only the rank that owns the target word knows its logit: it must reach the others.",
    ("comm.all_reduce((logits * hot).sum(dim=1))", "(logits * hot).sum(dim=1)"),
)
every_rank_owns_the_target = slip(
    by_one_hot,
    "Every rank adds a logit for the target: only the rank that owns the word may.",
    (" * mine[:, None]", ""),
)
targets_not_shifted = slip(
    by_one_hot,
    "Targets count the words of the whole vocabulary: subtract this rank's first word.",
    ("targets - comm.rank * words", "targets"),
)
one_hot_forgotten = slip(
    by_one_hot,
    "The gradient is softmax minus one at the target: the one is missing.",
    ("total[:, None] - hot", "total[:, None]"),
)
one_on_every_rank = slip(
    by_one_hot,
    "The gradient takes one off on every rank: only the target's owner has that entry.",
    ("total[:, None] - hot", "total[:, None] - near"),
)
mean_of_the_tokens = slip(
    by_one_hot,
    "The mean over tokens is returned: one loss for every token is asked for.",
    ("Loss.apply(logits_shard, targets, comm)", "Loss.apply(logits_shard, targets, comm).mean()"),
)
upstream_ignored = slip(
    by_one_hot,
    "backward ignores the gradient that comes in: each token's row is multiplied by its entry.",
    ("grad[:, None] * slope", "slope"),
)
one_largest_for_all_tokens = slip(
    by_one_hot,
    "One largest logit for all tokens: those far below lose everything; take each token's own.",
    ("logits.max(dim=1).values", "logits.max().expand(len(logits))"),
)
sum_for_the_largest = slip(
    by_one_hot,
    'The largest logits are added up over ranks: use all_reduce with op="max".',
    (', op="max"', ""),
)


@wrong("The values are right, but all logits are gathered: three numbers a token are enough.")
def gathers_the_logits():
    import torch

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits, targets, comm):
            whole = comm.all_gather(logits, dim=1).log_softmax(dim=1)
            hot = torch.nn.functional.one_hot(targets, whole.shape[1])
            ctx.save_for_backward((whole.exp() - hot).chunk(comm.size, dim=1)[comm.rank])
            return -(whole * hot).sum(dim=1)

        @staticmethod
        def backward(ctx, grad):
            (slope,) = ctx.saved_tensors
            return grad[:, None] * slope, None, None

    def vocab_parallel_cross_entropy(comm, logits_shard, targets):
        return Loss.apply(logits_shard, targets, comm)

    return vocab_parallel_cross_entropy


@also_right("each rank's own logsumexp, then the logsumexp of these")
def logsumexp_of_logsumexps():
    import torch

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx, logits, targets, comm):
            mine = logits.logsumexp(dim=1)
            top = comm.all_reduce(mine, op="max")
            scale = top + comm.all_reduce((mine - top).exp()).log()
            first = comm.rank * logits.shape[1]
            hot = targets[:, None] == torch.arange(first, first + logits.shape[1])
            ctx.save_for_backward((logits - scale[:, None]).exp(), hot)
            return scale - comm.all_reduce(logits.masked_fill(~hot, 0).sum(dim=1))

        @staticmethod
        def backward(ctx, grad):
            softmax, hot = ctx.saved_tensors
            return (softmax - hot.double()) * grad[:, None], None, None

    def vocab_parallel_cross_entropy(comm, logits_shard, targets):
        return Loss.apply(logits_shard, targets, comm)

    return vocab_parallel_cross_entropy


@also_right("one small function that sums in forward only; sum and target in one message")
def autograd_does_the_rest():
    import torch

    class Total(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, comm):
            return comm.all_reduce(x)

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    def vocab_parallel_cross_entropy(comm, logits_shard, targets):
        tokens, words = logits_shard.shape
        top = comm.all_reduce(logits_shard.detach().amax(dim=1), "max")
        shifted = logits_shard - top.unsqueeze(1)
        owner, word = targets // words, targets % words
        target = shifted[torch.arange(tokens), word].where(owner == comm.rank, 0.0)
        total, target = Total.apply(torch.stack([shifted.exp().sum(dim=1), target]), comm)
        return total.log() - target

    return vocab_parallel_cross_entropy


EQUIVALENT = {}
