"""The table of job outcomes, in the default mode and in the mode of the operator."""

from typing import Any

import pytest
from operated_jobs import (
    LABEL,
    a_condition,
    a_job,
    a_pod,
    after,
    conditions,
    list_actions,
    replicas,
    run_controller,
    stamp,
)

RUNNING = {"conditions": [a_condition("Created"), a_condition("Running")], "startTime": stamp()}


def test_a_new_job_is_created_and_has_started() -> None:
    step = run_controller(a_job(master={}, worker={}))
    of_job = f"{LABEL}job-name=job,{LABEL}operator-name=pytorchjob-controller"
    selectors = {role: f"{of_job},{LABEL}replica-type={role.lower()}" for role in ("Master", "Worker")}
    assert step.status == {
        "conditions": [
            {
                "type": "Created",
                "status": "True",
                "reason": "PyTorchJobCreated",
                "message": "PyTorchJob job is created.",
                "lastUpdateTime": stamp(),
                "lastTransitionTime": stamp(),
            }
        ],
        "replicaStatuses": {role: {"selector": selector} for role, selector in selectors.items()},
        "startTime": stamp(),
    }


# Restart policy and pods; conditions, replica statuses, whether the job has finished, actions.
OUTCOMES = {
    "the master runs": (
        ("Never", [a_pod("master-0", "Running"), a_pod("worker-0", "Pending")]),
        (["Created=True", "Running=True"], {"Master": {"active": 1}, "Worker": {}}, False, []),
    ),
    "workers run, the master does not": (
        ("Never", [a_pod("master-0", "Pending"), a_pod("worker-0", "Running")]),
        (["Created=True", "Running=True"], {"Master": {}, "Worker": {"active": 1}}, False, []),
    ),
    "the master has succeeded": (
        ("Never", [a_pod("master-0", "Succeeded", exit=0), a_pod("worker-0", "Running")]),
        (
            ["Created=True", "Running=False", "Succeeded=True"],
            {"Master": {"succeeded": 1}, "Worker": {"active": 1}},
            True,
            [],
        ),
    ),
    "the master has succeeded, a worker failed": (
        ("Never", [a_pod("master-0", "Succeeded", exit=0), a_pod("worker-0", "Failed", exit=1)]),
        (
            ["Created=True", "Running=False", "Succeeded=True"],
            {"Master": {"succeeded": 1}, "Worker": {"failed": 1}},
            True,
            [],
        ),
    ),
    "a worker has failed for good": (
        ("Never", [a_pod("master-0", "Running"), a_pod("worker-0", "Failed", exit=1)]),
        (
            ["Created=True", "Running=False", "Failed=True"],
            {"Master": {"active": 1}, "Worker": {"failed": 1}},
            True,
            [],
        ),
    ),
    "a worker is deleted while it runs": (
        ("Never", [a_pod("master-0", "Running"), a_pod("worker-0", "Running", deleted=30)]),
        (
            ["Created=True", "Running=False", "Failed=True"],
            {"Master": {"active": 1}, "Worker": {"failed": 1}},
            True,
            [],
        ),
    ),
    "a worker has failed and is made anew": (
        ("OnFailure", [a_pod("master-0", "Running"), a_pod("worker-0", "Failed", exit=1)]),
        (
            ["Created=True", "Restarting=True"],
            {"Master": {"active": 1}, "Worker": {"failed": 1, "restarts": 1}},
            False,
            ["DeletePod job-worker-0"],
        ),
    ),
    "the same where everything is": (
        ("Always", [a_pod("master-0", "Running"), a_pod("worker-0", "Failed", exit=1)]),
        (
            ["Created=True", "Restarting=True"],
            {"Master": {"active": 1}, "Worker": {"failed": 1, "restarts": 1}},
            False,
            ["DeletePod job-worker-0"],
        ),
    ),
    "the master has succeeded, a worker is made anew": (
        ("OnFailure", [a_pod("master-0", "Succeeded", exit=0), a_pod("worker-0", "Failed", exit=1)]),
        (
            ["Created=True", "Restarting=True", "Succeeded=True"],
            {"Master": {"succeeded": 1}, "Worker": {"failed": 1, "restarts": 1}},
            True,
            ["DeletePod job-worker-0"],
        ),
    ),
    "an exit code that is worth another try": (
        ("ExitCode", [a_pod("master-0", "Running"), a_pod("worker-0", "Failed", exit=137)]),
        (
            ["Created=True", "Restarting=True"],
            {"Master": {"active": 1}, "Worker": {"failed": 1, "restarts": 1}},
            False,
            ["DeletePod job-worker-0"],
        ),
    ),
    "no exit code": (
        ("ExitCode", [a_pod("master-0", "Running"), a_pod("worker-0", "Failed")]),
        (
            ["Created=True", "Restarting=True"],
            {"Master": {"active": 1}, "Worker": {"failed": 1, "restarts": 1}},
            False,
            ["DeletePod job-worker-0"],
        ),
    ),
    "an exit code that is not": (
        ("ExitCode", [a_pod("master-0", "Running"), a_pod("worker-0", "Failed", exit=127)]),
        (
            ["Created=True", "Running=False", "Failed=True"],
            {"Master": {"active": 1}, "Worker": {"failed": 1}},
            True,
            [],
        ),
    ),
    "nobody knows": (
        ("Never", [a_pod("master-0", "Unknown"), a_pod("worker-0", "Unknown")]),
        (["Created=True", "Running=True"], {"Master": {}, "Worker": {}}, False, []),
    ),
}


