"""Tests for the stored capabilities of a cluster."""

import msgspec
import pytest

from backend_plugin.core.scheduling.capabilities import NOTHING, Capabilities

FULL = {"admission_scheduler": "exceeded quota", "suspends_jobs": "exceeded quota"}


def test_capabilities_that_could_not_be_probed_keep_their_last_value():
    last = Capabilities(
        admission_scheduler="yunikorn", operator_scheduler="volcano", queues={"kueue": ("a",)}
    )
    now = Capabilities(kubernetes="1.36.1", unknown={**FULL, "operator_scheduler": "none", "kueue": "no"})
    assert now.with_last_known(last) == Capabilities(
        kubernetes="1.36.1",
        admission_scheduler="yunikorn",
        # The earlier values of these may be outdated.
        unknown={"suspends_jobs": "exceeded quota", "operator_scheduler": "none", "kueue": "no"},
    )
    assert now.with_last_known(NOTHING) == now


def test_capabilities_that_were_probed_again_replace_the_last_value():
    now = Capabilities(admission_scheduler="default-scheduler", suspends_jobs=False)
    assert now.with_last_known(Capabilities(admission_scheduler="yunikorn", suspends_jobs=True)) == now
    with pytest.raises(msgspec.ValidationError, match=r"container-defaults\.cpu=1x is not a quantity"):
        msgspec.convert({"container-defaults": {"cpu": "1x"}}, Capabilities)
