"""What KAI says of a gang that waits, and what is told of it. It was not run; the texts are published."""

import pytest
from cluster import verdict
from waiting_gang import event, first_line, gang, group, waiting_line

API = "scheduling.run.ai"


def limited(reason="OverLimit", message="over its limit", **said):
    details = {
        "name": "research",
        "podGroupRequestedResources": {
            "cpu": "20",
            "example.com/nic": "8",
            "memory": "80Gi",
            "nvidia.com/gpu": "10",
        },
        "queueAllocatedResources": {"nvidia.com/gpu": "2"},
        "queueResourceLimits": {"example.com/nic": "8", "cpu": "-1", "memory": "?", "nvidia.com/gpu": "8"},
        **said,
    }
    why = {"reason": reason, "message": message, "details": {"queueDetails": details}}
    return group(API, schedulingConditions=[{"type": "UnschedulableOnNodePool", "reasons": [why]}])


def test_a_queue_says_how_much_it_gives():
    line = waiting_line(job=gang(started=None), pod_groups=[limited()])
    assert line == "waiting for 4 nvidia.com/gpu in queue research: 10 asked, 6 free (0 of 5 replicas ready)"


@pytest.mark.parametrize(
    ("reason", "cause"), [("OverLimit", "queue"), ("QueueDoesNotExist", "config"), ("", "unschedulable")]
)
def test_without_numbers_its_words_are_told(reason, cause):
    bare = limited(reason, "why", podGroupRequestedResources={"cpu": "1", "memory": "x"})
    told = verdict(gang(started=None), pod_groups=[bare])
    assert (told.cause and told.cause.value, first_line(told)) == (
        cause,
        "queue research: why (0 of 5 replicas ready)",
    )


def test_that_pods_are_yet_to_be_made_is_in_an_event_only():
    said = "Job is not ready. Waiting for 4 pods for SubGroup worker, currently 2 exist, 0 are gated."
    ready = event(said, kind="PodGroup", name="pg-j-u", reason="NotReady")
    assert waiting_line(job=gang(started=None), events=[ready]) == (
        "2 of the 4 pods of worker are there (0 of 5 replicas ready)"
    )
    other = event("new words", kind="PodGroup", name="pg-j-u", reason="NotReady")
    assert "waits" not in verdict(gang(started=None), events=[other]).info
    assert "waits" not in verdict(gang(started=None), events=[{**ready, "reason": "Evict"}]).info
    both = verdict(gang(started=None), events=[ready], pod_groups=[limited()])
    assert first_line(both).startswith("waiting for 4 nvidia.com/gpu")
