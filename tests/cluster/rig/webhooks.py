"""Webhook configurations of a module, with the address of a process instead of a Service."""

import base64
from pathlib import Path

from rig.api import Manifest


def encode_authority(certificate: Path) -> str:
    """Return the certificate of an authority as `caBundle`."""
    return base64.b64encode(certificate.read_bytes()).decode()


def redirect(hook: Manifest, address: str, authority: str) -> Manifest:
    """Return a webhook that the API server calls at an address with a certificate of the authority."""
    path = hook["clientConfig"]["service"]["path"]
    return {**hook, "clientConfig": {"url": f"{address}{path}", "caBundle": authority}}
