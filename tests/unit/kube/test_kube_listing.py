"""Lists of the objects that were created before their jobs."""

import json

from backend_plugin.kube.listing import ObjectLister
from backend_plugin.kube.options import KubernetesOptions
from backend_plugin.kube.permissions import Permissions

OWNED = {"metadata": {"name": "owned", "ownerReferences": [{"uid": "u"}]}}
FREE = {"metadata": {"name": "free"}}


class TwoPages:
    """An API client whose lists have two pages; it records the names of the objects that a page leaves."""

    def __init__(self):
        self.left = []

    async def fetch_decoded(self, request, decode):
        rest = "" if "continue" in request.query else "x"
        page = {"items": [OWNED, FREE, OWNED], "metadata": {"continue": rest}}
        items, rest = decode(json.dumps(page).encode())
        self.left.append([each["metadata"]["name"] for each in items])
        return items, rest


async def test_owned_runtimes_are_dropped_with_their_page():
    api = TwoPages()
    found = await ObjectLister(api, Permissions(()), KubernetesOptions()).list_prerequisites()
    assert [each["metadata"] for each in found] == [FREE["metadata"]] * 2
    assert api.left == [["free"], ["free"]]
