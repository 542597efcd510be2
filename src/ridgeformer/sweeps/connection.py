"""Whether an executor can still be reached.

An executor of this process that breaks says so with an exception. A Dask client whose scheduler is gone does not: it
tries to connect again, and until then its futures are cancelled or stay pending. Only this module knows Dask's client.
"""

from __future__ import annotations

import asyncio
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from ridgeformer.errors import UnreachableError

DOWN = 10.0  # seconds without a connection until a sweep ends; a scheduler that is restarted sooner is found again
SILENT = 60.0  # seconds without an answer on an open connection: a scheduler may be busy for some time
IDLE = 15.0  # seconds without a worker until the user is told
PERIOD = 2.0  # seconds between questions to the scheduler


class Connection:
    """The connection between an executor and the scheduler that it may have.

    Args:
        executor: Any executor; None for worker processes of ours. One without a scheduler can always be reached.
        interval: Seconds between two calls of `is_open`, roughly.
        clock: Returns the time in seconds.
    """

    def __init__(
        self, executor: Executor | None, interval: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = _client_of(executor)
        scheduler = getattr(self._client, "scheduler", None)
        self._address = getattr(scheduler, "address", None) or "an unknown address"
        self._clock, self._longest = clock, max(PERIOD, 2 * interval)
        self._called = self._asked = clock()
        self._down = self._silent = self._idle = 0.0
        self._question: Future[Any] | None = None
        self._workers: int | None = None
        self._warned = False

    def is_open(self) -> bool:
        """Whether work can be submitted now, and whether the work submitted before is still known.

        Returns:
            False while the executor tries to connect again. All that it was running is then lost.

        Raises:
            UnreachableError: There was no connection for 10 seconds, or no answer for 60 seconds.
        """
        if self._client is None:
            return True
        now = self._clock()
        passed, self._called = min(now - self._called, self._longest), now  # without time in which it was suspended
        stream = self._client.scheduler_comm
        connected = self._client.status == "running" and stream is not None and not stream.closed()
        self._down = 0.0 if connected else self._down + passed
        self._silent = 0.0 if connected and self._is_answered() else self._silent + passed
        self._idle = self._idle + passed if self._workers == 0 else 0.0
        if self._idle > IDLE and not self._warned:  # work that waits looks like slow training
            self._warned = True
            idle = f"No worker is connected to the Dask scheduler at {self._address}, so nothing is being trained."
            warnings.warn(f"{idle} Start one with `dask worker {self._address}`.", stacklevel=2)
        if self._client.status in ("closing", "closed") or self._down > DOWN or self._silent > SILENT:
            self.close()
            raise UnreachableError(
                f"The Dask scheduler at {self._address} can no longer be reached. Finished runs are kept: start the "
                "scheduler and its workers again, then give the same command again to continue."
            )
        return connected

    def close(self) -> None:
        """Ask nothing more."""
        if self._question is not None:
            self._question.cancel()

    def _is_answered(self) -> bool:
        """Whether the scheduler has just told how many workers it has. It is asked every few seconds."""
        answered = False
        if self._question is not None and self._question.done():
            answered = not self._question.cancelled() and self._question.exception() is None
            if answered:
                self._workers = len(self._question.result().get("workers", ()))
            self._question = None
        if self._question is None and self._called - self._asked >= PERIOD:
            loop: asyncio.AbstractEventLoop = self._client.loop.asyncio_loop
            self._question = asyncio.run_coroutine_threadsafe(_identity(self._client), loop)
            self._asked = self._called
        return answered


async def _identity(client: Any) -> dict[str, Any]:
    identity: dict[str, Any] = await client.scheduler.identity()
    return identity


def _client_of(executor: Executor | None) -> Any:
    """The Dask client behind an executor; None for an executor of another kind."""
    module = sys.modules.get("distributed.cfexecutor")  # not imported, not used
    return executor._client if module is not None and isinstance(executor, module.ClientExecutor) else None
