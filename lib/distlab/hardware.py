"""GPUs, links and clusters: the figures of real machines, each with its source and date.

A figure is a number that knows where it comes from: `H100_SXM.memory_bytes` is 80e9 in any formula,
and `H100_SXM.memory_bytes.source` says who says so. Three rules hold for all of them:

- peak rates are for *dense* matrices in BF16 (FP16 on the V100, which has no BF16); data sheets
  like to print the sparse rate, twice as high;
- link rates are per GPU and *one way*; data sheets print both directions added (`two_way_...`);
- 1 GB = 1e9 bytes. Data sheets do not say which GB they mean; we read it as the smaller one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

Basis = Literal["read", "arithmetic", "recalled"]


class Fact(float):
    """A number with its unit, its source, the source's date, and how far it was checked.

    `basis` is "read" (seen in the named source or a page that quotes it), "arithmetic" (follows
    from figures of the source by a calculation that a test repeats), or "recalled" (neither: do
    not show it as a fact).

    Example: `Fact(80e9, "B", "NVIDIA H100 data sheet", "2022") / 2 == 40e9`.
    """

    unit: str
    source: str
    date: str
    basis: Basis

    def __new__(
        cls, value: float, unit: str = "", source: str = "", date: str = "", basis: Basis = "read"
    ):
        """Returns the number; everything but the value describes it."""
        self = super().__new__(cls, value)
        self.unit, self.source, self.date, self.basis = unit, source, date, basis
        return self

    def describe(self) -> str:
        """Returns the figure as a line for a table of sources: `"8e+10 B (... 2022, read)"`."""
        return f"{float(self):g} {self.unit} ({self.source}, {self.date}, {self.basis})"


@dataclass(frozen=True)
class Link:
    """What one GPU can send over: bytes per second one way, and the latency of a message.

    Cost: a message of S bytes takes `latency_s + S / rate_bytes_per_s` (`distlab.cost`).
    The links below have no latency, as in the lecture's numbers; `with_latency` gives them one.
    """

    name: str
    rate_bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self):
        if self.rate_bytes_per_s <= 0:
            raise ValueError(f"{self.name}: a link's rate must be positive.")
        if self.latency_s < 0:
            raise ValueError(f"{self.name}: a link's latency can't be negative.")

    @property
    def two_way_bytes_per_s(self) -> float:
        """Both directions added, as data sheets print it: NVLink's 900 GB/s on an H100."""
        return 2 * self.rate_bytes_per_s


@dataclass(frozen=True)
class Gpu:
    """One accelerator: peak dense rate, memory, and how fast its memory and its links are."""

    name: str
    year: int
    peak_flop_per_s: float
    memory_bytes: float
    hbm_bytes_per_s: float
    nvlink: Link


@dataclass(frozen=True)
class Cluster:
    """Nodes of equal GPUs: a fast link inside a node, a network link per GPU between nodes.

    Ranks fill the nodes in order: rank r sits in node `r // gpus_per_node`. `mfu` is the share of
    the peak at which work is computed, between 0 and 1.

    Example: `DGX_H100.link(0, 7).name == "NVLink 4"`.
    """

    name: str
    gpu: Gpu
    gpus_per_node: int
    network: Link
    node_link: Link | None = None  # the GPU's own NVLink unless given
    mfu: float = 1.0

    def __post_init__(self):
        if self.gpus_per_node < 1:
            raise ValueError(f"{self.name}: a node holds at least one GPU.")
        if not 0 < self.mfu <= 1:
            raise ValueError(f"{self.name}: mfu is a share of the peak, between 0 and 1.")
        if self.node_link is None:
            object.__setattr__(self, "node_link", self.gpu.nvlink)

    def node(self, rank: int) -> int:
        """Returns the node that a rank sits in, counted from 0."""
        return rank // self.gpus_per_node

    def link(self, a: int, b: int) -> Link:
        """Returns the link between two ranks: inside a node, or the network."""
        return self.node_link if self.node(a) == self.node(b) else self.network

    def ring_links(self, ranks: Sequence[int]) -> tuple[Link, ...]:
        """Returns the different links on a ring that visits the ranks in this order.

        Example: `len(DGX_H100.ring_links(range(16))) == 2`: two of the sixteen hops leave the node.
        """
        closed = [*ranks, *ranks[:1]] if len(ranks) > 1 else []
        return tuple(dict.fromkeys(self.link(a, b) for a, b in pairwise(closed)))


def with_latency(cluster: Cluster, *, node_s: float, network_s: float) -> Cluster:
    """Returns the cluster with a latency per message on each kind of link.

    NCCL's own cost model gives a size: `NCCL_NVLINK_LATENCY_S`, `NCCL_NETWORK_LATENCY_S`.
    """
    return replace(
        cluster,
        node_link=replace(cluster.node_link, latency_s=node_s),
        network=replace(cluster.network, latency_s=network_s),
    )


def _one_way(name: str, two_way: float, source: str, date: str) -> Link:
    """Returns the link whose two-way rate a data sheet prints."""
    return Link(name, Fact(two_way / 2, "B/s one way", source, date, "arithmetic"))


def _network(gigabits_per_s: float, source: str, date: str, basis: Basis = "read") -> Link:
    """Returns one GPU's share of its node's adapters, sold in bits: 400 Gb/s are 50 GB/s."""
    rate = Fact(gigabits_per_s * 1e9 / 8, "B/s one way", source, date, basis)
    return Link(f"network, {gigabits_per_s:g} Gb/s per GPU", rate)


