"""Measure calls per second on one core, and resident memory, with inputs that are created in batches."""

import gc
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import psutil

T = TypeVar("T")

BATCH = 5_000


def measure_rate(batches: Callable[[int], Iterable[Sequence[T]]], call: Callable[[T], object]) -> None:
    """Call a function for as many inputs as the command line names, and print the figures as JSON.

    Only the processor time of the calls counts. Memory is the resident memory after each tenth of the calls.

    Args:
        batches: Returns batches of inputs, with this number of inputs in all.
        call: The measured function.
    """
    total = int(sys.argv[1])
    spent, resident = 0.0, list[float]()
    for given in batches(total):
        gc.collect()
        began = time.process_time()
        for each in given:
            call(each)
        spent += time.process_time() - began
        resident.append(psutil.Process().memory_info().rss / 2**20)
    tenth = max(1, len(resident) // 10)
    print(json.dumps({"per_second": total / spent, "resident": resident[tenth - 1 :: tenth]}))
