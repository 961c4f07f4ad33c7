"""A server that only runs pods, for tests that kill it: ``ROOT PODS durable|not``.

It adopts the pods of a file, prints each status as a line, and ends when its standard input closes.
"""

import asyncio
import json
import sys
from pathlib import Path

from backend_plugin.embedded.kubelet import Kubelet
from backend_plugin.embedded.options import EmbeddedOptions


class Says:
    def on_status(self, uid, status):
        print(json.dumps([uid, status]), flush=True)

    def on_terminated(self, uid):
        print(json.dumps([uid, None]), flush=True)


async def main():
    root, pods, durable = (
        Path(sys.argv[1]),
        json.loads(Path(sys.argv[2]).read_text()),
        sys.argv[3] == "durable",
    )
    kubelet = Kubelet(root, EmbeddedOptions(durable=durable), Says())
    print(json.dumps(["adopting", None]), flush=True)
    await kubelet.adopt_pods(pods)
    print(json.dumps(["ready", None]), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await kubelet.close()


asyncio.run(main())
