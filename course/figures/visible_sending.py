"""Draws visible_sending.svg: `python course/figures/visible_sending.py`."""

from pathlib import Path

from distlab.cost import compute_time_s, ring_time_s
from distlab.hardware import DGX_H100, H100_SXM, NCCL_NETWORK_LATENCY_S, with_latency
from distlab.plot import Picture, scaling_line

PARAMS, TOKENS, GPUS = 7.5e9, 16_384, 64
BUCKETS = (20, 100, 200, 300, 400, 500, 600, 700, 800)
NETWORK = with_latency(DGX_H100, node_s=0.0, network_s=NCCL_NETWORK_LATENCY_S).network


def visible_s(buckets: int) -> float:
    """Returns what backward can't hide, if it fills equal buckets at an even pace."""
    bucket_s = float(ring_time_s("all_reduce", GPUS, 2 * PARAMS / buckets, NETWORK))
    backward_s = float(compute_time_s(4 * PARAMS * TOKENS, H100_SXM, mfu=0.4))
    return bucket_s + max(0.0, (buckets - 1) * (bucket_s - backward_s / buckets))


def picture() -> Picture:
    """Returns the visible time against the number of buckets."""
    visible_ms = [1e3 * visible_s(buckets) for buckets in BUCKETS]
    return scaling_line(
        BUCKETS,
        {"visible": visible_ms},
        xlabel="buckets of equal size",
        ylabel="ms that backward can't hide",
        title="15 GB of gradients, 64 GPUs on a 400 Gb/s network",
    )


if __name__ == "__main__":
    picture().save(Path(__file__).with_suffix(".svg"))
