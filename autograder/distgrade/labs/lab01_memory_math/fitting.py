"""Time of an all-reduce, and what fits: `all_reduce_time_s`, `gpus_needed`, `max_microbatch`.

`all_reduce_time_s(size_bytes, n, link)`: on a ring of n ranks, 2 (n-1) steps, each one message of
size/n bytes: latency plus bytes over the link's one-way rate. `gpus_needed(state_bytes,
memory_bytes, *, reserve_bytes=0)`: the fewest GPUs whose shares fit beside the reserve.
`max_microbatch(state_bytes, sequence_bytes, memory_bytes)`: the most sequences that fit beside the
state. ValueError where nothing fits. Units: bytes, seconds. Source: Thakur et al. 2005, section 3.
Oracle: the ring is walked message by message; GPUs and sequences are counted up until they fit.
"""

from distgrade.exercise import Case, Close, also_right, wrong

NAMES = ("all_reduce_time_s", "gpus_needed", "max_microbatch")
FORBID = ("distlab.cost.ring_time_s", "distlab.cost.collective_time_s")
TOLERANCE = Close(1e-12, "(n-1)/n is rounded, in any order of factors; counts are exact")
CREDIT = {"time": 2, "GPUs": 1, "microbatch": 1}
CASES = (
    Case("15 GB on NVLink", "time", ask="time", numbers=(15_000_000_000, 64, 450e9, 0.0)),
    Case("three ranks and a latency", "time", ask="time", numbers=(9_000, 3, 500.0, 0.25)),
    Case("one rank", "time", ask="time", numbers=(9_000, 1, 500.0, 0.25)),
    Case("next to nothing to send", "time", ask="time", numbers=(1, 5, 8e9, 1e-5)),
    Case("exact fit", "GPUs", ask="gpus", numbers=(1_120, 80, 0)),
    Case("one byte too many", "GPUs", ask="gpus", numbers=(1_121, 80, 0)),
    Case("beside a reserve", "GPUs", ask="gpus", numbers=(1_120, 80, 12)),
    Case("exact fit beside a reserve", "GPUs", ask="gpus", numbers=(1_020, 80, 12)),
    Case("one byte of room", "GPUs", ask="gpus", numbers=(5, 81, 80)),
    Case("all reserved", "GPUs", ask="gpus", numbers=(5, 80, 80), expects=ValueError),
    Case("sequences", "microbatch", ask="microbatch", numbers=(31, 9, 80)),
    Case("sequences that fit exactly", "microbatch", ask="microbatch", numbers=(31, 9, 85)),
    Case("one sequence exactly", "microbatch", ask="microbatch", numbers=(31, 49, 80)),
    Case(
        "no room for one", "microbatch", ask="microbatch", numbers=(31, 50, 80), expects=ValueError
    ),
    Case(
        "no room for the state",
        "microbatch",
        ask="microbatch",
        numbers=(90, 7, 80),
        expects=ValueError,
    ),
)


def given(case, seed):
    from distlab.seeds import integers

    # Fresh seeds grade other sizes: all of them some times as large.
    times = int(integers((1,), "fitting", case.name, seed, low=2, high=99)[0]) if seed else 1
    numbers = list(case.numbers)
    if case.ask == "time":
        numbers[0] *= times
    else:
        numbers = [number * times for number in numbers]
    return {"ask": case.ask, "numbers": numbers}


def observe(student, given):
    from distlab.hardware import Link

    numbers = given["numbers"]
    match given["ask"]:
        case "time":
            size_bytes, n, rate, latency_s = numbers
            link = Link("a link", rate, latency_s=latency_s)
            answer = student.all_reduce_time_s(size_bytes, n, link)
        case "gpus":
            state_bytes, memory_bytes, reserve_bytes = numbers
            more = {"reserve_bytes": reserve_bytes} if reserve_bytes else {}
            answer = student.gpus_needed(state_bytes, memory_bytes, **more)
        case "microbatch":
            answer = student.max_microbatch(*numbers)
    if hasattr(answer, "item"):  # a number of numpy or torch
        answer = answer.item()
    if given["ask"] != "time" and type(answer) is float and answer.is_integer():
        answer = int(answer)
    return {given["ask"]: answer}


