"""What waits for a client is counted, whole: nothing else is kept by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.fetch.conftest import golden_log as golden_log
from tests.fetch.two_tiers import Golden
from tierstate.app.pool import Pool
from tierstate.proxy.budget import Budget
from tierstate.proxy.cold_reads import ColdReads, Shared
from tierstate.proxy.fetch_request import Wanted
from tierstate.runtime.clock import ManualClock
from tierstate.state.offsets import Offset
from tierstate.state.routing import Isolation, Tier


def test_records_that_were_at_hand_keep_no_chunk_of_the_cache(golden_log: Callable[..., Golden]) -> None:
    """A view of one would, for as long as a client takes its time."""
    golden = golden_log(clock=ManualClock())
    golden.local.local_start = golden.folder.bases[-1]  # the broker has no more
    reader = golden.reader
    first = reader.fetch("t", 0, 0, max_bytes=4096, isolation=Isolation.READ_COMMITTED, tier=Tier.AUTO)
    at = first.next_offset
    seen = reader.fetch("t", 0, at, max_bytes=4096, isolation=Isolation.READ_COMMITTED, tier=Tier.AUTO)
    view = reader.fetch_at_hand("t", 0, at, max_bytes=4096, isolation=Isolation.READ_COMMITTED, tier=Tier.AUTO)
    assert view is not None
    assert isinstance(view.data, memoryview)

    async def read() -> bytes | memoryview:
        pool = Pool("nobody", 1)
        reads = ColdReads(Shared(reader, pool, Budget(1 << 20), lambda *_: None))
        found = reads.get(("t", 0), Wanted(Offset(at), 4096), Isolation.READ_COMMITTED)
        assert found is not None
        await found.task
        assert found.piece is not None
        return found.piece.data

    data = asyncio.run(read())
    assert data == seen.data
    assert isinstance(data, bytes)