_V100 = "NVIDIA Tesla V100 whitepaper, quoted by maosong.website"
_A100 = "NVIDIA A100 data sheet, quoted by glennklockwood.com"
_H100 = "NVIDIA H100 data sheet, quoted by acecloud.ai"
_HALF_OF_SPARSE = "half of the data sheet's 1,979e12 with sparsity"
_H200 = "NVIDIA H200 data sheet, quoted by acecloud.ai"
_B200 = "NVIDIA Blackwell data sheet, quoted by glennklockwood.com"

V100_SXM2_32GB = Gpu(
    "V100 SXM2 32 GB",
    2018,  # the 32 GB version; 16 GB came in 2017
    Fact(125e12, "FLOP/s dense FP16", _V100, "2017"),
    Fact(32e9, "B", "pcper.com on DGX-2: 512 GB in 16 GPUs", "2018"),
    Fact(900e9, "B/s", _V100, "2017", "arithmetic"),
    _one_way("NVLink 2", 300e9, "NVIDIA, NVLink page: six links of 25 GB/s each way", "2017"),
)
A100_SXM_40GB = Gpu(
    "A100 SXM 40 GB",
    2020,
    Fact(312e12, "FLOP/s dense BF16", _A100, "2020"),
    Fact(40e9, "B", _A100, "2020"),
    Fact(1.555e12, "B/s", _A100, "2020"),
    _one_way("NVLink 3", 600e9, _A100, "2020"),
)
A100_SXM_80GB = Gpu(
    "A100 SXM 80 GB",
    2020,
    Fact(312e12, "FLOP/s dense BF16", _A100, "2020"),
    Fact(80e9, "B", _A100, "2020"),
    Fact(2.039e12, "B/s", _A100, "2020"),
    _one_way("NVLink 3", 600e9, _A100, "2020"),
)
H100_SXM = Gpu(
    "H100 SXM 80 GB",
    2022,
    Fact(
        989e12,
        "FLOP/s dense BF16",
        "half of the data sheet's sparse 1,979e12",
        "2022",
        "arithmetic",
    ),
    Fact(80e9, "B", _H100, "2022"),
    Fact(3.35e12, "B/s", _H100, "2022"),
    _one_way("NVLink 4", 900e9, _H100, "2022"),
)
H200_SXM = Gpu(
    "H200 SXM 141 GB",
    2024,
    Fact(
        989e12,
        "FLOP/s dense BF16",
        "half of the data sheet's sparse 1,979e12",
        "2023",
        "arithmetic",
    ),
    Fact(141e9, "B", _H200, "2023"),
    Fact(4.8e12, "B/s", _H200, "2023"),
    _one_way("NVLink 4", 900e9, _H200, "2023"),
)
B200_SXM = Gpu(
    "B200 SXM 180 GB",
    2024,
    Fact(2.25e15, "FLOP/s dense BF16", _B200, "2024"),
    Fact(180e9, "B", "DGX B200 data sheet: 1,440 GB in eight GPUs (of 192 GB each)", "2024"),
    Fact(8e12, "B/s", _B200, "2024"),
    _one_way("NVLink 5", 1800e9, _B200, "2024"),
)
GB200 = Gpu(
    "GB200, one GPU",
    2024,
    Fact(2.5e15, "FLOP/s dense BF16", _B200 + ", at 1,200 W", "2024"),
    Fact(186e9, "B", "NVIDIA, quoted by aiwiki.ai: 13.4 TB in 72 GPUs", "2024", "arithmetic"),
    Fact(8e12, "B/s", _B200, "2024"),
    _one_way("NVLink 5", 1800e9, _B200, "2024"),
)
GPUS = (V100_SXM2_32GB, A100_SXM_40GB, A100_SXM_80GB, H100_SXM, H200_SXM, B200_SXM, GB200)

DGX_1_V100 = Cluster(  # its NVLinks form a mesh: two GPUs share one or two of the six, not all
    "DGX-1 V100",
    V100_SXM2_32GB,
    8,
    _network(50, "DGX-1 whitepaper: four 100 Gb/s adapters for eight GPUs", "2017", "arithmetic"),
)
DGX_A100 = Cluster(
    "DGX A100",
    A100_SXM_80GB,
    8,
    _network(200, "DGX A100 documentation, quoted by certstopics.com: eight adapters", "2020"),
)
DGX_H100 = Cluster(
    "DGX H100",
    H100_SXM,
    8,
    _network(400, "Llama 3 paper: 400 Gb/s between GPUs, eight to a node", "2024"),
)
DGX_H200 = Cluster(
    "DGX H200",
    H200_SXM,
    8,
    _network(400, "MLPerf Inference 4.1, NVIDIA's H200 systems: 400 Gb/s adapters", "2024"),
)
DGX_B200 = Cluster(
    "DGX B200",
    B200_SXM,
    8,
    _network(400, "MLPerf Inference 6.0, Nebius B200: eight adapters of 400 Gb/s", "2026"),
)
GB200_NVL72 = Cluster(
    "GB200 NVL72",
    GB200,
    72,
    _network(400, "NVIDIA GB200 NVL72: one adapter of 400 Gb/s per GPU", "2024", "recalled"),
)
CLUSTERS = (DGX_1_V100, DGX_A100, DGX_H100, DGX_H200, DGX_B200, GB200_NVL72)

_NCCL = "NVIDIA/nccl src/graph/tuning.cc at 01afd20: hwLat, ring, Simple protocol"
NCCL_NVLINK_LATENCY_S = Fact(3.4e-6, "s per message", _NCCL, "2020")
NCCL_NETWORK_LATENCY_S = Fact(9.6e-6, "s per message", _NCCL, "2020")
