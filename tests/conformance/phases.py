"""Each job for which our phase differs from the phase of Flyte's Go plugin: a name and a predicate.

docs/reference/differences-from-the-go-plugin.md contains the same entries, with the reason and the count.
The first entry that matches explains a difference.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml
from dice import Json
from histories import history

from backend_plugin.cli import explain

KIND = "PyTorchJob"
SAME = {
    "Queued": "QUEUED",
    "Running": "RUNNING",
    "Success": "SUCCEEDED",
    "RetryableFailure": "RETRYABLE_FAILED",
}
FAILURES = ("FAILED", "RETRYABLE_FAILED")
BEFORE = ("WAITING_FOR_RESOURCES", "INITIALIZING")


def cases():
    """Yield requests of ``explain --batch`` with a job: golden verdicts, and moments of random histories."""
    for path in sorted((Path(__file__).parents[1] / "golden/verdicts").glob("*/*.yaml")):
        request = yaml.safe_load(path.read_text())["request"]
        # The Go plugin has no other kind of job.
        if (request.get("job") or {}).get("kind", KIND) == KIND:
            yield {"id": f"{path.parent.name}/{path.stem}", **request}
    for seed in range(200):
        for number, moment in enumerate(history(seed)):
            yield {"id": f"{seed}/{number}", **moment.observed, "now": moment.now.isoformat()}


@dataclass(frozen=True)
class GoPhase:
    case: Json
    theirs: str  # The phase of the Go plugin, or the text of its error.
    ours: Json

    @property
    def phase(self):
        return self.ours["phase"]

    @property
    def true(self):
        return {each["type"] for each in self.conditions if each["status"] == "True"}

    @property
    def conditions(self):
        return self.case["job"].get("status", {}).get("conditions") or []

    @property
    def has_run(self):
        """True if the operator set the condition Running or Restarting."""
        return any(each["type"] in ("Running", "Restarting") for each in self.conditions)

    @property
    def has_ended(self):
        return bool(self.true & {"Succeeded", "Failed"})

    def __str__(self):
        return f"{self.case['id']}: theirs {self.theirs}, ours {self.ours}"


def differs(case, answer):
    theirs = answer["phase"]["phase"] if "phase" in answer else answer["error"]["message"]
    phase = GoPhase(case, theirs, dict(explain.judge_request(case)))
    if SAME.get(theirs) != phase.phase:
        yield phase


DIFFERENCES: dict[str, Callable[[GoPhase], bool]] = {
    "no-status": lambda phase: (
        phase.theirs not in SAME and not phase.has_ended and phase.phase not in FAILURES
    ),
    "patience": lambda phase: phase.phase in FAILURES and not phase.has_ended,
    "waiting": lambda phase: phase.theirs == "Queued" and phase.phase in BEFORE,
    "not-all-run": lambda phase: phase.theirs == "Running" and phase.phase in BEFORE,
    "runs-again": lambda phase: phase.theirs == "Queued" and phase.phase == "RUNNING" and phase.has_run,
    "both-ends": lambda phase: phase.true >= {"Succeeded", "Failed"},
    "order-of-conditions": lambda phase: phase.theirs == "Running" and phase.has_ended,
    "error-after-success": lambda phase: (
        phase.theirs == "Success" and phase.phase in FAILURES and bool(phase.case.get("error_files"))
    ),
    "no-retry": lambda phase: (
        phase.theirs == "RetryableFailure"
        and phase.phase == "FAILED"
        and phase.ours["cause"] in ("user-error", "invalid-config")
    ),
}


def explanation(phase):
    return next((name for name, applies in DIFFERENCES.items() if applies(phase)), None)
