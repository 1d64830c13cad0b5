"""The small transformer: any cut of it computes what torch's own layers do on one device."""

import pytest
import torch
import torch.nn.functional as F

from distlab import run, small3d
from distlab.layout import Layout
from distlab.seeds import generator

LETTERS, HIDDEN, TOKENS = 5, 12, 6
WHOLE = small3d.whole_weights(3, HIDDEN, LETTERS, "test")
SEQUENCES = torch.randint(LETTERS, (4, TOKENS + 1), generator=generator("small3d"))
LAYOUTS = [
    Layout(1, 1, 1),
    Layout(2, 1, 1, microbatch=2),
    Layout(1, 3, 1, microbatch=3),
    Layout(3, 1, 1, sequence_parallel=True, microbatch=4),
    Layout(2, 2, 1, sequence_parallel=True),
    Layout(2, 3, 1),
]


def by_torchs_layers(whole, sequences):
    """Return the summed loss and its gradients with torch's attention, norm and cross-entropy."""
    w = {name: weight.clone().requires_grad_() for name, weight in whole.items()}

    def heads(x):
        return x.unflatten(-1, (-1, small3d.HEAD)).transpose(1, 2)

    x = F.embedding(sequences[:, :-1], w["embedding"])
    for i in range(3):
        inside = F.rms_norm(x, (HIDDEN,), w[f"{i}.norm1"], eps=1e-5)
        q, k, v = (heads(F.linear(inside, w[f"{i}.{name}"].T)) for name in "qkv")
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.linear(mixed.transpose(1, 2).flatten(2), w[f"{i}.o"].T)
        inside = F.rms_norm(x, (HIDDEN,), w[f"{i}.norm2"], eps=1e-5)
        x = x + F.linear(F.gelu(F.linear(inside, w[f"{i}.a"].T)), w[f"{i}.b"].T)
    logits = F.linear(F.rms_norm(x, (HIDDEN,), w["norm"], eps=1e-5), w["embedding"])
    loss = F.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten(), reduction="sum")
    grads = torch.autograd.grad(loss, list(w.values()))
    return loss.detach(), dict(zip(w, grads, strict=True))


def one_replica(comm, layout, sequences):
    tp = comm.split(comm.rank // layout.t)
    pp = comm.split(comm.rank % layout.t)
    weights = small3d.shards(WHOLE, tp, pp)
    loss, grads = small3d.forward_backward(weights, sequences, tp, pp, layout)
    return weights, loss, grads


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_what_the_ranks_have_adds_up_to_torchs_gradients(layout):
    values = run(one_replica, layout.gpus, layout, SEQUENCES).values
    loss, grads = by_torchs_layers(WHOLE, SEQUENCES)
    copies = 1 if layout.sequence_parallel else layout.t
    torch.testing.assert_close(sum(value[1] for value in values) / copies, loss)
    for name, grad in grads.items():
        terms = [value[2][name] for value in values if name in value[2]]
        if small3d.kind(name) == "cut":
            total = torch.cat(terms, small3d.CUT[name.partition(".")[2]])
        else:
            total = sum(terms) / copies
        torch.testing.assert_close(total, grad, rtol=1e-12, atol=1e-13)


def test_shards_put_together_are_the_whole_and_share_no_memory():
    values = run(one_replica, 6, Layout(2, 3, 1), SEQUENCES).values
    parts = {name: [v[0][name] for v in values if name in v[0]] for name in WHOLE}
    for name, found in parts.items():
        short = name.partition(".")[2]
        if small3d.kind(name) == "cut":
            assert torch.equal(torch.cat(found, small3d.CUT[short]), WHOLE[name])
        else:
            assert all(torch.equal(one, WHOLE[name]) for one in found)
        assert len(found) == (4 if name == "embedding" else 2)

    def spoil(comm):
        for weight in small3d.shards(WHOLE, comm, comm).values():
            weight.zero_()
        return WHOLE["norm"]

    assert torch.equal(run(spoil, 1).values[0], WHOLE["norm"])


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_the_bytes_are_those_of_the_docstring(sequence_parallel):
    t, p = 2, 3
    layout = Layout(t, p, 1, sequence_parallel=sequence_parallel)
    ledger = run(one_replica, t * p, layout, SEQUENCES).ledger
    x = SEQUENCES[:, 1:].numel() * HIDDEN * 8
    for rank in range(t * p):
        stage = rank // t
        over_pp = ledger.ring_bytes("send", rank)
        assert over_pp == x // (t if sequence_parallel else 1) * ((stage > 0) + (stage < p - 1))
        assert ledger.ring_bytes(rank=rank) - over_pp == 4 * 2 * (t - 1) * x // t


def test_a_replica_without_sequences_has_no_loss_and_no_gradient():
    weights, loss, grads = run(one_replica, 1, Layout(1, 1, 1), SEQUENCES[:0]).values[0]
    assert loss == 0
    assert weights.keys() == grads.keys()
    assert not any(grad.any() for grad in grads.values())


def test_what_cannot_be_cut_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="6 heads can't be shared by 4 tensor-parallel ranks"):
        run(one_replica, 4, Layout(4, 1, 1), SEQUENCES)
    with pytest.raises(ValueError, match="3 layers are too few for 4 stages"):
        run(one_replica, 4, Layout(1, 4, 1), SEQUENCES)
    odd = Layout(3, 1, 1, sequence_parallel=True)
    with pytest.raises(ValueError, match="5 tokens can't be shared equally by 3 ranks"):
        run(one_replica, 3, odd, SEQUENCES[:, :-1])
