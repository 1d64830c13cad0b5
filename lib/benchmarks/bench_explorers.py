"""Times one redraw of each explorer beside one matplotlib picture of the same content.

Aim: 20 ms at most, on a quiet machine; 100 ms is what a hand on a slider notices.
"""

import statistics
import time

from distlab import plot
from distlab.explorers import buckets, frame, memory
from distlab.timeline import Event, Timeline

REPEATS = 15


def seconds(work) -> float:
    """Returns the median time of one call, after one to warm up."""
    work()
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def stacks_by_matplotlib(chosen: memory.MemorySettings) -> bytes:
    numbers = memory.memory_numbers(chosen)
    stacks = {f"{i}": dict(stage.sizes) for i, stage in enumerate(numbers.stages[:8])}
    return plot.memory_stack(stacks, capacity=("GPU", numbers.capacity_bytes)).png(dpi=100)


def step_by_matplotlib(chosen: buckets.BucketSettings) -> bytes:
    numbers = buckets.bucket_numbers(chosen)
    events = [Event(0, "compute", "forward", "compute", 0.0, numbers.forward_s, 0, "activations")]
    begin_s = numbers.forward_s
    for i, bucket in enumerate(numbers.buckets):
        events.append(
            Event(0, "compute", f"#{i}", "compute", begin_s, bucket.ready_s, 0, "gradients")
        )
        events.append(Event(0, "comm", f"#{i}", "all_reduce", bucket.start_s, bucket.end_s))
        begin_s = bucket.ready_s
    return plot.timeline(Timeline(events)).png(dpi=100)


def main() -> None:
    big = {"model": "DeepSeek-V3", "gpus": 2048, "tp": 8, "pp": 32}
    cases = (
        ("memory", memory.MemorySettings(), memory.memory_view, stacks_by_matplotlib),
        (
            "memory, 32 stages",
            memory.MemorySettings(**big),
            memory.memory_view,
            stacks_by_matplotlib,
        ),
        ("buckets", buckets.BucketSettings(), buckets.bucket_view, step_by_matplotlib),
        (
            "buckets, 384 of them",
            buckets.BucketSettings(layers=96, params_million=70000),
            buckets.bucket_view,
            step_by_matplotlib,
        ),
    )
    for name, chosen, view, by_matplotlib in cases:
        ours_s = seconds(lambda chosen=chosen, view=view: frame.page(chosen, view))
        theirs_s = seconds(lambda chosen=chosen, draw=by_matplotlib: draw(chosen))
        kilobytes = len(frame.page(chosen, view)) / 1e3
        print(
            f"{name:22} {ours_s * 1e3:6.2f} ms, {kilobytes:4.1f} kB; "
            f"matplotlib {theirs_s * 1e3:6.1f} ms, {theirs_s / ours_s:5.0f} times as long"
        )


if __name__ == "__main__":
    main()
