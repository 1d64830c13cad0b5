"""Machines: figures that know their source, and that agree with arithmetic and with each other."""

import copy
import pickle
from dataclasses import replace

import pytest

from distlab import hardware as hw
from distlab.hardware import Cluster, Link, with_latency


def facts():
    for gpu in hw.GPUS:
        yield f"{gpu.name}: peak", gpu.peak_flop_per_s
        yield f"{gpu.name}: memory", gpu.memory_bytes
        yield f"{gpu.name}: HBM", gpu.hbm_bytes_per_s
        yield f"{gpu.name}: NVLink", gpu.nvlink.rate_bytes_per_s
    for cluster in hw.CLUSTERS:
        yield f"{cluster.name}: network", cluster.network.rate_bytes_per_s
    yield "NCCL, NVLink", hw.NCCL_NVLINK_LATENCY_S
    yield "NCCL, network", hw.NCCL_NETWORK_LATENCY_S


@pytest.mark.parametrize(("name", "fact"), list(facts()), ids=[name for name, _ in facts()])
def test_every_figure_has_a_unit_a_source_and_a_date(name, fact):
    assert fact > 0
    assert fact.unit
    assert len(fact.source) > 10
    assert fact.date.isdigit()
    assert 2017 <= int(fact.date) <= 2026
    assert fact.basis in ("read", "arithmetic", "recalled")
    assert fact.source in fact.describe()


def test_what_was_only_recalled_is_known_by_name():
    # Shrink this list by reading the source; add to it only with a reason.
    recalled = [name for name, fact in facts() if fact.basis == "recalled"]
    assert recalled == ["GB200 NVL72: network"]


def test_the_lectures_hardware_table():
    # lecture facts 1.12: dense rates, memory, HBM, NVLink as data sheets print it (both ways).
    rows = {
        hw.A100_SXM_80GB: (312e12, 80e9, 2.04e12, 600e9),
        hw.H100_SXM: (989e12, 80e9, 3.35e12, 900e9),
        hw.B200_SXM: (2250e12, 180e9, 8e12, 1800e9),
    }
    for gpu, (peak, memory, hbm, two_way) in rows.items():
        assert gpu.peak_flop_per_s == peak
        assert gpu.memory_bytes == memory
        assert gpu.hbm_bytes_per_s == pytest.approx(hbm, rel=0.001)  # 2.039 is printed as 2.04
        assert gpu.nvlink.two_way_bytes_per_s == two_way
        assert gpu.nvlink.rate_bytes_per_s == two_way / 2
    # 1.13: the lecture's 1.6 TB/s is the A100 with 40 GB.
    assert round(hw.A100_SXM_40GB.hbm_bytes_per_s / 1e12, 1) == 1.6
    assert round(hw.A100_SXM_80GB.hbm_bytes_per_s / 1e12, 1) == 2.0


