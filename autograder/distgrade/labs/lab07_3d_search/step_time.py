"""A step's seconds by part, lecture model: `step_time(job, layout)` returns a dict.

With m = batch / (d b) microbatches of b sequences, on each of t·p·d GPUs:
compute = 8 Ψ batch seq / (gpus peak mfu), all recomputed; bubble = compute (p-1) / (v m);
tp = (L/p) m 4 all-reduces of 2sbh bytes over the node's link; pp = 2 m v messages of 2sbh bytes
over the network, none for one stage; dp = an all-reduce of 2Ψ/(t p) bytes over the network.
A ring's all-reduce sends 2(n-1)/n of its payload; nothing overlaps. L/p is a fraction.
"compute, bubble" judges these two parts of an answer alone, "communication" the other three.
Source: Narayanan et al. 2021 (arXiv:2104.04473), sections 2.2 and 3; 8 in place of their 96 of
appendix A: without attention scores and logits. Oracle: passes, layers, hops counted one by one,
in exact fractions; the bubble from stages that work through the microbatches slot by slot.
"""

from distgrade.compare import compare
from distgrade.exercise import Case, Close, also_right, slip

NAMES = ("step_time",)
FORBID = ()
TOLERANCE = Close(1e-9, "products in any order; a bubble may be the difference of two times")
CREDIT = {"compute, bubble": 2, "communication": 4}
_A100 = [312e12, 0.4, 300e9, 25e9]  # peak, mfu, bytes per second in a node and between nodes
_H100 = [989e12, 0.5, 450e9, 50e9]
_SMALL = {"layers": 20, "hidden": 96, "seq": 50, "batch": 84, "psi": 7.5e6, "rates": _A100}
_GPT3 = {"layers": 96, "hidden": 12_288, "seq": 2_048, "batch": 1_536, "psi": 175e9}
_GPT3 |= {"rates": _H100}
CASES = (
    Case("8×8×16 of GPT-3", "compute, bubble", **_GPT3, layout=[8, 8, 16, 1, 1]),
    Case("two chunks a stage", "compute, bubble", **_SMALL, layout=[2, 3, 7, 2, 1]),
    Case("microbatches of two", "compute, bubble", **_SMALL, layout=[3, 5, 6, 1, 2]),
    Case("one stage", "compute, bubble", **_SMALL, layout=[4, 1, 3, 1, 1]),
    Case("a microbatch a replica", "compute, bubble", **_SMALL, layout=[1, 4, 28, 1, 3]),
    Case("three ways at once", "communication", **_SMALL, layout=[3, 5, 7, 1, 1]),
    Case("two chunks, two sequences", "communication", **_SMALL, layout=[2, 4, 6, 2, 2]),
    Case("no tensor parallelism", "communication", **_SMALL, layout=[1, 2, 4, 1, 3]),
    Case("no pipeline", "communication", **_SMALL, layout=[4, 1, 7, 1, 2]),
    Case("one replica", "communication", **_SMALL, layout=[2, 3, 1, 3, 1]),
    Case("one GPU", "communication", **_SMALL, layout=[1, 1, 1, 1, 1]),
)


def given(case, seed):
    # Fresh seeds train another model, for longer, on a faster GPU and on other links.
    t, p, d, _, _ = case.layout
    peak, mfu, in_node, network = case.rates
    return {
        "model": [case.layers, case.hidden + 12 * (seed % 31)],
        "job": [case.psi * (1 + seed % 53), case.batch, case.seq + seed % 41, t * p * d],
        "layout": case.layout,
        "rates": [
            peak + seed % 101 * 1e12,
            mfu,
            in_node + seed % 37 * 1e9,
            network + seed % 7 * 1e9,
        ],
    }


def observe(student, given):
    from dataclasses import replace

    from distlab.hardware import DGX_H100, H100_SXM, Link
    from distlab.layout import Job, Layout
    from distlab.model import Config

    peak, mfu, in_node, network = given["rates"]
    cluster = replace(
        DGX_H100,
        gpu=replace(H100_SXM, peak_flop_per_s=peak),
        mfu=mfu,
        node_link=Link("in a node", in_node),
        network=Link("between nodes", network),
    )
    layers, hidden = given["model"]
    params, batch, seq, gpus = given["job"]
    job = Job(
        model=Config(layers=layers, hidden=hidden, heads=12, vocab=100),
        params=params,
        batch=batch,
        seq=seq,
        gpus=gpus,
        cluster=cluster,
    )
    t, p, d, v, microbatch = given["layout"]
    parts = student.step_time(job, Layout(t, p, d, v=v, microbatch=microbatch))
    if not isinstance(parts, dict):
        raise TypeError("the answer should be a dict of seconds: compute, bubble, tp, pp, dp")
    return parts


