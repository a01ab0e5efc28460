"""Some requests at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TypeVar

PARALLEL_REQUESTS = 16

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


async def each(items: Iterable[_Item], work: Callable[[_Item], Awaitable[_Result]]) -> list[_Result]:
    """Does something for each item, some at a time; if one fails, the others are finished first."""
    gate = asyncio.Semaphore(PARALLEL_REQUESTS)

    async def one(item: _Item) -> _Result:
        async with gate:
            return await work(item)

    done = await asyncio.gather(*(one(item) for item in items), return_exceptions=True)
    results = []
    for outcome in done:
        if isinstance(outcome, BaseException):
            raise outcome
        results.append(outcome)
    return results


def slow_start(documents: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Yields parts of 1, 2, 4, … objects, so that a quota is not asked for each pod of a large gang."""
    start, size = 0, 1
    while start < len(documents):
        yield documents[start : start + size]
        start, size = start + size, size * 2
