"""A causal attention layer on slices of a sequence: `slice_forward` and `slice_backward`.

One head: q, k, v = x @ w in three equal parts of d columns, scores q k' / sqrt(d), token t looks at
tokens 0..t. `slice_forward(x, w, state) -> y` is called for each slice, first to last,
`slice_backward(dy, w, state) -> (dx, dw)` for each one, last to first: K and V of a slice serve all
later slices, whose backward passes hand dK and dV to it. `state` is a dict, empty at first, one for
each sequence; sequences take turns. All together are the whole sequence's: y and dx slice by slice,
dw as a sum. Forward takes no more work in matrix products than the whole sequence at once: K and V
of earlier slices are kept, not made again. Shapes: x, y [slice, d], w [d, 3d].
Source: Li et al. 2021 (arXiv:2102.07988), section 3.2; the backward pass is derived here. Oracle:
sums over pairs of tokens, derivatives written out, no autograd.
"""

from distgrade.compare import Symptom, compare, told_as_changed
from distgrade.exercise import Case, Close, also_right, slip, wrong

NAMES = ("slice_forward", "slice_backward")
FORBID = ()
TOLERANCE = Close(1e-10, "softmax and its sums in another order, in float64")
CREDIT = {"forward": 2, "backward": 4}
CASES = (
    Case("two slices, back", "backward", slices=[2, 3], d=3, goes=1, back=True),
    Case("the whole sequence", "forward", slices=[5], d=3, goes=1, back=False),
    Case("three slices", "forward", slices=[2, 3, 1], d=4, goes=1, back=False),
    Case("token by token", "forward", slices=[1, 1, 1, 1], d=3, goes=1, back=False),
    Case("two sequences in turns", "forward", slices=[3, 1, 2], d=2, goes=2, back=False),
    Case("the whole sequence, back", "backward", slices=[4], d=3, goes=1, back=True),
    Case("four slices, back", "backward", slices=[3, 1, 2, 2], d=4, goes=1, back=True),
    Case("two sequences, back in turns", "backward", slices=[1, 2, 2], d=3, goes=2, back=True),
)


def given(case, seed):
    from distlab.seeds import normal

    key = "causal slices", case.name, seed
    length = sum(case.slices)
    xs = [normal((length, case.d), *key, "x", k) for k in range(case.goes)]
    dys = [normal((length, case.d), *key, "dy", k) for k in range(case.goes)]
    w = normal((case.d, 3 * case.d), *key, "w")
    return {"xs": xs, "dys": dys, "w": w, "slices": case.slices, "back": case.back}


