# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=True, cdivision=True
# distutils: language = c++
"""Events sorted by address: each address is looked up once, and only the distinct ones are sorted."""

import numpy as np

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libcpp.algorithm cimport sort
from libcpp.utility cimport pair
from libcpp.vector cimport vector

cdef extern from *:
    """
    #if defined(__GLIBC__)
    #include <malloc.h>
    static void give_back(void) { malloc_trim(0); }
    #else
    static void give_back(void) {}
    #endif
    """
    void give_back() nogil

cdef enum:
    ALLOC = 0
    FREE_REQUESTED = 1
    FREE_COMPLETED = 2


def give_back_memory():
    """Gives the system back what was freed and is kept for later, where the C library has a way to."""
    with nogil:
        give_back()


def by_address(const uint8_t[::1] action, const uint64_t[::1] address, uint64_t seed):
    """Rows of the events of blocks, by address and, within one, in the order of time.

    Args:
        action: uint8[n], values of `oomctl.model.snapshot.Action`.
        address: uint64[n].
        seed: Any number; mixed into the hashes, so that no file can be made to be slow.

    Returns:
        int32[events of blocks].
    """
    cdef Py_ssize_t i, n = action.shape[0], rows = 0
    cdef vector[uint32_t] slots, which, start
    cdef vector[pair[uint64_t, uint32_t]] known
    cdef size_t slot, mask, k
    cdef uint32_t number, at, count
    if address.shape[0] != n or n >= <Py_ssize_t>1 << 31:
        raise ValueError("columns of different lengths, or too long")
    with nogil:
        slots.resize(1024, 0)
        mask = slots.size() - 1
        for i in range(n):
            if action[i] > FREE_COMPLETED:
                continue
            rows += 1
            slot = place(address[i], seed) & mask
            while True:
                number = slots.at(slot)
                if number == 0:
                    known.push_back(pair[uint64_t, uint32_t](address[i], <uint32_t>known.size()))
                    start.push_back(0)
                    number = <uint32_t>known.size()
                    (&slots.at(slot))[0] = number
                    break
                if known.at(number - 1).first == address[i]:
                    break
                slot = (slot + 1) & mask
            number -= 1
            which.push_back(number)
            (&start.at(number))[0] += 1
            if known.size() * 2 > slots.size():
                mask = slots.size() * 4 - 1
                slots.assign(mask + 1, 0)
                for k in range(known.size()):
                    slot = place(known.at(k).first, seed) & mask
                    while slots.at(slot):
                        slot = (slot + 1) & mask
                    (&slots.at(slot))[0] = <uint32_t>(k + 1)
        sort(known.begin(), known.end())
        at = 0
        for k in range(known.size()):
            count = start.at(known.at(k).second)
            (&start.at(known.at(k).second))[0] = at
            at += count
    order = np.empty(rows, np.int32)
    cdef int32_t[::1] out = order
    with nogil:
        k = 0
        for i in range(n):
            if action[i] > FREE_COMPLETED:
                continue
            number = which.at(k)
            k += 1
            at = start.at(number)
            (&start.at(number))[0] = at + 1
            out[at] = <int32_t>i
    return order


cdef uint64_t place(uint64_t address, uint64_t seed) noexcept nogil:
    cdef uint64_t hash = (address ^ seed) * <uint64_t>0xff51afd7ed558ccd
    return (hash ^ hash >> 32) * (seed | 1) >> 20


def pairs(
    const uint8_t[::1] action, const uint64_t[::1] address, const int32_t[::1] order, int end
):
    """Events of blocks paired into lives: a life begins at an alloc and at the first sight of an address.

    The same as `oomctl.model.coding.paired`.

    Args:
        action: uint8[n], values of `oomctl.model.snapshot.Action`.
        address: uint64[n].
        order: int32[m], from `by_address`.
        end: An action behind which a life begins too, -1 for none.

    Returns:
        int32[4, lives], by address and time: the rows of a life's first event (an alloc, if it has one), its first
        free_requested and its last one, and its first free_completed, -1 where there is none; bool[lives], whether
        the life before it is of the same address.
    """
    cdef Py_ssize_t i, n = action.shape[0], m = order.shape[0], count = 0
    cdef int32_t row, life = -1
    cdef uint8_t kind
    cdef bint ended = False
    cdef uint64_t place, before = 0
    cdef vector[uint8_t] begin
    if address.shape[0] != n:
        raise ValueError("columns of different lengths")
    with nogil:
        begin.resize(m, 0)
        for i in range(m):
            row = order[i]
            if row < 0 or row >= n:
                with gil:
                    raise ValueError("an event that is none")
            kind, place = action[row], address[row]
            if i == 0 or place != before:
                (&begin.at(i))[0] = 2
                count += 1
            elif kind == ALLOC or ended:
                (&begin.at(i))[0] = 1
                count += 1
            before, ended = place, kind == end
    made = np.full((4, count), -1, np.int32)
    follows = np.zeros(count, np.bool_)
    cdef int32_t[:, ::1] out = made
    cdef uint8_t[::1] same = follows.view(np.uint8)
    with nogil:
        for i in range(m):
            row = order[i]
            kind = action[row]
            if begin.at(i):
                life += 1
                out[0, life] = row
                same[life] = begin.at(i) == 1
            if kind == FREE_REQUESTED:
                if out[1, life] < 0:
                    out[1, life] = row
                out[2, life] = row
            elif kind == FREE_COMPLETED and out[3, life] < 0:
                out[3, life] = row
    return made, follows
