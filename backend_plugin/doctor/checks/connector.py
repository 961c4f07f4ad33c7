"""Checks of the installed connector: its release and its permissions."""

from collections.abc import Iterator
from typing import Final

from backend_plugin.doctor import deployments, roles
from backend_plugin.doctor.check import Check, Found, Level
from backend_plugin.doctor.facts import Facts, Subject


def _lacks(facts: Facts) -> Iterator[Found]:
    for each in facts.lacking:
        uses = ", ".join(f"{verb} {rule.resource}" for rule in each.rules for verb in rule.verbs)
        user = f"system:serviceaccount:{each.namespace}:{each.name}"
        yield Found(
            sentence=f"the connector's account {each.namespace}/{each.name} lacks permissions: {uses}",
            remedy=f"{roles.build_command(each.rules, user)}  # or rbac.create: true of the chart",
        )


def _another(facts: Facts) -> Iterator[Found]:
    for each in deployments.connectors(facts):
        version = deployments.release(each)
        if version and facts.release and version != facts.release:
            yield Found(
                sentence=f"the connector has version {version}, and this command {facts.release}: "
                f"{deployments.told(each)}",
                remedy=f"install flytekitplugins-kfpytorch {version} from its repository, "
                "or upgrade the connector",
            )


CHECKS: Final = (
    Check(
        id="connector-rights",
        level=Level.ERROR,
        proves="the service account of the connector has the required permissions",
        judge=_lacks,
        needs=(Subject.DEPLOYMENTS, Subject.RIGHTS),
    ),
    Check(
        id="connector-release",
        level=Level.WARNING,
        proves="the connector and this command have the same version",
        judge=_another,
        needs=(Subject.DEPLOYMENTS,),
    ),
)