def oracle(case, given):
    from fractions import Fraction

    layers, hidden = given["model"]
    params, batch, seq, _ = map(Fraction, given["job"])
    t, p, d, v, b = given["layout"]
    peak, mfu, in_node, network = map(Fraction, given["rates"])
    microbatches = range(batch // (d * b))
    # Forward, forward again, and two products of backward: a multiply and an add for a parameter.
    a_microbatch = sum(2 * params / (t * p) * b * seq for _ in range(4)) / (peak * mfu)
    compute = sum(a_microbatch for _ in microbatches)
    # In 1/v of the time a chunk is done; stage s starts when the stages before it had a chunk.
    first_starts = sum(a_microbatch / v for _ in range(1, p))

    def all_reduce(n, payload, rate):
        hops = range(n - 1)
        return sum(payload / n / rate for _ in ("reduce-scatter", "all-gather") for _ in hops)

    tensor = 2 * seq * b * hidden
    a_layer = sum(
        all_reduce(t, tensor, in_node)
        for _ in ("attention", "MLP")
        for _ in ("forward", "backward")
    )
    pp = Fraction(0)
    for _ in microbatches:
        for _chunk in range(v):
            pp += sum(tensor / network for _ in ("on", "back") if p > 1)
    parts = {
        "compute": compute,
        "bubble": first_starts,
        "tp": sum(a_layer for _ in microbatches) * layers / p,
        "pp": pp,
        "dp": all_reduce(d, 2 * params / t / p, network),
    }
    return {name: float(seconds) for name, seconds in parts.items()}


def judge(got, expected, case):
    work = ("compute", "bubble")
    names = [n for n in expected if (n in work) == (case.group == "compute, bubble")]
    got, expected = ({n: tree[n] for n in names} for tree in (got, expected))
    return compare(got, expected, rtol=TOLERANCE.rtol)


@also_right("one formula after the other")
def by_formulas():
    def step_time(job, layout):
        t, p, d, v, b = layout.t, layout.p, layout.d, layout.v, layout.microbatch
        m = job.batch // (d * b)
        flop_per_s = job.cluster.gpu.peak_flop_per_s * job.cluster.mfu
        node = job.cluster.node_link.rate_bytes_per_s
        network = job.cluster.network.rate_bytes_per_s
        message = 2 * b * job.seq * job.model.hidden
        gradients = 2 * job.params / (t * p)
        compute = 8 * job.params * job.batch * job.seq / (job.gpus * flop_per_s)
        return {
            "compute": compute,
            "bubble": compute * (p - 1) / (v * m),
            "tp": job.model.layers / p * m * 4 * (2 * (t - 1) / t * message) / node,
            "pp": 2 * m * v * message / network if p > 1 else 0.0,
            "dp": 2 * (d - 1) / d * gradients / network,
        }

    return step_time


@also_right("distlab's closed forms of a ring and of computing, in fractions")
def by_closed_forms():
    from fractions import Fraction

    from distlab.cost import compute_time_s, ring_time_s, send_time_s

    def step_time(job, layout):
        cluster, p, b = job.cluster, layout.p, layout.microbatch
        m = Fraction(job.batch, layout.d * b)
        work = 8 * job.params * job.batch * job.seq / layout.gpus
        compute = compute_time_s(work, cluster.gpu, mfu=cluster.mfu)
        tensor = 2 * b * job.seq * job.model.hidden
        gradient = 2 * Fraction(job.params) / (layout.t * p)
        layer = 4 * ring_time_s("all_reduce", layout.t, tensor, cluster.node_link)
        crossings = 2 * m * layout.v if p > 1 else 0
        return {
            "dp": ring_time_s("all_reduce", layout.d, gradient, cluster.network),
            "pp": crossings * send_time_s(tensor, cluster.network),
            "tp": m * layer * job.model.layers / p,
            "bubble": compute * Fraction(p - 1, layout.v) / m,
            "compute": compute,
        }

    return step_time


@also_right("a microbatch's slot times their number; the bubble is what idle stages add")
def by_slots():
    def step_time(job, layout):
        m = job.batch / layout.d / layout.microbatch
        tokens = layout.microbatch * job.seq
        mine = job.params / layout.t / layout.p
        slot = 4 * 2 * mine * tokens / (job.cluster.mfu * job.cluster.gpu.peak_flop_per_s)
        share = (layout.p - 1) / (layout.v * m + layout.p - 1)  # of all the time
        whole = m * slot / (1 - share)
        sent = 2 * tokens * job.model.hidden
        shared = 8 * sent * (1 - 1 / layout.t) / job.cluster.node_link.rate_bytes_per_s
        network = job.cluster.network.rate_bytes_per_s
        neighbours = 0 if layout.p == 1 else 2
        return dict(
            compute=m * slot,
            bubble=whole - m * slot,
            tp=shared * m * job.model.layers / layout.p,
            pp=neighbours * layout.v * m * sent / network,
            dp=4 * mine * (1 - 1 / layout.d) / network,
        )

    return step_time


six = slip(
    by_formulas,
    "compute is 6Ψ a token: everything is recomputed here, one forward pass more makes it 8Ψ.",
    ("compute = 8 *", "compute = 6 *"),
)
at_the_peak = slip(
    by_formulas,
    "compute runs at the peak: a GPU reaches the share `mfu` of it.",
    (" * job.cluster.mfu", ""),
)
all_on_one_gpu = slip(
    by_formulas,
    "compute is one GPU's that does everything: all GPUs of the job share the work.",
    ("/ (job.gpus * flop_per_s)", "/ flop_per_s"),
)
chunks_ignored = slip(
    by_formulas,
    "The bubble ignores v: with v chunks a stage, filling and draining take 1/v of the time.",
    ("(p - 1) / (v * m)", "(p - 1) / m"),
)
share_of_all = slip(
    by_formulas,
    "(p−1)/(vm+p−1) is the bubble's share of all the time; of compute it is (p−1)/(vm).",
    ("(p - 1) / (v * m)", "(p - 1) / (v * m + p - 1)"),
)
p_in_the_bubble = slip(
    by_formulas,
    "The bubble is one slot too long: p stages are filled in p − 1 slots, and one has none.",
    ("compute * (p - 1)", "compute * p"),
)
bubble_of_the_whole_batch = slip(
    by_formulas,
    "The bubble counts all sequences: a pipeline works on m = batch / (d·b) microbatches.",
    ("(p - 1) / (v * m)", "(p - 1) / (v * job.batch)"),
)
bubble_in_compute = slip(
    by_formulas,
    "compute holds the bubble as well: it is a part of its own.",
    ('"compute": compute,', '"compute": compute + compute * (p - 1) / (v * m),'),
)
sequences_as_microbatches = slip(
    by_formulas,
    "The microbatches are single sequences here: with b in each there are batch / (d·b).",
    ("m = job.batch // (d * b)", "m = job.batch // d"),
)
two_a_layer = slip(
    by_formulas,
    "tp is half of it: a layer makes two all-reduces in forward, two in backward, each 2(t−1)/t.",
    ("m * 4 *", "m * 2 *"),
)
six_a_layer = slip(
    by_formulas,
    "tp counts the recomputed all-reduces too: the model asks for four a layer, not six.",
    ("m * 4 *", "m * 6 *"),
)
once_a_step = slip(
    by_formulas,
    "tp is one microbatch's: all-reduces come again with each of the m.",
    ("p * m * 4", "p * 4"),
)
all_layers = slip(
    by_formulas,
    "tp is the whole model's: a GPU all-reduces for the L/p layers of its stage.",
    ("job.model.layers / p *", "job.model.layers *"),
)
whole_layers = slip(
    by_formulas,
    "tp rounds L/p to whole layers: here it is a fraction, the average stage's.",
    ("job.model.layers / p *", "job.model.layers // p *"),
)
no_ring = slip(
    by_formulas,
    "tp takes all-reduces without a ring's factor: each sends 2(t−1)/t of the tensor.",
    ("(2 * (t - 1) / t * message)", "message"),
)
without_t_minus_1 = slip(
    by_formulas,
    "tp sends twice the tensor: on a ring it is 2(t−1)/t of it, and nothing for t = 1.",
    ("(2 * (t - 1) / t * message)", "(2 * message)"),
)
tensor_in_parts = slip(
    by_formulas,
    "tp divides the tensor by t: all t ranks hold it whole, a partial sum of it.",
    ("2 * (t - 1) / t * message", "2 * (t - 1) / t * message / t"),
)
a_byte_each = slip(
    by_formulas,
    "tp and pp send one byte for each number: BF16 has two.",
    ("message = 2 * b", "message = b"),
)
one_sequence = slip(
    by_formulas,
    "tp and pp send a single sequence: a microbatch has b of them.",
    ("message = 2 * b * job.seq", "message = 2 * job.seq"),
)
one_link_for_all = slip(
    by_formulas,
    "pp and dp go over the node's link: stages and replicas lie in other nodes, on the network.",
    ("network = job.cluster.network.", "network = job.cluster.node_link."),
)
network_for_all = slip(
    by_formulas,
    "tp goes over the network: its t ranks sit in one node, on the node's link.",
    ("node = job.cluster.node_link.", "node = job.cluster.network."),
)
gradients_in_a_node = slip(
    by_formulas,
    "dp goes over the node's link: replicas lie in other nodes, on the network.",
    ("* gradients / network", "* gradients / node"),
)
messages_in_a_node = slip(
    by_formulas,
    "pp goes over the node's link: stages lie in other nodes, on the network.",
    ("* message / network if", "* message / node if"),
)
rates_of_h100 = slip(
    by_formulas,
    "The links are taken to be an H100's: the job's cluster says how fast its links are.",
    ("node = job.cluster.node_link.rate_bytes_per_s", "node = 450e9"),
    ("network = job.cluster.network.rate_bytes_per_s", "network = 50e9"),
)
gpu_of_h100 = slip(
    by_formulas,
    "The GPU is taken to be an H100: the job's cluster says which peak and which mfu.",
    ("job.cluster.gpu.peak_flop_per_s * job.cluster.mfu", "989e12 * 0.5"),
)
scattered = slip(
    by_formulas,
    "pp is divided by t: here each of the t ranks sends the whole tensor to its neighbour.",
    ("2 * m * v * message", "2 * m * v * message / t"),
)
forward_only = slip(
    by_formulas,
    "pp is forward's alone: backward sends as many gradients back.",
    ("2 * m * v * message", "m * v * message"),
)
crossings_of_one_chunk = slip(
    by_formulas,
    "pp ignores v: with v chunks a stage, each microbatch passes it v times.",
    ("2 * m * v * message", "2 * m * message"),
)
messages_of_one_microbatch = slip(
    by_formulas,
    "pp is one microbatch's: m of them pass each stage.",
    ("2 * m * v * message", "2 * v * message"),
)
one_stage_sends = slip(
    by_formulas,
    "pp isn't 0 with a single stage: it has no neighbour to send to.",
    (" if p > 1 else 0.0", ""),
)
all_boundaries = slip(
    by_formulas,
    "pp adds up all boundaries: one GPU's are asked for, and stages send at the same time.",
    ("2 * m * v * message / network if p > 1 else 0.0", "2 * m * (v * p - 1) * message / network"),
)
whole_model = slip(
    by_formulas,
    "dp all-reduces the whole model: a GPU has the gradients of Ψ/(t·p) parameters.",
    ("gradients = 2 * job.params / (t * p)", "gradients = 2 * job.params"),
)
in_fp32 = slip(
    by_formulas,
    "dp sends four bytes a gradient: here they are BF16, two bytes.",
    ("gradients = 2 * job.params", "gradients = 4 * job.params"),
)
gradients_of_each_microbatch = slip(
    by_formulas,
    "dp is paid with every microbatch: gradients are summed up first, and sent once a step.",
    ('"dp": 2 *', '"dp": m * 2 *'),
)
half_of_dp = slip(
    by_formulas,
    "dp is half an all-reduce: a rank sends 2(d−1)/d of its gradients.",
    ('"dp": 2 * (d - 1)', '"dp": (d - 1)'),
)
without_d_minus_1 = slip(
    by_formulas,
    "dp sends the gradients twice: on a ring it is 2(d−1)/d of them, nothing for one replica.",
    ('"dp": 2 * (d - 1) / d * gradients', '"dp": 2 * gradients'),
)

EQUIVALENT = {
    "by_formulas step_time: job.batch // (d * b) -> job.batch / (d * b)": (
        "d·b divides the batch of every layout that can be"
    ),
    "by_closed_forms step_time: Fraction(job.params) -> job.params": (
        "a float, divided, is as close as the tolerance wants"
    ),
}
