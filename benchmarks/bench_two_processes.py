"""Compare a cold `pyflyte run` of a two-process all-reduce with torchrun: at most 0.8 of its time."""

from benchmarks import all_reduce
from benchmarks.comparison import Row, Target

TARGET = Target(text="≤ 0.80", high=0.80)


def measure(repeat: int) -> list[Row]:
    return all_reduce.compare(2, repeat, TARGET)
