"""Tests that a new scheduler needs only a module and a registry entry; this file is the module."""

from typing import Any, Final

import pytest
from builders import a_run, a_template

from backend_plugin.core import settings
from backend_plugin.core.errors import InvalidSettings, InvalidTask
from backend_plugin.core.observed import read_job
from backend_plugin.core.pipeline import plan
from backend_plugin.core.scheduling import companions, table
from backend_plugin.core.scheduling.adapter import (
    MIN_MEMBER,
    QUEUE,
    Adapter,
    Companion,
    Marks,
    Rank,
    Seen,
    Sighting,
)
from backend_plugin.core.scheduling.findings import Findings
from backend_plugin.core.scheduling.gang import Gang
from backend_plugin.core.values import Manifest

API: Final = "seventh.example.org"


def marks(gang: Gang) -> Marks:
    return Marks(scheduler_name=gang.scheduler_name, pod_labels={f"{API}/crew": gang.name})


def crew(gang: Gang) -> Manifest:
    return {"size": gang.min_member, "queue": gang.queue}


def sees(found: Findings, _: str) -> Seen | None:
    return Seen(why=f"the cluster has {API}") if found.has_api(API) else None


STYLES: Final = {
    "": Adapter(
        marks=marks,
        companion=Companion(api_version=f"{API}/v1", kind="Crew", spec=crew),
        scheduler_name="seventh",
        understands=frozenset({QUEUE, MIN_MEMBER}),
        keys=(f"{API}/",),
        sighting=Sighting(rank=Rank.API, sees=sees),
    )
}

CUSTOM: Final = {"masterReplicas": {"replicas": 1}, "workerReplicas": {"replicas": 4}}


@pytest.fixture(autouse=True)
def _row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.ADAPTERS, "seventh", STYLES)  # type: ignore[arg-type]


def planned(ganging: Any, found: Findings | None = None, **said: Any) -> Any:
    section = settings.read({"kfpytorch": {"gang": ganging}})
    template = a_template({**CUSTOM, "kfpytorch": {"gang": said}})
    return plan(template, a_run(), section, (), found or Findings())


def test_it_goes_the_whole_way_from_the_settings_to_the_plan() -> None:
    job, group = planned({"scheduler": "seventh", "queue": "all"}, minMember=3).manifests
    for replica in job["spec"]["pytorchReplicaSpecs"].values():
        assert replica["template"]["spec"]["schedulerName"] == "seventh"
        assert replica["template"]["metadata"]["labels"][f"{API}/crew"] == job["metadata"]["name"]
    assert (group["apiVersion"], group["kind"]) == (f"{API}/v1", "Crew")
    assert group["spec"] == {"size": 3, "queue": "all"}
    assert list(companions.of(read_job(job))) == [group]


def test_it_is_found_chosen_and_combined() -> None:
    found = Findings(apis={API: ("v1",), "kueue.x-k8s.io": ("v1beta1",)}, queues={"kueue": ("default",)})
    made = planned({"scheduler": "auto"}, found)
    assert made.reasons[0] == f"Gangs are for seventh: the cluster has {API}."
    job = made.manifests[0]
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    assert planned({"scheduler": "auto"}, found, scheduler="seventh").manifests == made.manifests


def test_what_it_cannot_mean_is_refused() -> None:
    with pytest.raises(InvalidSettings, match=r"timeout.*is not supported by seventh"):
        settings.read({"kfpytorch": {"gang": {"scheduler": "seventh", "timeout": "1s"}}})
    with pytest.raises(InvalidTask, match="is not a queue of seventh for this namespace"):
        planned({"scheduler": "seventh"}, Findings(queues={"seventh": ("b",)}), queue="a")
