"""The cluster's DNS: CoreDNS on the hub."""

from typing import Final

from rig.control_plane import ControlPlane, free_ports
from rig.namespaces import GATEWAY
from rig.process import Process

_USER: Final = "cluster-dns"
_RULES: Final = (
    {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
)
# The DNS names of a job's pods change, so nothing is cached. Nothing is forwarded, because there is no
# uplink.
_COREFILE: Final = """
cluster.local:53 in-addr.arpa:53 {{
  bind {address}
  errors
  ready {listen}:{port}
  cache 1
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    pods verified
    ttl 1
  }}
}}
.:53 {{
  bind {address}
  errors
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""


def start(plane: ControlPlane) -> Process:
    """Start CoreDNS, and return when it has synchronized with the API server."""
    plane.admin.grant(_USER, _RULES)
    (port,) = free_ports(1)
    corefile = plane.folder / "Corefile"
    corefile.write_text(
        _COREFILE.format(
            address=GATEWAY, listen=plane.place.listen, port=port, kubeconfig=plane.certified(_USER)
        )
    )
    process = plane.enter(plane.process("coredns", (f"-conf={corefile}",)))
    process.wait_until(lambda: plane.place.is_ready(port, "ready"))
    return process
