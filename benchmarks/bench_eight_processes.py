"""Compare a cold `pyflyte run` of an eight-process all-reduce with torchrun: at most 0.4 of its time."""

from benchmarks import all_reduce
from benchmarks.comparison import Row, Target

TARGET = Target(text="≤ 0.40", high=0.40)


def measure(repeat: int) -> list[Row]:
    # A run of upstream's plugin takes half a minute on two cores, wherever torch is imported.
    return all_reduce.compare(8, repeat, TARGET, upstream_every=2, upstream_places=["inside"])
