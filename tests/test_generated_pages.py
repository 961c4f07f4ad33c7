"""The generated parts of the pages match the code."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import generated_pages as pages
import pytest

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
    "reference/task-config.md": {name: partial(pages.build_class_table, name) for name in CLASSES},
    "reference/phases.md": {name: partial(pages.build_phase_table, name) for name in pages.TABLES},
    "reference/wire-format.md": {
        "flyteidl": pages.build_flyteidl_table,
        **{name: partial(pages.build_message_table, name) for name in MESSAGES},
    },
    "reference/doctor.md": {"checks": pages.build_doctor_table},
    "explanation/kubernetes-api-use.md": {"answers": pages.build_error_table},
    "explanation/timeouts.md": {"settings": pages.build_settings_table, "server": pages.build_server_table},
}


@pytest.mark.parametrize(
    ("page", "name"), [(page, name) for page, parts in PARTS.items() for name in parts], ids=str
)
def test_generated_part_of_a_page_matches_the_code(page, name):
    pages.agree(DOCS / page, name, PARTS[page][name]())


def test_generated_parts_match_the_list_of_parts():
    marked = {str(page.relative_to(DOCS)): pages.parts(page) for page in DOCS.rglob("*.md")}
    assert {page: parts for page, parts in marked.items() if parts} == {
        page: [*parts] for page, parts in PARTS.items()
    }


def test_each_phase_is_documented():
    cases = [case for name in pages.TABLES for _, case in pages.read_states(name)]
    phases = {pages.read_verdict(case)["phase"] for case in cases}
    assert phases == {phase.value for phase in Phase} - {"UNDEFINED"}
    page = (DOCS / "reference/phases.md").read_text()
    assert [f"| `{phase}` |" in page for phase in sorted(phases)] == [True] * len(phases)
