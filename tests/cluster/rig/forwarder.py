"""A TCP forwarder: ``python -m rig.forwarder HOST PORT TARGET TARGET_PORT`` runs until it is killed."""

import asyncio
import contextlib
import sys


async def pump(source, target):
    """Copy data until either connection is closed, then close the target."""
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            target.write(data)
            await target.drain()
    target.close()


async def main(host, port, target, target_port):
    async def forward(caller, answer):
        reader, writer = await asyncio.open_connection(target, int(target_port))
        await asyncio.gather(pump(caller, writer), pump(reader, answer))

    async with await asyncio.start_server(forward, host, int(port)) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
