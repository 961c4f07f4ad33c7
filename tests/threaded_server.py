"""An HTTP server in a thread of its own, whose connections a test can reset."""

import asyncio
import socket
import threading

from aiohttp import web


class ThreadedServer:
    """A server whose subclass answers the requests. Public methods may be called from any thread."""

    def __init__(self):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open = []
        self._runner = None
        self._listening: socket.socket

    async def answer(self, request):
        """Return the response to a request."""
        raise NotImplementedError

    def listen(self, port=0, tls=None):
        """Start to serve a port, by default a free one, and return it."""
        if not self._thread.is_alive():
            self._thread.start()
        self.run(self._listen(port, tls))
        return int(self._listening.getsockname()[1])

    def stop(self):
        """Stop the server and reset all connections. It can start again."""
        self.run(self._stop())

    def close(self):
        """Stop the server and its thread."""
        self.stop()
        self.run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self):
        self.run(self._cut())

    def run(self, what):
        """Run a coroutine in the event loop of the server, and return its result."""
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(60)

    async def _listen(self, port, tls):
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._track)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.05)
        await self._runner.setup()
        self._listening = socket.create_server(("127.0.0.1", port), reuse_port=True)
        await web.SockSite(self._runner, self._listening, ssl_context=tls).start()

    async def _track(self, request):
        self._open.append(request)
        try:
            return await self.answer(request)
        finally:
            self._open.remove(request)

    async def _stop(self):
        if self._runner is None:
            return
        # Stop accepting before the server closes. If the server closes first, asyncio drops a connection that
        # was accepted but not handled, and its socket stays open.
        self._loop.remove_reader(self._listening)
        await asyncio.sleep(0.05)
        await self._cut()
        await self._runner.cleanup()
        self._runner = None

    async def _cut(self):
        for each in list(self._open):
            abort(each)

    async def _end(self):
        """Cancel the tasks of connections, which would otherwise be pending when the event loop is closed."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)


def abort(request):
    if request.transport is not None:
        request.transport.abort()
