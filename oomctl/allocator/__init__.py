"""A simulated CUDACachingAllocator: policy, heap, expandable segments, replay, what-if."""