@pytest.mark.parametrize(("given", "expected"), OUTCOMES.values(), ids=OUTCOMES)
def test_what_the_pods_mean_for_the_job(given: Any, expected: Any) -> None:
    policy, pods = given
    role = {"restartPolicy": policy}
    step = run_controller(a_job(master=role, worker=role, status=RUNNING), *pods, now=after(5))
    found = conditions(step), replicas(step), "completionTime" in (step.status or {}), list_actions(step)
    assert found == expected


WORKERS = {
    "all have succeeded": (
        None,
        ("Succeeded", "Succeeded"),
        ["Created=True", "Running=False", "Succeeded=True"],
    ),
    "one has succeeded": (None, ("Succeeded", "Running"), ["Created=True", "Running=True"]),
    "one is enough": ({}, ("Succeeded", "Running"), ["Created=True", "Running=False", "Succeeded=True"]),
    "one is enough, though another failed": (
        {},
        ("Succeeded", "Failed"),
        ["Created=True", "Running=False", "Succeeded=True"],
    ),
    "one has failed": (None, ("Succeeded", "Failed"), ["Created=True", "Running=False", "Failed=True"]),
    "one runs": ({}, ("Running", "Pending"), ["Created=True", "Running=True"]),
}


@pytest.mark.parametrize(("elastic", "phases", "expected"), WORKERS.values(), ids=WORKERS)
def test_without_a_master_all_workers_count_and_of_elastic_ones_any(
    elastic: Any, phases: Any, expected: Any
) -> None:
    spec = {} if elastic is None else {"elasticPolicy": elastic}
    pods = [a_pod(f"worker-{index}", phase) for index, phase in enumerate(phases)]
    step = run_controller(a_job(worker={"replicas": 2}, status=RUNNING, **spec), *pods, now=after(5))
    assert conditions(step) == expected


SENTENCES = [
    ("PyTorchJob job is running.", []),
    ("PyTorchJob ns/job is running.", []),
    (
        "PyTorchJob job is successfully completed.",
        [("Normal", "PyTorchJobSucceeded", "PyTorchJob job is successfully completed.")],
    ),
    (
        "PyTorchJob ns/job successfully completed.",
        [("Normal", "PyTorchJobSucceeded", "PyTorchJob ns/job successfully completed.")],
    ),
    (
        "PyTorchJob job is failed because 1 Worker replica(s) failed.",
        [("Normal", "PyTorchJobFailed", "PyTorchJob job is failed because 1 Worker replica(s) failed.")],
    ),
    (
        # The first message is kept, because the second one has the same reason.
        "job job is restarting because Worker replica(s) failed.",
        [
            (
                "Warning",
                "PyTorchJobRestarting",
                "job job is restarting because Worker replica(s) failed.",
            ),
            (
                "Warning",
                "PyTorchJobRestarting",
                "PyTorchJob job is restarting because 1 Worker replica(s) failed.",
            ),
        ],
    ),
    (
        "PyTorchJob job is restarting because 1 Worker replica(s) failed.",
        [
            (
                "Warning",
                "PyTorchJobRestarting",
                "PyTorchJob job is restarting because 1 Worker replica(s) failed.",
            )
        ],
    ),
    (
        'job "job" is failing because "Worker" replica(s) failed.',
        [
            ("Normal", "ExitedWithCode", "Pod: ns.job-worker-0 exited with code 3"),
            ("Warning", "PyTorchJobFailed", 'job "job" is failing because "Worker" replica(s) failed.'),
        ],
    ),
]


