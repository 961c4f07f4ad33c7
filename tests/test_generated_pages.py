"""The generated parts of the pages match the code."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import generated
import phases_page
import pytest
import reference_pages
import timeouts_page

from backend_plugin.core.judging.verdict import Phase

DOCS = Path(__file__).parent.parent / "docs"
CLASSES = (
    *("RunPolicy", "Master", "Worker", "PyTorch", "Elastic", "Gang", "TrainJob", "SuccessPolicy"),
    *("PodFailurePolicyRule", "Dataset", "Model", "Storage", "Topology"),
)
MESSAGES = (
    *("TaskExtension", "Role", "Toleration", "Gang", "TrainJob", "SuccessPolicy", "PodFailurePolicyRule"),
    *("DataSource", "Storage", "Topology", "JobRef"),
)

PARTS: dict[str, dict[str, Callable[[], str]]] = {
    "reference/task-config.md": {name: partial(reference_pages.build_class_table, name) for name in CLASSES},
    "reference/phases.md": {
        name: partial(phases_page.build_phase_table, name) for name in phases_page.TABLES
    },
    "reference/wire-format.md": {
        "flyteidl": reference_pages.build_flyteidl_table,
        **{name: partial(reference_pages.build_message_table, name) for name in MESSAGES},
    },
    "reference/doctor.md": {"checks": reference_pages.build_doctor_table},
    "explanation/kubernetes-api-use.md": {"answers": reference_pages.build_error_table},
    "explanation/timeouts.md": {
        "settings": timeouts_page.build_settings_table,
        "server": timeouts_page.build_server_table,
    },
}


@pytest.mark.parametrize(
    ("page", "name"), [(page, name) for page, parts in PARTS.items() for name in parts], ids=str
)
def test_generated_part_of_a_page_matches_the_code(page: str, name: str) -> None:
    generated.agree(DOCS / page, name, PARTS[page][name]())


def test_generated_parts_match_the_list_of_parts() -> None:
    marked = {str(page.relative_to(DOCS)): generated.parts(page) for page in DOCS.rglob("*.md")}
    assert {page: parts for page, parts in marked.items() if parts} == {
        page: [*parts] for page, parts in PARTS.items()
    }


def test_each_phase_is_documented() -> None:
    cases = [case for name in phases_page.TABLES for _, case in phases_page.read_states(name)]
    phases = {phases_page.read_verdict(case)["phase"] for case in cases}
    assert phases == {phase.value for phase in Phase} - {"UNDEFINED"}
    page = (DOCS / "reference/phases.md").read_text()
    assert [f"| `{phase}` |" in page for phase in sorted(phases)] == [True] * len(phases)