def observe(student, given):
    import torch
    from torch.overrides import TorchFunctionMode

    work = [0]

    class Counter(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            name = getattr(func, "__name__", "")
            if args and name in ("matmul", "__matmul__", "mm", "bmm", "linear"):
                work[0] += 2 * result.numel() * args[0].shape[-1]
            return result

    w, slices = given["w"].clone(), given["slices"]
    xs = [x.clone().split(slices) for x in given["xs"]]
    dys = [dy.clone().split(slices) for dy in given["dys"]]
    states = [{} for _ in xs]
    ys = [[] for _ in xs]
    with Counter():
        for at in range(len(slices)):
            for k, x in enumerate(xs):
                ys[k].append(student.slice_forward(x[at], w, states[k]))
    for y in (y for row in ys for y in row):
        if not isinstance(y, torch.Tensor):
            raise TypeError("slice_forward should return a tensor, y of its slice")
    tree = {"y": [torch.cat([y.detach() for y in row]) for row in ys]}
    if not given["back"]:
        d, length = w.shape[0], sum(slices)
        whole = 6 * length * d * d + 4 * length * length * d  # x @ w, q k', shares v
        tree["work"] = work[0] / (whole * len(xs))
    else:
        dxs, dws = [[] for _ in xs], [torch.zeros_like(w) for _ in xs]
        for at in reversed(range(len(slices))):
            for k, dy in enumerate(dys):
                answer = student.slice_backward(dy[at], w, states[k])
                if not isinstance(answer, tuple | list) or len(answer) != 2:
                    raise TypeError("slice_backward should return dx and dw of its slice")
                if not all(isinstance(part, torch.Tensor) for part in answer):
                    raise TypeError("slice_backward should return two tensors, dx and dw")
                dxs[k].insert(0, answer[0].detach())
                dws[k] = dws[k] + answer[1].detach()
        tree |= {"dx": [torch.cat(row) for row in dxs], "dw, summed": dws}
    rests = {"x": xs, "dy": dys}
    tree |= {f"{name} afterwards": [torch.cat(row) for row in rows] for name, rows in rests.items()}
    return tree | {"w afterwards": w.detach()}


def oracle(case, given):
    import torch

    d, w = case.d, given["w"]
    wq, wk, wv = w[:, :d], w[:, d : 2 * d], w[:, 2 * d :]
    tree = {"y": []} | ({"dx": [], "dw, summed": []} if given["back"] else {"work": 1.0})
    for x, dy in zip(given["xs"], given["dys"], strict=True):
        q, k, v = x @ wq, x @ wk, x @ wv
        y = torch.zeros_like(x)
        dq, dk, dv = (torch.zeros_like(x) for _ in "qkv")
        for t in range(len(x)):
            raw = [(q[t] * k[u]).sum() / d**0.5 for u in range(t + 1)]
            total = sum(score.exp() for score in raw)
            share = [score.exp() / total for score in raw]
            y[t] = sum(a * v[u] for u, a in enumerate(share))
            for u, a in enumerate(share):
                dv[u] += a * dy[t]
                slope = a * (dy[t] * (v[u] - y[t])).sum() / d**0.5
                dq[t] += slope * k[u]
                dk[u] += slope * q[t]
        tree["y"].append(y)
        if given["back"]:
            tree["dx"].append(dq @ wq.T + dk @ wk.T + dv @ wv.T)
            tree["dw, summed"].append(torch.cat([x.T @ dq, x.T @ dk, x.T @ dv], dim=1))
    return tree | {
        "x afterwards": given["xs"],
        "dy afterwards": given["dys"],
        "w afterwards": w,
    }


def judge(got, expected, case):
    rest = {key: value for key, value in got.items() if key != "work"}
    wanted = {key: value for key, value in expected.items() if key != "work"}
    symptoms = told_as_changed(compare(rest, wanted, rtol=TOLERANCE.rtol))
    if symptoms:
        return symptoms
    if got.get("work", 1.0) > expected.get("work", 1.0) + 1e-9:
        seen = f"{got['work']:.3g} times the matrix products of the whole sequence at once"
        look = "Keep K and V of earlier slices in state; make only those of the new tokens."
        return [Symptom("cost", "the work of slice_forward", seen, look)]
    return []


@also_right("derivatives by hand; K, V, dK and dV lie in state, whole")
def by_hand():
    import torch

    def slice_forward(x, w, state):
        d = w.shape[0]
        q, k, v = (x @ w).split(d, dim=1)
        keys = state["k"] = torch.cat([state.get("k", k[:0]), k])
        values = state["v"] = torch.cat([state.get("v", v[:0]), v])
        at = torch.arange(len(keys))
        hidden = at > at[-len(x) :, None]
        shares = (q @ keys.T / d**0.5).masked_fill(hidden, -torch.inf).softmax(dim=1)
        state.setdefault("slices", []).append((x, q, shares))
        return shares @ values

    def slice_backward(dy, w, state):
        x, q, shares = state["slices"].pop()
        d, seen = w.shape[0], shares.shape[1]
        dk = state.setdefault("dk", torch.zeros_like(state["k"]))
        dv = state.setdefault("dv", torch.zeros_like(state["v"]))
        dshares = dy @ state["v"][:seen].T
        mean = (dshares * shares).sum(dim=1, keepdim=True)
        dscores = shares * (dshares - mean) / d**0.5
        dk[:seen] += dscores.T @ q
        dv[:seen] += shares.T @ dy
        own = slice(seen - len(x), seen)
        dqkv = torch.cat([dscores @ state["k"][:seen], dk[own], dv[own]], dim=1)
        return dqkv @ w.T, x.T @ dqkv

    return slice_forward, slice_backward


@also_right("each slice a function of x, w and earlier K and V; backward is its vjp")
def by_vjp():
    import torch

    def one_slice(x, w, past):
        d = w.shape[0]
        q, kv = (x @ w).split([d, 2 * d], dim=1)
        k, v = torch.cat([past, kv]).split(d, dim=1)
        future = torch.ones(len(q), len(k)).triu(1 + len(k) - len(q)).bool()
        scores = torch.where(future, -torch.inf, q @ k.T / d**0.5)
        return scores.softmax(dim=1) @ v, kv

    def slice_forward(x, w, state):
        past = state.get("past", x.new_zeros(0, 2 * w.shape[0]))
        (y, kv), back = torch.func.vjp(one_slice, x, w, past)
        state["past"] = torch.cat([past, kv])
        state["backs"] = [*state.get("backs", []), back]
        return y

    def slice_backward(dy, w, state):
        *state["backs"], back = state["backs"]
        later = state.get("dpast", torch.zeros_like(state["past"]))
        before = len(later) - len(dy)
        dx, dw, dpast = back((dy, later[before:]))
        state["dpast"] = later[:before] + dpast
        return dx, dw

    return slice_forward, slice_backward


nothing_from_later = slip(
    by_vjp,
    "Later slices used this slice's K and V too: their dK and dV belong to it as well.",
    ('state["dpast"] = later[:before] + dpast', 'state["dpast"] = torch.zeros_like(dpast)'),
)
only_the_next = slip(
    by_vjp,
    "dK and dV of a slice come from all slices after it, not only from the next one.",
    ("later[:before] + dpast", "dpast"),
)
own_keys_constant = slip(
    by_hand,
    "A slice's own tokens look at its K and V too, not only later ones.",
    ("dk[:seen] += dscores.T @ q", "dk[: seen - len(x)] += (dscores.T @ q)[: seen - len(x)]"),
    ("dv[:seen] += shares.T @ dy", "dv[: seen - len(x)] += (shares.T @ dy)[: seen - len(x)]"),
)
queries_alone = slip(
    by_hand,
    "x makes q, k and v: this is only the way through q.",
    ("dk[own], dv[own]], dim=1)", "0 * dk[own], 0 * dv[own]], dim=1)"),
)
values_forgotten = slip(
    by_hand,
    "The gradient through V is missing: it is the shares, turned over, times dy.",
    ("dv[:seen] += shares.T @ dy\n", "\n"),
)
first_come_first = slip(
    by_hand,
    "Gradients come last slice first: take what the last slice left, not the first one's.",
    ('state["slices"].pop()', 'state["slices"].pop(0)'),
)
own_slice_alone = slip(
    by_hand,
    "A token looks at all tokens before it, those of earlier slices too.",
    ('torch.cat([state.get("k", k[:0]), k])', "k"),
    ('torch.cat([state.get("v", v[:0]), v])', "v"),
)
newest_first = slip(
    by_vjp,
    "Earlier K and V come first: the mask counts on their order.",
    ("torch.cat([past, kv]).split(d, dim=1)", "torch.cat([kv, past]).split(d, dim=1)"),
)
mask_from_the_corner = slip(
    by_vjp,
    "The mask begins at the slice's own first token: all earlier slices can be seen.",
    ("triu(1 + len(k) - len(q))", "triu(1)"),
)
looks_ahead = slip(
    by_vjp,
    "Inside its slice, a token looks at later ones: mask them.",
    ("triu(1 + len(k) - len(q))", "triu(len(k))"),
)
not_its_own = slip(
    by_vjp,
    "A token looks at itself too: tokens 1 to t, not 1 to t - 1.",
    ("triu(1 + len(k) - len(q))", "triu(max(len(k) - len(q), 1))"),
)
no_scale = slip(
    by_vjp,
    "Scores are divided by the square root of d.",
    (" / d**0.5", ""),
)
scaled_by_d = slip(
    by_vjp,
    "Scores are divided by d here, not by its square root.",
    ("d**0.5", "d"),
)
one_state_for_all = slip(
    by_vjp,
    "Sequences mix: what you keep belongs into the state that was given.",
    ("def slice_forward", "own_dict = {}\n\n\ndef slice_forward"),
    ("(x, w, state):\n    past", "(x, w, state):\n    state = own_dict\n    past"),
    ("(dy, w, state):\n", "(dy, w, state):\n    state = own_dict\n"),
)


@wrong("K and V of earlier slices are made again for each slice: keep them.")
def keys_made_again():
    import torch

    def whole(x, w):
        d = w.shape[0]
        q, k, v = (x @ w).split(d, dim=1)
        future = torch.ones(len(x), len(x)).triu(1).bool()
        return (q @ k.T / d**0.5).masked_fill(future, -torch.inf).softmax(dim=-1) @ v

    def slice_forward(x, w, state):
        state["x"] = torch.cat([state.get("x", x[:0]), x])
        return whole(state["x"], w)[-len(x) :]

    def slice_backward(dy, w, state):
        state["dy"] = torch.cat([dy, state.get("dy", dy[:0])])
        before = len(state["x"]) - len(state["dy"])
        padded = torch.cat([torch.zeros_like(state["x"][:before]), state["dy"]])
        dx, dw = torch.func.vjp(whole, state["x"], w)[1](padded)
        last = dw - state.get("dw", torch.zeros_like(dw))
        state["dw"] = dw
        return dx[before : before + len(dy)], last

    return slice_forward, slice_backward


@wrong("dw holds all slices so far: return this slice's part, since the parts are summed.")
def running_sum():
    import torch

    def slice_forward(x, w, state):
        d = w.shape[0]
        leaf = state.setdefault("w", w.detach().clone().requires_grad_())
        x = x.detach().clone().requires_grad_()
        q, k, v = (x @ leaf).split(d, dim=1)
        made = torch.cat([k, v], dim=1)
        kept = made.detach().requires_grad_()
        state.setdefault("slices", []).append((x, made, kept))
        keys, values = torch.cat([kept for *_, kept in state["slices"]]).split(d, dim=1)
        future = torch.ones(len(x), len(keys)).triu(1 + len(keys) - len(x)).bool()
        scores = (q @ keys.T / d**0.5).masked_fill(future, -torch.inf)
        y = scores.softmax(dim=-1) @ values
        state.setdefault("ys", []).append(y)
        return y.detach()

    def slice_backward(dy, w, state):
        x, made, kept = state["slices"].pop()
        state["ys"].pop().backward(dy, retain_graph=True)
        made.backward(kept.grad)
        return x.grad, state["w"].grad.clone()

    return slice_forward, slice_backward