def oracle(case, given):
    from fractions import Fraction

    numbers = given["numbers"]
    if given["ask"] == "time":
        size_bytes, n, rate, latency_s = numbers
        time_s = Fraction(0)
        for _ in ("add up", "share"):
            for _neighbour in range(1, n):
                time_s += Fraction(latency_s) + Fraction(size_bytes, n) / Fraction(rate)
        return {"time": float(time_s)}
    if given["ask"] == "gpus":
        state_bytes, memory_bytes, reserve_bytes = numbers
        gpus = 1
        while Fraction(state_bytes, gpus) + reserve_bytes > memory_bytes:
            gpus += 1
        return {"gpus": gpus}
    state_bytes, sequence_bytes, memory_bytes = numbers
    sequences = 0
    while state_bytes + (sequences + 1) * sequence_bytes <= memory_bytes:
        sequences += 1
    return {"microbatch": sequences}


@wrong("A chunk goes round in n - 1 steps, not n: it starts where it ends.")
def n_steps():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = link.latency_s + size_bytes / n / link.rate_bytes_per_s
        return 2 * n * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes - reserve_bytes
        if room_bytes <= 0:
            raise ValueError("the reserve leaves no room")
        return -(-state_bytes // room_bytes)

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = (memory_bytes - state_bytes) // sequence_bytes
        if sequences < 1:
            raise ValueError("not even one sequence fits")
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@wrong("Once round adds up; a second time round hands out the sums: 2 (n - 1) steps.")
def once_round():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = link.latency_s + size_bytes / n / link.rate_bytes_per_s
        return (n - 1) * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes - reserve_bytes
        if room_bytes <= 0:
            raise ValueError("the reserve leaves no room")
        return -(-state_bytes // room_bytes)

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = (memory_bytes - state_bytes) // sequence_bytes
        if sequences < 1:
            raise ValueError("not even one sequence fits")
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@wrong("A step sends one of n chunks, not the whole tensor.")
def whole_tensor_each_step():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = link.latency_s + size_bytes / link.rate_bytes_per_s
        return 2 * (n - 1) * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes - reserve_bytes
        if room_bytes <= 0:
            raise ValueError("the reserve leaves no room")
        return -(-state_bytes // room_bytes)

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = (memory_bytes - state_bytes) // sequence_bytes
        if sequences < 1:
            raise ValueError("not even one sequence fits")
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@wrong("Each of the 2 (n - 1) messages has its latency.")
def one_latency():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = size_bytes / n / link.rate_bytes_per_s
        return link.latency_s * (n > 1) + 2 * (n - 1) * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes - reserve_bytes
        if room_bytes <= 0:
            raise ValueError("the reserve leaves no room")
        return -(-state_bytes // room_bytes)

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = (memory_bytes - state_bytes) // sequence_bytes
        if sequences < 1:
            raise ValueError("not even one sequence fits")
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@wrong("The latency of the messages is missing: with small chunks it is nearly all.")
def no_latency():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = size_bytes / n / link.rate_bytes_per_s
        return 2 * (n - 1) * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes - reserve_bytes
        if room_bytes <= 0:
            raise ValueError("the reserve leaves no room")
        return -(-state_bytes // room_bytes)

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = (memory_bytes - state_bytes) // sequence_bytes
        if sequences < 1:
            raise ValueError("not even one sequence fits")
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@wrong("A rank sends at the one-way rate: both directions added are no rate of sending.")
def both_ways():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = link.latency_s + size_bytes / n / link.two_way_bytes_per_s
        return 2 * (n - 1) * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes - reserve_bytes
        if room_bytes <= 0:
            raise ValueError("the reserve leaves no room")
        return -(-state_bytes // room_bytes)

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = (memory_bytes - state_bytes) // sequence_bytes
        if sequences < 1:
            raise ValueError("not even one sequence fits")
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@wrong("An exact fit fits: round up, don't add one.")
def one_gpu_more():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = link.latency_s + size_bytes / n / link.rate_bytes_per_s
        return 2 * (n - 1) * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes - reserve_bytes
        if room_bytes <= 0:
            raise ValueError("the reserve leaves no room")
        return state_bytes // room_bytes + 1

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = (memory_bytes - state_bytes) // sequence_bytes
        if sequences < 1:
            raise ValueError("not even one sequence fits")
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@wrong("The last GPU may be filled in part, but it is needed: round up.")
def rounded_down():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = link.latency_s + size_bytes / n / link.rate_bytes_per_s
        return 2 * (n - 1) * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes - reserve_bytes
        if room_bytes <= 0:
            raise ValueError("the reserve leaves no room")
        return state_bytes // room_bytes

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = (memory_bytes - state_bytes) // sequence_bytes
        if sequences < 1:
            raise ValueError("not even one sequence fits")
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@wrong("Every GPU keeps reserve_bytes free: only what is left holds state.")
def no_reserve():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = link.latency_s + size_bytes / n / link.rate_bytes_per_s
        return 2 * (n - 1) * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes
        if memory_bytes <= reserve_bytes:
            raise ValueError("the reserve leaves no room")
        return -(-state_bytes // room_bytes)

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = (memory_bytes - state_bytes) // sequence_bytes
        if sequences < 1:
            raise ValueError("not even one sequence fits")
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@wrong("Every GPU keeps the reserve, not only one of them.")
def reserve_once():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = link.latency_s + size_bytes / n / link.rate_bytes_per_s
        return 2 * (n - 1) * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes - reserve_bytes
        if room_bytes <= 0:
            raise ValueError("the reserve leaves no room")
        return -(-(state_bytes + reserve_bytes) // memory_bytes)

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = (memory_bytes - state_bytes) // sequence_bytes
        if sequences < 1:
            raise ValueError("not even one sequence fits")
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@wrong("Where the reserve leaves no room, no number of GPUs is right: raise a ValueError.")
def no_gpus():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = link.latency_s + size_bytes / n / link.rate_bytes_per_s
        return 2 * (n - 1) * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes - reserve_bytes
        if room_bytes <= 0:
            return 0
        return -(-state_bytes // room_bytes)

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = (memory_bytes - state_bytes) // sequence_bytes
        if sequences < 1:
            raise ValueError("not even one sequence fits")
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@wrong("The state is in the memory already: sequences share what it leaves.")
def states_ignored():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = link.latency_s + size_bytes / n / link.rate_bytes_per_s
        return 2 * (n - 1) * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes - reserve_bytes
        if room_bytes <= 0:
            raise ValueError("the reserve leaves no room")
        return -(-state_bytes // room_bytes)

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = memory_bytes // sequence_bytes
        if sequences < 1 or state_bytes + sequence_bytes > memory_bytes:
            raise ValueError("not even one sequence fits")
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@wrong("Sequences that fill the memory exactly do fit.")
def one_sequence_less():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = link.latency_s + size_bytes / n / link.rate_bytes_per_s
        return 2 * (n - 1) * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes - reserve_bytes
        if room_bytes <= 0:
            raise ValueError("the reserve leaves no room")
        return -(-state_bytes // room_bytes)

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = (memory_bytes - state_bytes - 1) // sequence_bytes
        if sequences < 1:
            raise ValueError("not even one sequence fits")
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@wrong("A microbatch of 0 is none: where not one sequence fits, raise a ValueError.")
def no_sequences():
    def all_reduce_time_s(size_bytes, n, link):
        step_s = link.latency_s + size_bytes / n / link.rate_bytes_per_s
        return 2 * (n - 1) * step_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        room_bytes = memory_bytes - reserve_bytes
        if room_bytes <= 0:
            raise ValueError("the reserve leaves no room")
        return -(-state_bytes // room_bytes)

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = (memory_bytes - state_bytes) // sequence_bytes
        sequences = max(sequences, 0)
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


@also_right("quotient and remainder, a range of fillings, and the bytes that a rank sends")
def by_remainders():
    def all_reduce_time_s(size_bytes, n, link):
        sent_bytes = 2 * (n - 1) / n * size_bytes
        return sent_bytes / link.rate_bytes_per_s + 2 * (n - 1) * link.latency_s

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        if reserve_bytes >= memory_bytes:
            raise ValueError("no room")
        full, rest = divmod(state_bytes, memory_bytes - reserve_bytes)
        return full + 1 if rest else full

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        fillings = range(state_bytes + sequence_bytes, memory_bytes + 1, sequence_bytes)
        if not fillings:
            raise ValueError("no room")
        return len(fillings)

    return all_reduce_time_s, gpus_needed, max_microbatch


@also_right("a sum over both rounds, and exact fractions, rounded by math")
def in_fractions():
    import math
    from fractions import Fraction

    def all_reduce_time_s(size_bytes, n, link):
        once_round = (n - 1) * link.latency_s + (n - 1) * (size_bytes / link.rate_bytes_per_s) / n
        return once_round + once_round

    def gpus_needed(state_bytes, memory_bytes, *, reserve_bytes=0):
        if memory_bytes - reserve_bytes <= 0:
            raise ValueError
        return math.ceil(Fraction(state_bytes, memory_bytes - reserve_bytes))

    def max_microbatch(state_bytes, sequence_bytes, memory_bytes):
        sequences = math.floor(Fraction(memory_bytes - state_bytes, sequence_bytes))
        if sequences <= 0:
            raise ValueError
        return sequences

    return all_reduce_time_s, gpus_needed, max_microbatch


EQUIVALENT = {}
