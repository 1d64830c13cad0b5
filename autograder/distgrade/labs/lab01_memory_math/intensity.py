"""A roofline, and what a training run takes.

`matmul_intensity(m, k, n, *, bits=16)`: FLOP of an m x k by k x n product for each byte, if
both matrices are read once and the result is written once. `attainable_flop_per_s(gpu,
flop_per_byte, *, link=None)`: the lesser of the dense peak and what the bytes allow, from the
GPU's memory or over a link, one way. `training_run(params, tokens, gpu, *, gpus, mfu,
price_per_gpu_hour)`: FLOP, GPU-hours, days and cost at 6 FLOP for a parameter and token; ValueError
for an mfu that is no share. Source: Williams, Waterman, Patterson 2009 (rooflines); Kaplan et al.
2020 (arXiv:2001.08361), section 2.1 (6ND).
Oracle: bits are counted matrix by matrix; the roof is the longer of two times for one byte; a run
is the time of one token on all GPUs, in exact fractions.
"""

from distgrade.exercise import Case, Close, also_right, slip, wrong

NAMES = ("matmul_intensity", "attainable_flop_per_s", "training_run")
FORBID = ()
TOLERANCE = Close(1e-12, "quotients are rounded, in any order of factors")
CREDIT = {"product": 1, "roofline": 1, "run": 2}
# Roofs of made-up GPUs: peak FLOP/s, memory's and link's bytes/s, then FLOP per byte.
CASES = (
    Case("three sizes", "product", ask="product", sizes=(24, 40, 56), bits=16),
    Case("one row", "product", ask="product", sizes=(1, 96, 72), bits=16),
    Case("eight bits", "product", ask="product", sizes=(64, 20, 36), bits=8),
    Case("four bits", "product", ask="product", sizes=(30, 44, 18), bits=4),
    Case("FP32", "product", ask="product", sizes=(17, 5, 29), bits=32),
    Case("memory sets the pace", "roofline", ask="memory", roof=(900e12, 3e12, 200e9, 120.0)),
    Case("the peak sets the pace", "roofline", ask="memory", roof=(900e12, 3e12, 200e9, 450.0)),
    Case("a link sets the pace", "roofline", ask="link", roof=(900e12, 3e12, 200e9, 800.0)),
    Case("not quite enough", "roofline", ask="link", roof=(900e12, 3e12, 200e9, 3_600.0)),
    Case("enough for a link", "roofline", ask="link", roof=(900e12, 3e12, 200e9, 7_000.0)),
    Case("one GPU", "run", ask="run", run=(3_000_000_000, 7_000_000_000, 5e14, 1, 0.4, 2.5)),
    Case("many GPUs", "run", ask="run", run=(70_000_000_000, 15_000_000, 3e14, 24, 0.35, 1.75)),
    Case("all of the peak", "run", ask="run", run=(9_000_000, 5_000_000_000, 9e14, 3, 1.0, 4.0)),
    Case("no MFU", "run", ask="run", run=(9_000, 500, 3e14, 4, 0.0, 2.0), expects=ValueError),
    Case("in percent", "run", ask="run", run=(9_000, 500, 3e14, 4, 40.0, 2.0), expects=ValueError),
    Case("over one", "run", ask="run", run=(9_000, 500, 3e14, 4, 1.25, 2.0), expects=ValueError),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other sizes: all of them some times as large.
    times = integers((3,), "intensity", case.name, seed, low=2, high=99) if seed else [1, 1, 1]
    one, two, three = map(int, times)
    if case.ask == "product":
        m, k, n = case.sizes
        return {"ask": "product", "sizes": [m, k * two, n * three], "bits": case.bits}
    if case.ask == "run":
        params, tokens, peak, gpus, mfu, price = case.run
        gpus = gpus * three if gpus > 1 else 1
        return {"ask": "run", "numbers": [params * one, tokens * two, peak, gpus, mfu, price]}
    peak, memory, link, flop_per_byte = case.roof
    return {"ask": case.ask, "numbers": [peak * one, memory * one, link * one, flop_per_byte]}


def observe(student, given):
    from distlab.hardware import Gpu, Link

    def plain(number):
        return number.item() if hasattr(number, "item") else number  # of numpy or torch

    def gpu_of(peak, memory_rate, link):
        return Gpu("a GPU", 2024, peak, 80e9, memory_rate, link)

    if given["ask"] == "product":
        return {
            "FLOP per byte": plain(student.matmul_intensity(*given["sizes"], bits=given["bits"]))
        }
    if given["ask"] == "run":
        params, tokens, peak, gpus, mfu, price = given["numbers"]
        gpu = gpu_of(peak, 2e12, Link("a link", 300e9))
        more = {"gpus": gpus, "mfu": mfu, "price_per_gpu_hour": price}
        run = student.training_run(params, tokens, gpu, **more)
        return {name: plain(run[name]) for name in ("flop", "gpu_hours", "days", "cost")}
    peak, memory_rate, link_rate, flop_per_byte = given["numbers"]
    link = Link("a link", link_rate)
    gpu = gpu_of(peak, memory_rate, Link("another link", 3.5 * link_rate))
    more = {"link": link} if given["ask"] == "link" else {}
    return {"FLOP/s": plain(student.attainable_flop_per_s(gpu, flop_per_byte, **more))}


def oracle(case, given):
    from fractions import Fraction

    if given["ask"] == "product":
        m, k, n = given["sizes"]
        bits = sum(rows * columns for rows, columns in ((m, k), (k, n), (m, n))) * given["bits"]
        steps = m * n * k  # each a multiplication and an addition
        return {"FLOP per byte": float(Fraction(steps + steps) / Fraction(bits, 8))}
    if given["ask"] == "run":
        params, tokens, peak, gpus, mfu, price = given["numbers"]
        flop = (2 + 2 + 2) * params * tokens  # forward, and backward's two products
        second = gpus * Fraction(peak) * Fraction(mfu)
        days = Fraction(flop) / second / 86_400
        hours = days * 24 * gpus
        cost = hours * Fraction(price)
        names = ("flop", "gpu_hours", "days", "cost")
        return dict(zip(names, map(float, (flop, hours, days, cost)), strict=True))
    peak, memory_rate, link_rate, flop_per_byte = map(Fraction, given["numbers"])
    rate = link_rate if given["ask"] == "link" else memory_rate
    byte_s = max(1 / rate, flop_per_byte / peak)
    return {"FLOP/s": float(flop_per_byte / byte_s)}


@also_right("numbers counted first, then bytes; the corner decides; times are kept in hours")
def by_corners():
    def matmul_intensity(m, k, n, *, bits=16):
        numbers = m * k + k * n + m * n
        return 2 * m * k * n / numbers / (bits / 8)

    def attainable_flop_per_s(gpu, flop_per_byte, *, link=None):
        rate = gpu.hbm_bytes_per_s
        if link is not None:
            rate = link.rate_bytes_per_s
        corner = gpu.peak_flop_per_s / rate
        if flop_per_byte < corner:
            return flop_per_byte * rate
        return gpu.peak_flop_per_s

    def training_run(params, tokens, gpu, *, gpus, mfu, price_per_gpu_hour):
        if mfu <= 0 or mfu > 1:
            raise ValueError("an MFU is a share of the peak")
        flop = 6 * params * tokens
        per_hour = gpu.peak_flop_per_s * mfu * 3_600
        gpu_hours = flop / per_hour
        days = gpu_hours / gpus / 24
        cost = gpu_hours * price_per_gpu_hour
        return {"flop": flop, "gpu_hours": gpu_hours, "days": days, "cost": cost}

    return matmul_intensity, attainable_flop_per_s, training_run


@also_right("reciprocals added up; the longer of two times; from days back to GPU-hours")
def by_times():
    def matmul_intensity(m, k, n, *, bits=16):
        return 16 / bits / (1 / m + 1 / k + 1 / n)

    def attainable_flop_per_s(gpu, flop_per_byte, *, link=None):
        rate = link.rate_bytes_per_s if link else gpu.hbm_bytes_per_s
        return 1 / max(1 / gpu.peak_flop_per_s, 1 / (flop_per_byte * rate))

    def training_run(params, tokens, gpu, *, gpus, mfu, price_per_gpu_hour):
        if not 0.0 < mfu <= 1.0:
            raise ValueError("between 0 and 1")
        flop = 6.0 * params * tokens
        seconds = flop / (gpus * gpu.peak_flop_per_s * mfu)
        days = seconds / 86_400
        run = {"flop": flop, "days": days}
        run["gpu_hours"] = days * 24 * gpus
        run["cost"] = price_per_gpu_hour * run["gpu_hours"]
        return run

    return matmul_intensity, attainable_flop_per_s, training_run


bits_for_bytes = slip(
    by_corners,
    "`bits` is in bits: a byte has eight of them.",
    ("(bits / 8)", "bits"),
)
always_two_bytes = slip(
    by_corners,
    "A number takes `bits` bits: two bytes only in BF16 and FP16.",
    ("(bits / 8)", "2"),
)
whole_bytes = slip(
    by_corners,
    "A number of four bits is half a byte: don't round it up.",
    ("(bits / 8)", "-(-bits // 8)"),
)
result_not_written = slip(
    by_corners,
    "The result is moved as well: m x n numbers are written.",
    ("m * k + k * n + m * n", "m * k + k * n"),
)
multiplications_only = slip(
    by_corners,
    "Each multiplication comes with an addition: 2mkn FLOP.",
    ("2 * m * k * n", "m * k * n"),
)
faster_of_both = slip(
    by_corners,
    "Left of the corner the bytes set the pace, right of it the peak: the lesser of both.",
    ("flop_per_byte < corner", "flop_per_byte > corner"),
)
both_ways = slip(
    by_corners,
    "A GPU sends at the link's one-way rate; both directions added are no rate of sending.",
    ("link.rate_bytes_per_s", "link.two_way_bytes_per_s"),
)
own_nvlink = slip(
    by_corners,
    "The link comes as an argument: the GPU's own NVLink is another one.",
    ("link.rate_bytes_per_s", "gpu.nvlink.rate_bytes_per_s"),
)
link_ignored = slip(
    by_corners,
    "With a link given, the bytes come over it, not from the GPU's memory.",
    ("rate = link.rate_bytes_per_s", "pass"),
)
sparse_peak = slip(
    by_corners,
    "peak_flop_per_s is the dense rate already: training has no sparsity to double it.",
    ("corner = gpu.peak_flop_per_s", "corner = 2 * gpu.peak_flop_per_s"),
    ("return gpu.peak_flop_per_s", "return 2 * gpu.peak_flop_per_s"),
    ("per_hour = gpu.peak_flop_per_s", "per_hour = 2 * gpu.peak_flop_per_s"),
)
sparse_roof = slip(
    by_corners,
    "The roof is peak_flop_per_s as it is: the dense rate, not the sparse one.",
    ("corner = gpu.peak_flop_per_s", "corner = 2 * gpu.peak_flop_per_s"),
    ("return gpu.peak_flop_per_s", "return 2 * gpu.peak_flop_per_s"),
)
no_overlap = slip(
    by_times,
    "Computing and moving overlap: the longer of the two times counts, not their sum.",
    (
        "max(1 / gpu.peak_flop_per_s, 1 / (flop_per_byte * rate))",
        "(1 / gpu.peak_flop_per_s + 1 / (flop_per_byte * rate))",
    ),
)
mfu_forgotten = slip(
    by_corners,
    "A GPU reaches only mfu of its peak: the run takes longer.",
    ("gpu.peak_flop_per_s * mfu * 3_600", "gpu.peak_flop_per_s * 3_600"),
)
mfu_upside_down = slip(
    by_corners,
    "The lower the MFU, the longer the run: mfu belongs under the fraction.",
    ("gpu.peak_flop_per_s * mfu * 3_600", "gpu.peak_flop_per_s / mfu * 3_600"),
)
in_seconds = slip(
    by_corners,
    "A rate per second gives seconds: an hour has 3,600 of them.",
    ("* 3_600", ""),
)
in_minutes = slip(
    by_corners,
    "An hour has 3,600 seconds: these are GPU-minutes.",
    ("* 3_600", "* 60"),
)
days_of_one_gpu = slip(
    by_corners,
    "All GPUs work at once: the days are the GPU-hours of one of them.",
    ("gpu_hours / gpus / 24", "gpu_hours / 24"),
)
cost_of_one_gpu = slip(
    by_corners,
    "Every GPU-hour is paid, of all GPUs: don't divide the cost among them.",
    ("gpu_hours * price", "gpu_hours / gpus * price"),
)
paid_again = slip(
    by_corners,
    "GPU-hours are those of all GPUs already: don't multiply the cost by them again.",
    ("gpu_hours * price", "gpu_hours * gpus * price"),
)
hours_of_one_gpu = slip(
    by_corners,
    "gpu_hours are those of all GPUs together: more GPUs need fewer days, not fewer GPU-hours.",
    (
        '{"flop": flop, "gpu_hours": gpu_hours, "days"',
        '{"flop": flop, "gpu_hours": gpu_hours / gpus, "days"',
    ),
)
forward_only = slip(
    by_corners,
    "2 FLOP for a parameter and token is forward alone; backward takes 4 more.",
    ("6 * params", "2 * params"),
)
with_recompute = slip(
    by_corners,
    "An MFU counts the model's own 6 FLOP for a parameter and token, not what is run again.",
    ("6 * params", "8 * params"),
)
in_percent = slip(
    by_corners,
    "An MFU of 40 is no share: over 1, or not over 0, raise a ValueError.",
    ("mfu <= 0 or mfu > 1", "mfu <= 0"),
)


@wrong("The corner itself is not what a GPU reaches: FLOP per byte times bytes per second is.")
def corner_returned():
    def matmul_intensity(m, k, n, *, bits=16):
        return 2 * m * k * n / ((m * k + k * n + m * n) * bits / 8)

    def attainable_flop_per_s(gpu, flop_per_byte, *, link=None):
        rate = gpu.hbm_bytes_per_s if link is None else link.rate_bytes_per_s
        return min(flop_per_byte, gpu.peak_flop_per_s / rate)

    def training_run(params, tokens, gpu, *, gpus, mfu, price_per_gpu_hour):
        if not 0 < mfu <= 1:
            raise ValueError("a share")
        flop = 6 * params * tokens
        hours = flop / (mfu * gpu.peak_flop_per_s) / 3600
        cost = hours * price_per_gpu_hour
        return {"flop": flop, "gpu_hours": hours, "days": hours / gpus / 24, "cost": cost}

    return matmul_intensity, attainable_flop_per_s, training_run


_EITHER = "min and max take their arguments in any order"
EQUIVALENT = {
    "attainable_flop_per_s: min(gpu.peak_flop_per_s, flop_per_byte * rate) -> "
    "min(flop_per_byte * rate, gpu.peak_flop_per_s)": _EITHER,
    "by_times attainable_flop_per_s: "
    "max(1 / gpu.peak_flop_per_s, 1 / (flop_per_byte * rate)) -> "
    "max(1 / (flop_per_byte * rate), 1 / gpu.peak_flop_per_s)": _EITHER,
    "by_corners attainable_flop_per_s: flop_per_byte < corner -> flop_per_byte <= corner": (
        "at the corner both sides have the same value"
    ),
}
