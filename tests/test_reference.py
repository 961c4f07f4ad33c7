"""The reference pages list exactly the items in the code, in the same order."""

import re
from pathlib import Path

from backend_plugin.core.judging import terminations
from backend_plugin.core.judging.verdict import is_retryable
from flytekitplugins.kfpytorch import CleanPodPolicy, RestartPolicy
from kfpytorch_common.causes import CLUSTER_REMEDIES, REMEDIES, Cause

ROOT = Path(__file__).parent.parent
REFERENCE = ROOT / "docs/reference"
VARIABLE = re.compile(r"FLYTE_KFPYTORCH_[A-Z_]+")


def tables(page: str, heading: str) -> list[list[str]]:
    """Return the rows of the table under a heading, without header, delimiter row and code marks."""
    text = (REFERENCE / page).read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    body = re.sub(r"^\|.*\|\n\|-.*\n", "", text, flags=re.MULTILINE)
    rows = re.findall(r"^\| (.*) \|$", body, re.MULTILINE)
    return [[cell.strip() for cell in row.replace("`", "").split(" | ")] for row in rows]


def test_each_policy_is_listed() -> None:
    assert tables("task-config.md", "Policies") == [
        [policy.__name__, ", ".join(member.name for member in policy)]
        for policy in (RestartPolicy, CleanPodPolicy)
    ]


def test_each_cause_is_listed_with_its_remedy() -> None:
    assert [row[0] for row in tables("causes.md", "Words")] == [cause.value for cause in Cause]
    assert dict(tables("causes.md", "Hints")) == {cause.value: hint for cause, hint in REMEDIES.items()}


def test_each_cause_is_listed_with_retryability_and_cluster_remedy() -> None:
    remedies = {**REMEDIES, **CLUSTER_REMEDIES}
    assert tables("causes.md", "In a cluster") == [
        [cause.value, "yes" if is_retryable(cause) else "no", remedies.get(cause, "none").replace("`", "")]
        for cause in Cause
    ]


def test_each_pod_termination_is_listed_with_its_cause() -> None:
    rows = tables("causes.md", "Ends of pods")
    words = {
        "DisruptionTarget": terminations.DISRUPTIONS,
        "reason of the pod": terminations.POD_REASONS,
        "reason of the container": terminations.CONTAINER_REASONS,
    }
    assert [row for row in rows if row[0] != "exit code"] == [
        [said_by, word, cause.value] for said_by, table in words.items() for word, cause in table.items()
    ]
    codes = {int(row[1]): row[2] for row in rows if row[0] == "exit code"}
    assert codes == {code: terminations.classify_exit_code(code, {}).value for code in codes}
    assert codes.keys() >= terminations.EXIT_CODES.keys()


def test_each_environment_variable_is_listed() -> None:
    sources = [*ROOT.glob("flytekitplugins/**/*.py"), *ROOT.glob("kfpytorch_common/**/*.py")]
    read = {name for path in sources for name in VARIABLE.findall(path.read_text())}
    assert {row[0] for row in tables("local-runs.md", "Environment variables")} == read