def test_the_operators_sentences() -> None:
    def sentence(*pods: Any, **job: Any) -> tuple[str, list[tuple[str, str, str]]]:
        step = run_controller(a_job(**job), *pods)
        assert step.status is not None
        said = [(each["type"], each["reason"], each["message"]) for each in step.events]
        return step.status["conditions"][-1]["message"], said

    no_code = {"status": {"conditions": [a_condition("Created")]}}
    assert [
        sentence(a_pod("master-0", "Running"), master={}, **no_code),
        sentence(a_pod("worker-0", "Running"), worker={}, **no_code),
        sentence(a_pod("master-0", "Succeeded"), master={}, **no_code),
        sentence(a_pod("worker-0", "Succeeded"), worker={}, **no_code),
        sentence(a_pod("worker-0", "Failed"), worker={}, **no_code),
        sentence(a_pod("worker-0", "Failed"), worker={"restartPolicy": "OnFailure"}, **no_code),
        sentence(a_pod("worker-0", "Running", deleted=9), worker={"restartPolicy": "OnFailure"}, **no_code),
        sentence(a_pod("worker-0", "Failed", exit=3), worker={"restartPolicy": "ExitCode"}, **no_code),
    ] == SENTENCES


def test_what_has_not_changed_is_not_written_again() -> None:
    job = a_job(master={}, worker={"restartPolicy": "OnFailure"}, status=RUNNING)
    pods = [a_pod("master-0", "Running"), a_pod("worker-0", "Running", deleted=30)]
    first = run_controller(job, *pods, now=after(5))
    second = run_controller({**job, "status": first.status}, *pods, now=after(9))
    assert (conditions(first), second.status, second.actions) == (
        ["Created=True", "Restarting=True"],
        None,
        (),
    )


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("None", []),
        ("Running", ["master-0", "worker-0"]),
        ("All", ["master-0", "worker-0", "worker-1"]),
        ("", ["master-0", "worker-0", "worker-1"]),
    ],
)
def test_the_clean_pod_policy_decides_what_stays(policy: str, expected: list[str]) -> None:
    counts = {"Worker": {"active": 2, "succeeded": 1}}
    done = {"conditions": [a_condition("Succeeded")], "replicaStatuses": counts}
    job = a_job(master={}, worker={"replicas": 2}, runPolicy={"cleanPodPolicy": policy}, status=done)
    pods = [a_pod("master-0", "Running"), a_pod("worker-0", "Pending"), a_pod("worker-1", "Succeeded")]
    step = run_controller(job, *pods)
    assert list_actions(step) == [
        f"{verb} job-{each}" for each in expected for verb in ("DeletePod", "DeleteService")
    ]
    # Pods that ran when the job succeeded count as succeeded.
    assert replicas(step) == {"Worker": {"succeeded": 3}}


def test_what_is_deleted_already_is_not_deleted_again() -> None:
    job = a_job(
        worker={}, runPolicy={"cleanPodPolicy": "All"}, status={"conditions": [a_condition("Failed")]}
    )
    assert list_actions(run_controller(job, a_pod("worker-0", "Running", deleted=30))) == [
        "DeleteService job-worker-0"
    ]


def test_a_failed_job_says_nothing_new() -> None:
    failed = {"conditions": [a_condition("Created"), a_condition("Failed")]}
    step = run_controller(a_job(master={}, status=failed), a_pod("master-0", "Succeeded", exit=0))
    assert (step.status, step.actions, step.events) == (None, (), ())
