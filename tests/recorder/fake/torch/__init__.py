"""As much of torch's face as a recording looks at, with a device of 1 MiB whose allocations fail when it is full.

It stands in for torch where there is no GPU; the real one is tried on a GPU by hand.
"""

from __future__ import annotations

import sys
import types

__version__ = "2.11.0+fake"
version = types.SimpleNamespace(cuda="13.0", hip=None)

TOTAL = 1 << 20


class OutOfMemoryError(RuntimeError):
    """The class that torch raises."""


class _Device:
    def __init__(self):
        self.ready, self.queue, self.blocks, self.observers = False, [], {}, []
        self.history, self.events, self.peak, self.next = None, [], 0, 0x1000
        self.ooms = self.retries = 0

    @property
    def allocated(self):
        return sum(self.blocks.values())


device = _Device()


def _init():
    if not device.ready:
        device.ready = True
        queue, device.queue = device.queue, []
        for call in queue:
            call()


def _lazy_call(call, **_):
    if device.ready:
        call()
    else:
        device.queue.append(call)


def empty(size):
    """Allocates; the address is the handle."""
    _init()
    if device.allocated + size > TOTAL:
        device.ooms += 1
        if device.history:
            device.events.append({"action": "oom", "size": size, "device_free": TOTAL - device.allocated, "stream": 0})
        for observer in device.observers:
            observer(0, size, TOTAL, TOTAL - device.allocated)
        raise OutOfMemoryError(
            f"CUDA out of memory. Tried to allocate {size} bytes. GPU 0 has a total capacity of 1024.00 KiB"
        )
    address = device.next
    device.next += size
    device.blocks[address] = size
    device.peak = max(device.peak, device.allocated)
    if device.history:
        device.events.append({"action": "alloc", "addr": address, "size": size, "stream": 0})
    return address


def free(address):
    """Frees."""
    device.blocks.pop(address)


def _snapshot():
    blocks = [
        {"address": a, "size": s, "requested_size": s, "state": "active_allocated", "frames": []}
        for a, s in device.blocks.items()
    ]
    segment = {
        "device": 0, "address": 0x1000, "total_size": device.allocated, "stream": 0, "segment_type": "large",
        "segment_pool_id": (0, 0), "is_expandable": False, "allocated_size": device.allocated,
        "active_size": device.allocated, "requested_size": device.allocated, "frames": [], "blocks": blocks,
    }  # fmt: skip
    return {
        "segments": [segment] if blocks else [],
        "device_traces": [list(device.events)],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
        "external_annotations": [],
    }


def _record_memory_history(enabled="all", context="all", stacks="all", max_entries=1 << 62):
    device.history = None if enabled is None else {"context": context, "stacks": stacks, "max_entries": max_entries}
    if enabled is None:
        device.events.clear()


def _stats():
    return {
        "allocated_bytes": {"all": {"current": device.allocated, "peak": device.peak}},
        "reserved_bytes": {"all": {"current": device.allocated, "peak": device.peak}},
        "num_alloc_retries": device.retries,
        "num_ooms": device.ooms,
    }


def memory_stats(_device=None):
    return {
        "allocated_bytes.all.current": device.allocated,
        "allocated_bytes.all.peak": device.peak,
        "reserved_bytes.all.current": device.allocated,
        "num_alloc_retries": device.retries,
        "num_ooms": device.ooms,
    }


def _module(name, **names):
    module = types.ModuleType(f"torch.{name}")
    module.__dict__.update(names)
    sys.modules[f"torch.{name}"] = module
    return module


_C = _module(
    "_C",
    _cuda_attach_out_of_memory_observer=device.observers.append,
    _cuda_isHistoryEnabled=lambda: device.history is not None,
    _cuda_memoryStats=lambda _device: _stats(),
)
memory = _module("cuda.memory", _record_memory_history=_record_memory_history, _snapshot=_snapshot)
cuda = _module(
    "cuda",
    memory=memory,
    _lazy_call=_lazy_call,
    current_device=lambda: 0,
    memory_stats=memory_stats,
    memory_summary=lambda _device: "a table of memory",
    mem_get_info=lambda _device: (TOTAL - device.allocated, TOTAL),
    get_per_process_memory_fraction=lambda _device: 1.0,
    get_device_properties=lambda _device: types.SimpleNamespace(name="Fake H1", total_memory=TOTAL, major=9, minor=0),
    is_available=lambda: True,
)

_hooks = {}


class _Handle:
    def __init__(self, key):
        self.key = key

    def remove(self):
        _hooks.pop(self.key, None)


def register_optimizer_step_post_hook(hook):
    _hooks[id(hook)] = hook
    return _Handle(id(hook))


def optimizer_step():
    """What an optimizer's step() ends with."""
    for hook in list(_hooks.values()):
        hook(None, (), {})


_names = []


class _Scope:
    names = _names

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        _Scope.names.append(self.name)
        return self

    def __exit__(self, *_):
        _Scope.names.append("/" + self.name)


optim = _module("optim")
_module("optim.optimizer", register_optimizer_step_post_hook=register_optimizer_step_post_hook)
profiler = _module("profiler", record_function=_Scope)
compiler = _module("compiler", is_compiling=lambda: False)
