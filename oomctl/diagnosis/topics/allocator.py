"""Pages about how the caching allocator works."""

from __future__ import annotations

from typing import Final

from oomctl.model.pages import Page

ALLOCATOR_PAGES: Final[tuple[Page, ...]] = (
    Page(
        "",
        "two-level-model",
        "How torch holds memory: driver, segment, block, pool, stream",
        """torch does not ask the driver for every tensor. It takes large segments and cuts them into blocks.

    driver     | cudaMalloc                                              |
    segments   |  20 MiB, stream 7, large   |  2 MiB, small |  512 MiB   |
    blocks     | live 6 | free 3 | live 11 | l|f|l|l|free  |  live 512  |

    small pool: requests up to 1 MiB, segments of 2 MiB
    large pool: requests above 1 MiB; below 10 MiB they share segments of
                20 MiB, from 10 MiB on each gets a segment of its size,
                rounded up to 2 MiB

What never merges:

- Two segments, even when their addresses touch: the driver frees each only as a whole. So a free hole can never be
larger than its segment. (expandable_segments lifts this.)
- Blocks of two streams: a block belongs for life to the stream that it was allocated on.
- The small and the large pool.
- The default pool and private pools (CUDA graphs, torch.cuda.MemPool).
- A free block and a live one: one live block of 512 bytes keeps its whole segment.

That is why 6 GiB can be free in torch's cache and a request of 1 GiB still fails: no single hole of the right
stream and pool is large enough.

A segment goes back to the driver only when all of it is free, and only when torch flushes: in empty_cache(), before
it reports an out-of-memory failure, or when garbage_collection_threshold applies.""",
        ("alloc-and-free", "classic-and-expandable", "streams", "graph-pools", "fragmentation"),
        ("allocator", "caching", "segment", "block", "pool", "driver", "cudamalloc", "how it works", "model"),
    ),
    Page(
        "",
        "alloc-and-free",
        "What happens when torch allocates and frees, step by step",
        """Allocate n bytes:

- Round n up to 512 bytes (and to the steps of roundup_power2_divisions).
- Up to 1 MiB: small pool, else large pool; the pool is the private one inside a graph capture or use_mem_pool.
- Best fit: the smallest free block of this pool and stream that is large enough.
- Split it: the rest becomes a free block of its own, if it has at least 512 bytes (small pool, expandable) or more
than 1 MiB (large pool). Blocks at or above max_split_size_mb stay whole.
- No block: ask the driver for a segment of 2 MiB, 20 MiB or the size rounded up to 2 MiB.
- The driver refuses: wait for blocks that other streams still use, give back every segment without a live block,
ask again. This is one "cudaMalloc retry" in memory_summary().
- Refused again: record the failure, call the observers, raise OutOfMemoryError.

So when you see the error, the cache has been flushed already; calling empty_cache() before the same code changes
nothing.

Free a tensor:

- When the last reference goes, the block leaves "allocated" at once.
- If another stream used it (record_stream), it stays "active" until that stream has passed the point.
- Then it is merged with free neighbours in its segment and goes back into the pool. The driver hears nothing.

One weakness up to torch 2.14: after waiting for other streams in the retry, the free blocks are not searched again.
A request can fail although the wait just made room, and succeed when it is simply tried once more.""",
        ("two-level-model", "streams", "max_split_size_mb", "garbage_collection_threshold"),
        ("retry", "retries", "flush", "best fit", "split", "empty_cache", "malloc", "rounding"),
    ),
    Page(
        "",
        "classic-and-expandable",
        "Classic segments against expandable segments",
        """Classic: every segment is one cudaMalloc of a fixed size. A model whose sizes vary leaves holes behind: a
segment of 700 MiB serves a request of 690 MiB later, but never one of 710 MiB.

    classic      [ 512 MiB ][ 700 MiB ][ 690 MiB ]   three islands
    expandable   [ mapped mapped mapped mapped . . . . unmapped . . ]

Expandable (expandable_segments:True, torch 2.1 and later): one range of addresses per stream and pool, a little
larger than the card. Memory is mapped into it in granules of 2 MiB (small pool) or 20 MiB (large pool), neighbours
merge, and free granules can be unmapped one by one. A request of 710 MiB extends the end, or fills a gap.

It cures: holes that vary in size, growth of reserved memory over many steps, tails of segments.

It does not cure:

- a leak, a peak, a model that is too large
- memory stranded on other streams or in private pools: each has a range of its own
- one small live tensor in each granule (2 or 20 MiB are pinned each time)
- live tensors so scattered that the gaps between them are smaller than the request

Whether it would have helped in your case is answered by replaying your own recording:

    oomctl whatif snapshot.pickle --conf expandable_segments:True""",
        ("expandable_segments", "two-level-model", "fragmentation"),
        ("expandable", "segments", "granule", "virtual", "mapping", "compare"),
    ),
    Page(
        "",
        "streams",
        "Streams: memory that only one stream can reuse",
        """A block belongs to the stream that was current when it was allocated, for life. When it is freed, only
requests on that stream can have it; what one stream has cached is out of reach for the others until torch
flushes whole segments.

- Many streams, each with its own peak: reserved is the sum of the peaks, not the highest of them.
- A tensor used on another stream should be marked with tensor.record_stream(s): else its memory may be reused too
early. The price is that it stays "active" after you freed it, until that stream gets there. If the host runs far
ahead, many steps' worth pile up.
- Side streams come from prefetchers, FSDP, overlapping communication, CUDA graphs.

What helps: fewer streams; allocate on the stream that uses the tensor most; synchronise before a big change of
phase (training to evaluation) and empty the cache there; limit how far prefetching runs ahead. expandable_segments
does not help: each stream has a range of its own.""",
        ("stream_stranded", "two-level-model", "alloc-and-free"),
        ("stream", "record_stream", "side stream", "pending", "prefetch", "fsdp", "stranded"),
    ),
    Page(
        "",
        "graph-pools",
        "Private pools: CUDA graphs and torch.cuda.MemPool",
        """A captured CUDA graph replays fixed addresses, so its memory comes from a private pool that nobody else may
use. What is free inside the pool serves only that pool, and goes back only when the graph (or the MemPool)
is gone.

- Ten graphs captured for ten batch sizes, each with a pool of its own: ten times the peak.
- During a capture torch never flushes its cache, so a capture can fail where the same code outside it would not.
- In the error message of torch 2.4 and later this is "allocated in private pools (e.g., CUDA Graphs)": free memory,
although it is counted as allocated.

What helps: let all graphs share one pool (pool=torch.cuda.graph_pool_handle()), capture the largest one first,
delete graphs that are not used, capture fewer sizes. With torch.compile, mode="reduce-overhead" captures graphs
too. Up to torch 2.12 nothing is reclaimed inside use_mem_pool() either.""",
        ("private_pools", "two-level-model", "graph_capture_record_stream_reuse"),
        ("graph", "graphs", "capture", "mempool", "cuda graph", "cudagraphs", "pool"),
    ),
)