@pytest.mark.parametrize(
    ("gpu", "links", "link_bytes_per_s"),
    [
        (hw.V100_SXM2_32GB, 6, 25e9),
        (hw.A100_SXM_40GB, 12, 25e9),
        (hw.A100_SXM_80GB, 12, 25e9),
        (hw.H100_SXM, 18, 25e9),
        (hw.H200_SXM, 18, 25e9),
        (hw.B200_SXM, 18, 50e9),
        (hw.GB200, 18, 50e9),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_nvlink_is_its_links_added_one_way(gpu, links, link_bytes_per_s):
    assert gpu.nvlink.rate_bytes_per_s == links * link_bytes_per_s


@pytest.mark.parametrize(
    ("gpu", "tensor_cores", "multiply_adds", "clock_hz"),
    [
        (hw.V100_SXM2_32GB, 640, 64, 1.53e9),
        (hw.A100_SXM_80GB, 432, 256, 1.41e9),
        (hw.H100_SXM, 528, 512, 1.83e9),
        (hw.B200_SXM, 592, 1024, 1.86e9),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_peak_is_what_the_tensor_cores_do_at_their_clock(
    gpu, tensor_cores, multiply_adds, clock_hz
):
    flop_per_s = tensor_cores * multiply_adds * 2 * clock_hz
    assert flop_per_s == pytest.approx(gpu.peak_flop_per_s, rel=0.003)


@pytest.mark.parametrize(
    ("gpu", "bus_bits", "transfers_per_s", "within"),
    [
        (hw.V100_SXM2_32GB, 4096, 1.754e9, 0.003),
        (hw.A100_SXM_40GB, 5120, 2.43e9, 0.001),
        (hw.A100_SXM_80GB, 5120, 3.186e9, 0.001),
        (hw.H100_SXM, 5120, 5.23e9, 0.001),
        (hw.H200_SXM, 6144, 6.25e9, 0.001),
        (hw.B200_SXM, 8192, 8e9, 0.03),  # "up to 8 TB/s" is rounded down from 8.2
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_memory_bandwidth_is_bus_width_times_rate(gpu, bus_bits, transfers_per_s, within):
    assert bus_bits / 8 * transfers_per_s == pytest.approx(gpu.hbm_bytes_per_s, rel=within)


def test_dense_is_half_of_what_data_sheets_print():
    for gpu, sparse in ((hw.A100_SXM_80GB, 624), (hw.H100_SXM, 1979), (hw.B200_SXM, 4500)):
        assert abs(gpu.peak_flop_per_s / 1e12 - sparse / 2) <= 0.5


def test_what_is_sold_by_the_node_is_shared_by_its_gpus():
    assert hw.DGX_H100.network.rate_bytes_per_s == 50e9  # 400 Gb/s, lecture facts 2.4 and W20
    assert hw.DGX_A100.network.rate_bytes_per_s == 25e9
    assert round(13.4e12 / 72 / 1e9) == hw.GB200.memory_bytes / 1e9
    # Four 100 Gb/s adapters for eight V100s: half an adapter each.
    assert hw.DGX_1_V100.network.rate_bytes_per_s == 4 * 100e9 / 8 / 8


def test_ranks_fill_nodes_in_order_and_links_follow():
    cluster = hw.DGX_H100
    assert [cluster.node(rank) for rank in (0, 7, 8, 15, 16)] == [0, 0, 1, 1, 2]
    assert cluster.link(0, 7) is cluster.gpu.nvlink
    assert cluster.link(7, 8) is cluster.network
    assert cluster.ring_links(range(8)) == (cluster.node_link,)
    assert cluster.ring_links(range(16)) == (cluster.node_link, cluster.network)
    assert cluster.ring_links([0, 8, 16]) == (cluster.network,)
    assert cluster.ring_links([5]) == ()
    assert hw.GB200_NVL72.link(0, 71) is hw.GB200.nvlink


def test_latency_is_zero_unless_asked_for():
    assert all(c.network.latency_s == 0 == c.node_link.latency_s for c in hw.CLUSTERS)
    slow = with_latency(hw.DGX_H100, node_s=1e-6, network_s=1e-5)
    assert (slow.node_link.latency_s, slow.network.latency_s) == (1e-6, 1e-5)
    assert slow.node_link.rate_bytes_per_s == 450e9
    assert slow.gpu is hw.DGX_H100.gpu


def test_what_no_machine_has_is_refused():
    good = Link("link", 1.0)
    with pytest.raises(ValueError, match="rate must be positive"):
        Link("broken", 0)
    with pytest.raises(ValueError, match="can't be negative"):
        Link("prophetic", 1.0, latency_s=-1)
    with pytest.raises(ValueError, match="at least one GPU"):
        Cluster("empty", hw.H100_SXM, 0, good)
    with pytest.raises(ValueError, match="share of the peak"):
        replace(hw.DGX_H100, mfu=40)


def test_figures_survive_copies_as_ranks_get_them():
    import cloudpickle

    for copied in (
        copy.deepcopy(hw.DGX_H100),
        pickle.loads(pickle.dumps(hw.DGX_H100)),
        cloudpickle.loads(cloudpickle.dumps(hw.DGX_H100)),
    ):
        assert copied == hw.DGX_H100
        assert copied.gpu.memory_bytes.source == hw.H100_SXM.memory_bytes.source
