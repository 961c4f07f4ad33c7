"""Tests of the findings from the log of rank 0, which contains other lines too."""

import json

from backend_plugin.doctor.burn_in import results
from backend_plugin.doctor.check import Finding, Severity

SIZES = [
    {"mebibytes": 1, "seconds": 0.001, "algbw": 1.05, "busbw": 1.836},
    {"mebibytes": 256, "seconds": 0.01, "algbw": 26.8, "busbw": 46.97},
]
SAID = {"ranks": 8, "hosts": 2, "backend": "nccl", "device": "NVIDIA H200", "torch": "2.9", "sizes": SIZES}
LINE = json.dumps({"kfpytorch-burn-in": SAID})


def build_success(line: str, *nodes: str) -> Finding:
    return results.build_success(results.find_measurement([line]), nodes)


def test_measurement_is_found_among_other_log_lines() -> None:
    broken = '{"kfpytorch-burn-in": {"ranks"'
    measured = results.find_measurement(["", "NCCL INFO", broken, '{"other": 1}', LINE, "bye"])
    assert (measured.ranks, [each.mebibytes for each in measured.sizes]) == (8, [1, 256])
    assert results.find_measurement([broken, "nothing"]) is None


def test_success_finding_contains_speed_and_location() -> None:
    found = build_success(LINE, "a", "b")
    assert found.level is Severity.NOTE
    assert found.sentence == (
        "8 ranks in 2 pods on 2 nodes all-reduced with nccl on NVIDIA H200 (torch 2.9), bus bandwidth "
        "1.84 GB/s at 1 MiB, 47 GB/s at 256 MiB"
    )
    assert "nccl-tests" in found.remedy


def test_success_finding_lists_unmeasured_parts_on_one_node_or_with_gloo() -> None:
    found = build_success(LINE.replace("nccl", "gloo"), "a", "a")
    assert "2 pods on 1 node all-reduced" in found.sentence
    assert "the network between nodes was not measured" in found.remedy
    assert "nothing about GPUs" in found.remedy


def test_failure_finding_contains_the_last_nonempty_log_lines() -> None:
    found = results.build_failure("exit code 1", [*map(str, range(20)), "", "No module named torch", ""])
    assert found.level is Severity.ERROR
    assert found.sentence.splitlines()[0].endswith("exit code 1; the last lines of its log:")
    assert found.sentence.splitlines()[1:] == [
        *(f"    {each}" for each in range(11, 20)),
        "    No module named torch",
    ]
    assert results.build_failure("evicted").sentence == "the burn-in failed: evicted"
