"""Times one redraw of each explorer beside one matplotlib picture of the same content.

Aim: 20 ms at most, 100 ms for thousands of bars or layouts, on a quiet machine; 100 ms is what a
hand on a slider notices.
"""

import statistics
import time

from distlab import plot
from distlab import schedule as pipelines
from distlab.explorers import buckets, frame, layouts, memory, partition, schedule
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


def gantt_by_matplotlib(chosen: schedule.ScheduleSettings) -> bytes:
    p, m, v = chosen.stages, chosen.microbatches, schedule.chunks_used(chosen)
    orders = pipelines.interleaved(p, m, v) if v > 1 else pipelines.one_f_one_b(p, m)
    line = pipelines.simulate(orders, forward=chosen.forward, backward=chosen.backward)
    return plot.pipeline(line).png(dpi=100)


def stages_by_matplotlib(chosen: partition.PartitionSettings) -> bytes:
    numbers = partition.partition_numbers(chosen)
    even, best = (
        plot.stage_loads(numbers.layers.times, split.bounds).png(dpi=100)
        for split in (numbers.even, numbers.best)
    )
    return even + best


def layouts_by_matplotlib(chosen: layouts.LayoutSettings) -> bytes:
    numbers = layouts.layout_numbers(chosen)
    ways = (*numbers.fitting, *numbers.too_big)
    points = {way.name: (way.memory_bytes, way.time_s) for way in ways}
    limit = ("GPU", numbers.capacity_bytes)
    scatter = plot.layout_scatter(points, capacity=limit, best=ways[0].name).png(dpi=100)
    return scatter + plot.step_breakdown({"best": numbers.times}).png(dpi=100)


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
        (
            "schedule",
            schedule.ScheduleSettings(),
            schedule.schedule_view,
            gantt_by_matplotlib,
        ),
        (
            "schedule, 16 x 64",
            schedule.ScheduleSettings(stages=16, microbatches=64),
            schedule.schedule_view,
            gantt_by_matplotlib,
        ),
        (
            "schedule, 16 x 64 x 4",
            schedule.ScheduleSettings(
                schedule="interleaved 1F1B", stages=16, microbatches=64, chunks=4
            ),
            schedule.schedule_view,
            gantt_by_matplotlib,
        ),
        (
            "partition",
            partition.PartitionSettings(),
            partition.partition_view,
            stages_by_matplotlib,
        ),
        (
            "partition, 128 on 16",
            partition.PartitionSettings(
                profile="Llama 3.1 405B", stages=16, microbatches=64, transfer="exposed", cap=0.9
            ),
            partition.partition_view,
            stages_by_matplotlib,
        ),
        (
            "layouts",
            layouts.LayoutSettings(),
            layouts.layout_view,
            layouts_by_matplotlib,
        ),
        (
            "layouts, 16,384 GPUs",
            layouts.LayoutSettings(model="Llama 3.1 405B", gpus=16384, batch=2048, seq=8192),
            layouts.layout_view,
            layouts_by_matplotlib,
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
