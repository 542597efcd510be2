"""Times of several pieces of work, taken in turn so that a slow moment of the machine hits all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping


def best_times(
    work: Mapping[str, Callable[[], object]],
    rounds: int,
    each: Mapping[str, int] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """The shortest time of each piece, in seconds.

    In every round each piece runs `each[name]` times (once by default) after one unmeasured run. The shortest time
    is the one with the least interference from whatever else the machine did. With `time.process_time` as the clock, it
    is the CPU time, which is the fairer one for work on one thread beside other jobs.
    """
    best = dict.fromkeys(work, float("inf"))
    for _ in range(rounds):
        for name, function in work.items():
            function()
            for _ in range((each or {}).get(name, 1)):
                start = clock()
                function()
                best[name] = min(best[name], clock() - start)
    return best
