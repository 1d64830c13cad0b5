"""A published row's step time follows from its own unit, whatever the cost model says."""

import pytest

from distlab.planner.published import runs


def test_a_time_is_the_time():
    run = runs("Korthikanti 2022, Table 5")[0]
    assert run.step_time_s == run.measured == 1.42


def test_flop_per_second_give_the_time_by_the_papers_own_count():
    for run in runs("Narayanan 2021, Table 1"):
        model, job = run.job.model, run.job
        layers, h, s = model.layers, model.hidden, job.seq
        # Equation 3 of Narayanan et al. (2021): all FLOP of a step with full recomputation.
        logits = model.vocab / (16 * layers * h)
        flop = 96 * job.batch * s * layers * h**2 * (1 + s / (6 * h) + logits)
        time_s = flop / (job.gpus * run.measured * 1e12)
        assert run.step_time_s == pytest.approx(time_s, rel=1e-3)  # exact but for the logits' share


def test_tokens_per_second_give_the_time_of_the_batch():
    for run in runs("torchtitan"):
        tokens = run.job.batch * run.job.seq
        assert run.step_time_s == pytest.approx(tokens / run.measured / run.job.gpus, rel=1e-12)
