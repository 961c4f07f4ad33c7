"""Two servers for one cluster: each can answer for any task. `test_chart_installed` replaces servers."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from rig.api import finish_job, jobs
from rig.backend import Backend
from rig.caller import Caller
from rig.process import wait_for

ATTEMPTS, AT_ONCE = 30, 16


def test_concurrent_creates_on_two_servers_create_each_job_once(bare, tmp_path):
    namespace = "two-at-once"
    bare.namespace(namespace)

    def list_uids():
        found = bare.admin.items(jobs(namespace))
        return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}

    with ExitStack() as stack, ThreadPoolExecutor(AT_ONCE) as pool:
        one, two = (_called(stack, bare, tmp_path, number, namespace) for number in (1, 2))
        executions = [f"f{number}" for number in range(ATTEMPTS)]
        first, second = ([caller.attempt(execution=each) for each in executions] for caller in (one, two))
        # The calls of a pair are submitted next to each other, so that both run at the same time.
        asked = [
            pool.submit(caller.create, attempt)
            for pair in zip(first, second, strict=True)
            for caller, attempt in zip((one, two), pair, strict=True)
        ]
        for each in asked:
            each.result()
        made_by_one = {attempt.job: attempt.uid for attempt in first}
        assert len(made_by_one) == ATTEMPTS
        assert made_by_one == {attempt.job: attempt.uid for attempt in second} == list_uids()

        # Each server gets the job references of the other.
        crossed = [*((two, each) for each in first[::2]), *((one, each) for each in second[1::2])]
        for caller, attempt in crossed[::2]:
            caller.succeeded(attempt)
            finish_job(bare.admin, jobs(namespace, attempt.job), "Succeeded")
        expected = ["SUCCEEDED", "QUEUED"] * (ATTEMPTS // 2)

        def fetch_phases():
            return [*pool.map(lambda pair: pair[0].get(pair[1]).phase, crossed)]

        wait_for(fetch_phases, lambda phases: phases == expected)
        for each in pool.map(lambda pair: pair[0].delete(pair[1]), crossed):
            assert each is None
        wait_for(list_uids, lambda uids: not uids)


def _called(stack, plane, folder, number, namespace):
    """Start another server, and return a client whose tasks write to the common store."""
    own = folder / f"server-{number}"
    own.mkdir()
    served = stack.enter_context(Backend(plane, own))
    return stack.enter_context(Caller(served.endpoint, folder / "store", namespace, again=False))
