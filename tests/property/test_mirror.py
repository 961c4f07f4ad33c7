"""Property tests: the backend decodes what an author's config encodes."""

from builders import a_run, decoded
from flytekit import Resources
from hypothesis import given
from hypothesis import strategies as st

import flytekitplugins.kfpytorch as kf
from backend_plugin.core import job, train_job_options
from backend_plugin.core.job import TrainingJob
from flytekitplugins.kfpytorch.custom import encode_elastic, encode_pytorch

COUNTS = st.none() | st.integers(0, 2**31 - 1)
NAMES = st.none() | st.text("aZ0-.é", min_size=1)
POLICIES = {
    None: "Never",
    kf.RestartPolicy.NEVER: "Never",
    kf.RestartPolicy.FAILURE: "OnFailure",
    kf.RestartPolicy.ALWAYS: "Always",
}
CLEANS = {
    None: "None",
    kf.CleanPodPolicy.NONE: "None",
    kf.CleanPodPolicy.RUNNING: "Running",
    kf.CleanPodPolicy.ALL: "All",
}
ROLE = {
    "image": NAMES,
    "restart_policy": st.sampled_from([*POLICIES]),
    "requests": st.none() | st.builds(Resources, cpu=st.sampled_from(["1", "500m"]), mem=st.just("1Gi")),
    "node_selector": st.none()
    | st.dictionaries(st.text("ab", min_size=1, max_size=63), st.text("ab", max_size=63), min_size=1),
    "priority_class_name": st.none() | st.text("ab0", min_size=1, max_size=253),
}
RUNS = st.none() | st.builds(
    kf.RunPolicy,
    clean_pod_policy=st.sampled_from([*CLEANS]),
    ttl_seconds_after_finished=COUNTS,
    active_deadline_seconds=COUNTS,
    backoff_limit=COUNTS,
)
BEYOND = {
    "run_policy": RUNS,
    "gang": st.none()
    | st.builds(kf.Gang, queue=NAMES, scheduler=NAMES, queue_timeout_seconds=st.none() | st.integers(1, 99)),
    "train_job": st.none() | st.builds(kf.TrainJob, runtime=st.none() | st.text("az0", min_size=1)),
}
PYTORCHES = st.builds(
    kf.PyTorch,
    master=st.builds(kf.Master, **ROLE),
    worker=st.builds(kf.Worker, replicas=st.integers(0, 100_000), **ROLE),
    **BEYOND,
)
ELASTICS = st.builds(
    kf.Elastic,
    nnodes=st.integers(2, 99) | st.tuples(st.integers(1, 9), st.integers(9, 99)).map("{0[0]}:{0[1]}".format),
    nproc_per_node=st.integers(1, 16),
    max_restarts=st.integers(0, 9),
    **BEYOND,
)


def build_group(role: job.ReplicaRole, spec, replicas: int) -> job.ReplicaGroup:
    requests = spec.requests and {"cpu": spec.requests.cpu, "memory": spec.requests.mem}
    return job.ReplicaGroup(
        role=role,
        replicas=replicas,
        restart_policy=POLICIES[spec.restart_policy],
        image=spec.image,
        resources=requests and job.Resources(requests=requests),
        placement=job.Placement(
            node_selector=spec.node_selector or {}, priority_class_name=spec.priority_class_name
        ),
    )


def build_job(config, groups, **fields) -> TrainingJob:
    policy = config.run_policy or kf.RunPolicy()
    options = vars(config.train_job) if config.train_job else {}
    options = {name: value for name, value in options.items() if value is not None}
    return TrainingJob(
        run=a_run(),
        groups=tuple(each for each in groups if each.replicas),
        run_policy=job.JobRunPolicy(
            clean_pod_policy=CLEANS[policy.clean_pod_policy],
            ttl_seconds_after_finished=policy.ttl_seconds_after_finished or None,
            active_deadline_seconds=policy.active_deadline_seconds or None,
            backoff_limit=policy.backoff_limit or None,
        ),
        gang=job.GangOptions(**vars(config.gang)) if config.gang else job.GangOptions(),
        train_job=config.train_job and train_job_options.TrainJobOptions(**options),
        **fields,
    )


@given(PYTORCHES)
def test_backend_decodes_an_encoded_pytorch_config(config):
    master = build_group(job.ReplicaRole.MASTER, config.master, 1)
    worker = build_group(job.ReplicaRole.WORKER, config.worker, config.worker.replicas or 0)
    assert decoded(encode_pytorch(config)) == build_job(config, [master, worker])


@given(ELASTICS)
def test_backend_decodes_an_encoded_elastic_config(config):
    low, high = config.min_max_nodes()
    processes = config.nproc_per_node
    workers = job.ReplicaGroup(
        role=job.ReplicaRole.WORKER, replicas=high, restart_policy="Never", processes=processes
    )
    elastic = job.ElasticPolicy(
        min_replicas=low, max_replicas=high, rdzv_backend="c10d", max_restarts=config.max_restarts
    )
    expected = build_job(config, [workers], nproc_per_node=processes, elastic=elastic)
    assert decoded(encode_elastic(config)) == expected
