from backend_plugin.shell.watch_status import WatchState, WatchStatus


def test_age_is_that_of_the_oldest_namespace_of_each_watched_kind() -> None:
    clock = [100.0]
    status = WatchStatus(lambda: clock[0])
    for kind, namespace in (("pods", "a"), ("pods", "b"), ("workloads", ""), ("jobs", "")):
        status.set_state(kind, namespace, WatchState.SYNCING)
    clock[0] = 107.0
    assert status.ages() == {("pods",): 7.0, ("workloads",): 7.0, ("jobs",): 7.0}
    status.receive("pods", "a")
    status.receive("jobs", "")
    status.set_state("pods", "a", WatchState.SYNCED)
    status.set_state("workloads", "", WatchState.NOT_SERVED)
    status.set_state("jobs", "", WatchState.STALE)
    clock[0] = 110.0
    assert status.ages() == {("pods",): 10.0, ("jobs",): 3.0}
    status.set_state("jobs", "", WatchState.FORBIDDEN)
    assert status.ages() == {("pods",): 10.0}


def test_current_failures_are_described_with_the_affected_kinds() -> None:
    status = WatchStatus()
    for kind in ("jobs", "pods"):
        status.set_state(kind, "", WatchState.STALE, "no answer")
    for namespace in "abcd":
        status.set_state("events", namespace, WatchState.FORBIDDEN, f"forbidden in {namespace}")
    assert status.describe_failures() == (
        "cannot list jobs, pods: no answer; cannot list events in a: forbidden in a; "
        "cannot list events in b: forbidden in b; 2 more failures"
    )
    for namespace in "abcd":
        status.set_state("events", namespace, WatchState.SYNCED)
    status.set_state("jobs", "", WatchState.NOT_SERVED)
    assert status.describe_failures() == "cannot list pods: no answer"
    status.set_state("pods", "", WatchState.SYNCED)
    assert status.describe_failures() == ""
