# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=True, cdivision=True
# distutils: language = c++
"""Snapshot pickles straight into columns, for the layouts that torch 2.1 to 2.14 writes.

One loop over the opcodes that such a pickle consists of. The shape of what they build decides what it is: a dict that
starts with "action" is an event and becomes a row at once, a dict of name, filename and line is a frame, a list of
frames is a stack and is kept once however often it occurs. The little else that there is becomes ordinary objects.

Whatever differs from that shape is `Unsupported`, and Python's own way of reading decides about the file. Memory is
bounded by the bytes that were fed: nothing is believed that could make a short file large.
"""

import numpy as np

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy
from libcpp cimport bool as cbool
from libcpp.vector cimport vector


cdef extern from "columns.hpp" namespace "oomctl" nogil:
    cdef cppclass Column[T]:
        void push(T) except +
        T at(size_t) except +
        void set(size_t, T) except +
        void truncate(size_t)
        size_t size()
        void clear()
        void *release()

    cdef cppclass Codes:
        void push(int32_t) except +
        size_t size()
        cbool varies()
        int32_t first()
        Column[int32_t] &rows()

    cdef cppclass Interner:
        Interner(uint64_t) except +
        uint32_t add(const void *, size_t) except +
        size_t size()
        size_t length(uint32_t) except +
        const char *data(uint32_t) except +
        uint32_t number(uint32_t, size_t) except +


cdef enum Op:
    MARK = 0x28, STOP = 0x2e, NONE = 0x4e, EMPTY_LIST = 0x5d, EMPTY_DICT = 0x7d
    APPEND = 0x61, APPENDS = 0x65, SETITEM = 0x73, SETITEMS = 0x75
    BININT = 0x4a, BININT1 = 0x4b, BININT2 = 0x4d, LONG1 = 0x8a, BINFLOAT = 0x47
    TRUE = 0x88, FALSE = 0x89, TUPLE2 = 0x86
    BINUNICODE = 0x58, SHORT_BINUNICODE = 0x8c
    BINGET = 0x68, LONG_BINGET = 0x6a, BINPUT = 0x71, LONG_BINPUT = 0x72, MEMOIZE = 0x94, FRAME_START = 0x95

cdef enum Kind:
    # Of a value on the stack; the first seven can be in the memo.
    IS_PENDING, IS_STR, IS_POOL, IS_FRAME, IS_STACK, IS_EMPTY, IS_GONE
    IS_NONE, IS_BOOL, IS_INT, IS_UINT, IS_FLOAT
    IS_DICT, IS_LIST, IS_EVENT, IS_EVENTS, IS_NEW_DICT, IS_NEW_LIST

cdef struct Value:
    uint8_t kind
    uint8_t fresh    # made here, not fetched from the memo: may still be added to
    uint32_t memo    # its place in the memo + 1 while others must not fetch it yet
    uint64_t number  # the number itself, or an index by kind

cdef struct Run:
    uint64_t first
    uint64_t count
    uint32_t keys

cdef struct Row:
    uint32_t seen, keys
    uint64_t action, address, stream, free
    int64_t size, time
    int32_t stack, pool, context, metadata

cdef struct Free:
    uint64_t row
    uint64_t size

# Numbers of the strings that have a meaning; they are interned first, in this order.
cdef enum Word:
    W_ACTION, W_ADDR, W_SIZE, W_STREAM, W_TIME, W_FRAMES, W_CONTEXT, W_METADATA, W_POOL, W_FREE
    W_NAME, W_FILENAME, W_LINE, W_FX_OP, W_FX_NAME, W_FX_TARGET, W_FX_TRACE, W_NO_TEXT, W_NO_CONTEXT
    W_ALLOC

WORDS = (
    "action", "addr", "size", "stream", "time_us", "frames", "compile_context", "user_metadata", "pool_id",
    "device_free", "name", "filename", "line", "fx_node_op", "fx_node_name", "fx_node_target", "fx_original_trace",
    "", "N/A", "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map",
    "segment_unmap", "oom", "snapshot", "annotate", "workspace_snapshot",
)
cdef enum Limit:
    ACTIONS = 11
    LAST_PLACED = 6         # events up to segment_unmap have an address and a size
    OOM = 7
    BATCH = 1000            # items that picklers write in one go
    MAX_DEPTH = 16
    MAX_STACK = 65536       # values waiting at the same time
    MAX_FRAMES = 10000      # in one stack
    MAX_TEXT = 1 << 20      # bytes of one string
    OBJECT_BYTES = 100      # what one value costs once it is a Python object
    FLOOR = 64 << 20        # bytes of objects that any file may need
    FACTOR = 24             # and for each byte of it
    MAX_LINE = 0x7fffffff   # torch's "unknown" lies beyond, for example 2^64 - 1
    # Keys that a trace has for all its events or for none:
    HAS_STREAM = 1
    HAS_TIME = 2
    HAS_POOL = 4
    HAS_CONTEXT = 8
    HAS_METADATA = 16

cdef uint64_t MAX_SIZE = 1 << 60
cdef uint64_t MAX_MEMO = 0xffffffff
KEYS = ((1, "stream"), (2, "time_us"), (4, "pool_id"), (8, "compile_context"), (16, "user_metadata"))


class Unsupported(Exception):
    """The bytes are not of the one shape that this decoder knows."""


@cython.final
cdef class StackRef:
    """Stands for a list of frames.

    Attributes:
        number: Which stack, in the decoder's own order.
    """

    cdef readonly uint32_t number

    def __cinit__(self, uint32_t number):
        self.number = number


@cython.final
cdef class EventRun:
    """Stands for a list of events.

    Attributes:
        first: Row of its first event.
        count: Events.
        keys: Names of the keys that its events have.
    """

    cdef readonly size_t first, count
    cdef readonly frozenset keys

    def __cinit__(self, size_t first, size_t count, frozenset keys):
        self.first, self.count, self.keys = first, count, keys


@cython.final
cdef class Memory:
    """Bytes that numpy arrays rest on, freed with the last of them."""

    cdef void *data
    cdef Py_ssize_t size

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer *view, int flags):
        view.buf = self.data
        view.obj = self
        view.len = self.size
        view.readonly = 0
        view.itemsize = 1
        view.format = NULL
        view.ndim = 1
        view.shape = &self.size if flags & 8 else NULL
        view.strides = &view.itemsize if flags & 16 else NULL
        view.suboffsets = NULL
        view.internal = NULL


cdef object memory(void *data, size_t size, object dtype):
    """Column memory as an array."""
    if not size:
        free(data)
        return np.zeros(0, dtype)
    cdef Memory owner = Memory.__new__(Memory)
    owner.data = data
    owner.size = <Py_ssize_t>(size * np.dtype(dtype).itemsize)
    return np.frombuffer(owner, dtype)


cdef uint64_t little(const uint8_t *at, size_t count) noexcept nogil:
    cdef uint64_t value = 0
    cdef size_t i
    for i in range(count):
        value |= <uint64_t>at[i] << (8 * i)
    return value


cdef Row blank() noexcept nogil:
    cdef Row row
    row.seen = row.keys = 0
    row.action = row.address = row.stream = row.free = 0
    row.size = row.time = 0
    row.stack = row.pool = row.context = row.metadata = -1
    return row


cdef int32_t text_code(uint64_t text) noexcept nogil:
    return -1 if text == W_NO_TEXT or text == W_NO_CONTEXT else <int32_t>text


cdef inline uint32_t little4(const uint8_t *at) noexcept nogil:
    return <uint32_t>at[0] | <uint32_t>at[1] << 8 | <uint32_t>at[2] << 16 | <uint32_t>at[3] << 24


@cython.final
cdef class Decoder:
    """Takes a pickle piece by piece.

    Args:
        seed: Any number; mixed into the hashes, so that no file can be made to be slow.
    """

    cdef vector[Value] stack
    cdef vector[size_t] marks
    cdef vector[vector[Value]] nodes        # dicts (key, value, key, value ...) and lists that are neither events nor frames
    cdef vector[uint8_t] depths
    cdef vector[Run] runs
    cdef vector[Free] frees
    cdef vector[uint32_t] scratch
    cdef Column[uint32_t] memo
    cdef Interner *strings
    cdef Interner *pools
    cdef Interner *frames
    cdef Interner *stacks
    cdef Column[uint8_t] action
    cdef Column[uint64_t] address
    cdef Column[int64_t] size
    cdef Column[uint64_t] stream
    cdef Column[int32_t] stack_of
    cdef Column[int64_t] time
    cdef Codes pool, context, metadata
    cdef uint32_t keys                      # of the latest event
    cdef uint64_t keys_since                # row from which on all events had these
    cdef uint64_t fed, frame_end, objects
    cdef bytes tail
    cdef cbool started, done
    cdef const char *problem

    def __cinit__(self, uint64_t seed):
        self.strings = new Interner(seed)
        self.pools = new Interner(seed)
        self.frames = new Interner(seed)
        self.stacks = new Interner(seed)
        self.tail = b""
        for word in WORDS:
            text = word.encode()
            self.strings.add(<const char *>text, len(text))

    def __dealloc__(self):
        del self.strings
        del self.pools
        del self.frames
        del self.stacks

    def feed(self, const uint8_t[::1] chunk):
        """Takes the next bytes.

        Raises:
            Unsupported: They are not of the expected shape.
        """
        cdef Py_ssize_t at = 0, length = chunk.shape[0], ahead
        cdef bytes joined
        if self.tail and length:
            # The opcode that the last piece broke off in, with enough of this one to finish it.
            for ahead in (4096, MAX_TEXT + 16):
                joined = self.tail + bytes(chunk[:min(length, ahead)])
                at = self._take(joined, len(self.tail))
                if at or length <= ahead:
                    break
            if not at:
                self.tail = joined  # still not enough of it
                at = length
            else:
                at -= len(self.tail)
                self.tail = b""
        if at < length:
            at += self._take(chunk[at:], length - at)
            self.tail = bytes(chunk[at:])
        if len(self.tail) > MAX_TEXT + 16:
            self._fail(b"a text too long")

    cdef Py_ssize_t _take(self, const uint8_t[::1] data, Py_ssize_t stop) except -1:
        """Decodes until `stop` or beyond, or to where an opcode is cut off; returns where that is."""
        cdef const uint8_t *start = &data[0]
        cdef size_t length = <size_t>data.shape[0], at
        with nogil:
            at = self._parse(start, length, <size_t>stop)
        if self.problem != NULL:
            self._fail(self.problem)
        self.fed += at
        return <Py_ssize_t>at

    cdef int _fail(self, const char *problem) except -1:
        raise Unsupported(problem.decode())

    cdef size_t _parse(self, const uint8_t *data, size_t length, size_t stop) except? 0 nogil:
        cdef size_t at = 0, left, count
        cdef uint8_t op
        cdef uint64_t number
        cdef Value *top
        if not self.started:
            if length < 2:
                return 0
            if data[0] != 0x80 or data[1] < 2 or data[1] > 5:
                self.problem = b"another protocol"
                return at
            self.started = True
            at = 2
        while at < stop and self.problem == NULL:
            if self.done:
                self.problem = b"bytes behind the end"
                return at
            op = data[at]
            left = length - at - 1
            if op == LONG_BINGET:
                if left < 4:
                    return at
                self._fetch(little4(data + at + 1))
                at += 5
            elif op == BINGET:
                if left < 1:
                    return at
                self._fetch(data[at + 1])
                at += 2
            elif op == BININT1:
                if left < 1:
                    return at
                self._push(IS_INT, data[at + 1])
                at += 2
            elif op == BININT2:
                if left < 2:
                    return at
                self._push(IS_INT, little(data + at + 1, 2))
                at += 3
            elif op == BININT:
                if left < 4:
                    return at
                self._push(IS_INT, <uint64_t><int64_t><int32_t>little4(data + at + 1))
                at += 5
            elif op == LONG1:
                if left < 1 or left < 1 + <size_t>data[at + 1]:
                    return at
                count = data[at + 1]
                self._long(data + at + 2, <size_t>count)
                at += 2 + count
            elif op == MEMOIZE:
                self._memoize()
                at += 1
            elif op == BINPUT:
                if left < 1:
                    return at
                self._put(data[at + 1])
                at += 2
            elif op == LONG_BINPUT:
                if left < 4:
                    return at
                self._put(little4(data + at + 1))
                at += 5
            elif op == MARK:
                self.marks.push_back(self.stack.size())
                if self.marks.size() > 4 * MAX_DEPTH:
                    self.problem = b"nested too deep"
                at += 1
            elif op == EMPTY_DICT:
                if not self.stack.empty() and self.stack.back().kind == IS_EVENT:
                    count = self._quick_event(data, at, length)
                    if count:
                        at = count
                        continue
                self._push(IS_NEW_DICT, 0)
                at += 1
            elif op == EMPTY_LIST:
                self._push(IS_NEW_LIST, 0)
                at += 1
            elif op == SETITEMS or op == APPENDS:
                if self.marks.empty():
                    self.problem = b"no mark"
                    return at
                count = self.marks.back()
                self.marks.pop_back()
                if op == SETITEMS:
                    self._set_items(count)
                else:
                    self._append(count)
                at += 1
            elif op == SETITEM:
                self._set_items(self.stack.size() - 2 if self.stack.size() > 2 else 0)
                at += 1
            elif op == APPEND:
                self._append(self.stack.size() - 1 if self.stack.size() > 1 else 0)
                at += 1
            elif op == SHORT_BINUNICODE:
                if left < 1 or left < 1 + <size_t>data[at + 1]:
                    return at
                count = data[at + 1]
                self._push(IS_STR, self.strings.add(data + at + 2, count))
                at += 2 + count
            elif op == BINUNICODE:
                if left < 4:
                    return at
                count = little4(data + at + 1)
                if count > MAX_TEXT:
                    self.problem = b"a text too long"
                    return at
                if left < 4 + count:
                    return at
                self._push(IS_STR, self.strings.add(data + at + 5, count))
                at += 5 + count
            elif op == TUPLE2:
                self._pair()
                at += 1
            elif op == NONE:
                self._push(IS_NONE, 0)
                at += 1
            elif op == TRUE or op == FALSE:
                self._push(IS_BOOL, op == TRUE)
                at += 1
            elif op == BINFLOAT:
                if left < 8:
                    return at
                number = 0
                for count in range(8):
                    number = number << 8 | data[at + 1 + count]
                self._push(IS_FLOAT, number)
                at += 9
            elif op == FRAME_START:
                if left < 8:
                    return at
                number = little(data + at + 1, 8)
                if self.fed + at < self.frame_end or number > <uint64_t>1 << 62:
                    self.problem = b"frames within frames"
                    return at
                at += 9
                self.frame_end = self.fed + at + number
            elif op == STOP:
                if self.stack.size() != 1 or not self.marks.empty():
                    self.problem = b"ends in the middle"
                    return at
                self.done = True
                at += 1
            else:
                self.problem = b"an opcode that no snapshot needs"
                return at
        return at

    cdef int _push(self, uint8_t kind, uint64_t number) except -1 nogil:
        cdef Value value
        value.kind = kind
        value.fresh = 1
        value.memo = 0
        value.number = number
        if self.stack.size() >= MAX_STACK:
            self.problem = b"too many values at once"
            return 0
        self.stack.push_back(value)
        return 0

    cdef int _fetch(self, uint32_t place) except -1 nogil:
        """Pushes what is in the memo."""
        cdef Value value
        cdef uint32_t entry
        if place >= self.memo.size():
            self.problem = b"fetches what was never stored"
            return 0
        entry = self.memo.at(place)
        if entry >> 28 == IS_PENDING:
            entry = self._early(place, entry & 0x0fffffff)
        value.kind = entry >> 28
        value.fresh = 0
        value.memo = 0
        value.number = entry & 0x0fffffff
        if value.kind == IS_PENDING or value.kind == IS_GONE:
            self.problem = b"shares what no snapshot shares"
            return 0
        if self.stack.size() >= MAX_STACK:
            self.problem = b"too many values at once"
            return 0
        self.stack.push_back(value)
        return 0

    cdef uint32_t _early(self, uint32_t place, size_t position) except? 0 nogil:
        """The memo's entry for a list that is needed before it has found its own place; nothing may be added to it."""
        cdef Value *value
        if position < self.stack.size():
            value = &self.stack.at(position)
            if value.memo == place + 1 and (value.kind == IS_STACK or value.kind == IS_NEW_LIST):
                self._settle(value)
                value.fresh = 0
        return self.memo.at(place)

    cdef int _put(self, uint64_t place) except -1 nogil:
        if place != self.memo.size():
            self.problem = b"a memo with gaps"
            return 0
        return self._memoize()

    cdef int _memoize(self) except -1 nogil:
        cdef Value *top
        if self.stack.empty() or self.memo.size() >= MAX_MEMO:
            self.problem = b"stores nothing"
            return 0
        top = &self.stack.back()
        if not top.fresh or top.memo:
            self.problem = b"stores twice"
        elif top.kind == IS_STR or top.kind == IS_POOL:
            self.memo.push(<uint32_t>(<uint32_t>top.kind << 28 | top.number))
        elif top.kind == IS_NEW_DICT or top.kind == IS_NEW_LIST:
            self.memo.push(<uint32_t>(<uint32_t>IS_PENDING << 28 | self.stack.size() - 1))
            top.memo = <uint32_t>self.memo.size()
        else:
            self.problem = b"stores what picklers do not"
        return 0

    cdef int _long(self, const uint8_t *data, size_t count) except -1 nogil:
        cdef uint64_t number
        if count > 9 or (count == 9 and data[8]):
            self.problem = b"a number too large"
        elif count == 9 and data[7] & 0x80:
            self._push(IS_UINT, little(data, 8))
        else:
            number = little(data, min(count, 8))
            if count and count < 8 and data[count - 1] & 0x80:
                number |= ~<uint64_t>0 << (8 * count)
            self._push(IS_INT, number)
        return 0

    cdef int _pair(self) except -1 nogil:
        """A tuple of two numbers: the id of a pool."""
        cdef uint64_t[2] pair
        cdef Value *value
        cdef size_t i, size = self.stack.size()
        if size < 2 or (not self.marks.empty() and size - 2 < self.marks.back()):
            self.problem = b"a tuple of nothing"
            return 0
        for i in range(2):
            value = &self.stack.at(size - 2 + i)
            if value.kind != IS_UINT and (value.kind != IS_INT or <int64_t>value.number < 0):
                self.problem = b"a tuple of other things than numbers"
                return 0
            pair[i] = value.number
        self.stack.pop_back()
        self.stack.pop_back()
        return self._push(IS_POOL, self.pools.add(&pair[0], sizeof(pair)))

    cdef int _settle(self, Value *value) except -1 nogil:
        """A value finds its place in another one: it is complete, and the memo may give it out from now on."""
        cdef uint32_t entry = <uint32_t>IS_GONE << 28
        if value.kind == IS_NEW_LIST:
            value.kind = IS_EMPTY
        elif value.kind == IS_NEW_DICT:
            value.kind = IS_DICT
            value.number = self._node(self.stack.size(), self.stack.size())
        if value.memo:
            if value.kind == IS_FRAME or value.kind == IS_STACK or value.kind == IS_EMPTY:
                entry = <uint32_t>(<uint32_t>value.kind << 28 | value.number)
            self.memo.set(value.memo - 1, entry)
            value.memo = 0
        return 0

    cdef uint64_t _node(self, size_t start, size_t stop) except? 0 nogil:
        """Keeps the values [start, stop) of the stack as a dict or list of ordinary objects."""
        self.nodes.push_back(vector[Value]())
        self.depths.push_back(0)
        self._extend(self.nodes.size() - 1, start, stop)
        return self.nodes.size() - 1

    cdef int _extend(self, size_t node, size_t start, size_t stop) except -1 nogil:
        cdef size_t i
        cdef Value value
        cdef uint8_t depth = self.depths.at(node)
        self.objects += OBJECT_BYTES * (2 + stop - start)
        if self.objects > FLOOR + FACTOR * self.fed:
            self.problem = b"more objects than a file of this size holds"
            return 0
        for i in range(start, stop):
            value = self.stack.at(i)
            if value.kind == IS_DICT or value.kind == IS_LIST:
                depth = max(depth, <uint8_t>(self.depths.at(value.number) + 1))
            self.nodes.at(node).push_back(value)
        (&self.depths.at(node))[0] = depth
        if depth > MAX_DEPTH:
            self.problem = b"nested too deep"
        return 0

    cdef int _set_items(self, size_t start) except -1 nogil:
        """Makes a dict of the keys and values from `start` on."""
        cdef size_t i, stop = self.stack.size()
        cdef Value *target
        cdef uint8_t kind = IS_DICT
        cdef uint64_t number = 0
        if start < 1 or start >= stop or (stop - start) % 2:
            self.problem = b"a dict of nothing"
            return 0
        if not self.marks.empty() and start - 1 < self.marks.back():
            self.problem = b"a dict across a mark"
            return 0
        if self.stack.at(start - 1).kind != IS_NEW_DICT:
            self.problem = b"adds to what is complete"
            return 0
        for i in range(start, stop):
            self._settle(&self.stack.at(i))
            if (i - start) % 2 == 0 and self.stack.at(i).kind != IS_STR:
                self.problem = b"a key that is no text"
                return 0
        if self.stack.at(start).number == W_ACTION:
            kind = IS_EVENT
            number = self.action.size()
            self._event(start, stop)
        elif self._is_frame(start, stop):
            kind = IS_FRAME
            number = self._frame(start, stop)
        else:
            number = self._node(start, stop)
        if self.problem == NULL:
            self.stack.resize(start)
            target = &self.stack.back()
            target.kind = kind
            target.number = number
            self._settle(target)  # a dict is complete at once: the same frame may come again in the same list
        return 0

    cdef cbool _is_frame(self, size_t start, size_t stop) except? False nogil:
        """Whether the keys are those of a frame, each once."""
        cdef uint32_t seen = 0, bit
        cdef uint64_t word
        cdef size_t i
        for i in range(start, stop, 2):
            word = self.stack.at(i).number
            if word < W_NAME or word > W_FX_TRACE:
                return False
            bit = 1 << (word - W_NAME)
            if seen & bit:
                return False
            seen |= bit
        return seen & 7 == 7

    cdef uint64_t _frame(self, size_t start, size_t stop) except? 0 nogil:
        cdef uint32_t[3] key
        cdef uint64_t word
        cdef Value *value
        cdef size_t i
        for i in range(start, stop, 2):
            word = self.stack.at(i).number
            value = &self.stack.at(i + 1)
            if word == W_NAME or word == W_FILENAME:
                if value.kind != IS_STR:
                    self.problem = b"a name that is no text"
                    return 0
                key[word - W_NAME] = <uint32_t>value.number
            elif word == W_LINE:
                if value.kind != IS_INT and value.kind != IS_UINT:
                    self.problem = b"a line that is no number"
                    return 0
                key[2] = <uint32_t>value.number if value.number <= MAX_LINE else 0
            elif value.kind != IS_STR and value.kind != IS_NONE:
                self.problem = b"a frame with more than texts"
                return 0
            elif word == W_FX_TRACE and value.kind == IS_STR and value.number != W_NO_TEXT:
                self.problem = b"a frame with others in it"  # Python's own way
                return 0
        return self.frames.add(&key[0], sizeof(key))

    cdef int _event(self, size_t start, size_t stop) except -1 nogil:
        cdef Row row = blank()
        cdef size_t i
        for i in range(start, stop, 2):
            self._field(&row, self.stack.at(i).number, self.stack.at(i + 1).kind, self.stack.at(i + 1).number)
        return self._commit(&row)

    cdef int _field(self, Row *row, uint64_t word, uint8_t kind, uint64_t number) except -1 nogil:
        """One key of an event and its value."""
        if word > W_FREE or row.seen & 1 << word:
            self.problem = b"an event with another key"
            return 0
        row.seen |= 1 << word
        if word == W_ACTION:
            row.action = number - W_ALLOC
            if kind != IS_STR or number < W_ALLOC or row.action >= ACTIONS:
                self.problem = b"an event of another kind"
        elif word == W_ADDR:
            row.address = number
            if kind != IS_INT and kind != IS_UINT:
                self.problem = b"an address that is no number"
        elif word == W_STREAM:
            row.stream = number
            row.keys |= HAS_STREAM
            if kind != IS_INT and kind != IS_UINT:
                self.problem = b"a stream that is no number"
        elif word == W_SIZE:
            row.size = <int64_t>number
            if kind != IS_INT or number >= MAX_SIZE:
                self.problem = b"a size out of range"
        elif word == W_FREE:
            row.free = number
            if kind != IS_INT or number >= MAX_SIZE:
                self.problem = b"a size out of range"
        elif word == W_TIME:
            row.time = <int64_t>number
            row.keys |= HAS_TIME
            if kind != IS_INT:
                self.problem = b"a time out of range"
        elif word == W_FRAMES:
            if kind == IS_STACK:
                row.stack = <int32_t>number
            elif kind != IS_EMPTY:
                self.problem = b"frames that are none"
        elif word == W_POOL:
            row.keys |= HAS_POOL
            if kind == IS_POOL:
                row.pool = <int32_t>number
            elif kind != IS_NONE:
                self.problem = b"a pool id that is none"
        elif kind != IS_STR and kind != IS_NONE:
            self.problem = b"a text that is none"
        else:
            if kind == IS_NONE:
                number = W_NO_TEXT
            if word == W_CONTEXT:
                row.keys |= HAS_CONTEXT
                row.context = text_code(number)
            else:
                row.keys |= HAS_METADATA
                row.metadata = text_code(number)
        return 0

    cdef int _commit(self, Row *row) except -1 nogil:
        """Adds a row to each column."""
        cdef uint64_t number = self.action.size()
        if row.action <= LAST_PLACED and not (row.seen & 1 << W_ADDR and row.seen & 1 << W_SIZE):
            self.problem = b"an event without a place"
        elif row.action == OOM and (not row.seen & 1 << W_FREE or row.seen & 1 << W_ADDR):
            self.problem = b"a failure with a place"
        elif row.action != OOM and row.seen & 1 << W_FREE:
            self.problem = b"an event that is half a failure"
        if self.problem != NULL:
            return 0
        self.action.push(<uint8_t>row.action)
        self.address.push(row.address)
        self.size.push(row.size)
        self.stream.push(row.stream)
        self.stack_of.push(row.stack)
        self.time.push(row.time)
        self.pool.push(row.pool)
        self.context.push(row.context)
        self.metadata.push(row.metadata)
        if row.action == OOM:
            self.frees.push_back(Free(number, row.free))
        if row.keys != self.keys:
            self.keys = row.keys
            self.keys_since = number
        return 0

    cdef size_t _quick_event(self, const uint8_t *data, size_t at, size_t length) except? 0 nogil:
        """One whole event in its usual form, without the stack.

        Returns:
            Where the next opcode is; 0 where anything is unusual, with nothing changed, for the slow way to take over.
        """
        cdef size_t before = self.memo.size(), stacks
        cdef Row row = blank()
        cdef Value value
        cdef uint64_t word, count
        cdef uint32_t entry
        cdef uint8_t op
        at = self._quick_store(data, at + 1, length, <uint32_t>IS_GONE << 28)
        if not at or at >= length or data[at] != MARK:
            self.memo.truncate(before)
            return 0
        at += 1
        while at + 12 <= length:
            op = data[at]
            if op == SETITEMS:
                if not row.seen & 1 << W_ACTION:
                    break
                self._commit(&row)
                if self.problem != NULL:
                    break
                self._push(IS_EVENT, self.action.size() - 1)
                return at + 1
            # The key, a text that was used before.
            if op == BINGET:
                entry = data[at + 1]
                at += 2
            elif op == LONG_BINGET:
                entry = little4(data + at + 1)
                at += 5
            else:
                break
            if entry >= self.memo.size():
                break
            entry = self.memo.at(entry)
            if entry >> 28 != IS_STR:
                break
            word = entry & 0x0fffffff
            if not row.seen and word != W_ACTION:
                break
            if at + 12 > length:
                break
            op = data[at]
            value.kind = IS_INT
            if op == BININT1:
                value.number = data[at + 1]
                at += 2
            elif op == BINGET or op == LONG_BINGET:
                if op == BINGET:
                    entry = data[at + 1]
                    at += 2
                else:
                    entry = little4(data + at + 1)
                    at += 5
                if entry >= self.memo.size():
                    break
                entry = self.memo.at(entry)
                value.kind = entry >> 28
                value.number = entry & 0x0fffffff
                if value.kind == IS_PENDING or value.kind == IS_GONE:
                    break
                if word == W_POOL and data[at] == TUPLE2:
                    break
            elif op == LONG1:
                count = data[at + 1]
                if count > 8 or not count or data[at + 1 + count] & 0x80:
                    break
                value.number = little(data + at + 2, count)
                at += 2 + count
            elif op == BININT:
                value.number = <uint64_t><int64_t><int32_t>little4(data + at + 1)
                at += 5
            elif op == BININT2:
                value.number = little(data + at + 1, 2)
                at += 3
            elif op == SHORT_BINUNICODE:
                count = data[at + 1]
                if at + 2 + count + 12 > length:
                    break
                value.kind = IS_STR
                if count == 3 and data[at + 2] == 78 and data[at + 3] == 47 and data[at + 4] == 65:
                    value.number = W_NO_CONTEXT
                else:
                    value.number = self.strings.add(data + at + 2, count)
                at = self._quick_store(data, at + 2 + count, length, <uint32_t>(<uint32_t>IS_STR << 28 | value.number))
                if not at:
                    break
            elif op == EMPTY_LIST and word == W_FRAMES:
                at = self._quick_stack(data, at + 1, length, &value)
                if not at:
                    break
            else:
                break
            if word == W_POOL and value.kind == IS_INT:
                if at + 12 > length or data[at] != BININT1 or data[at + 2] != TUPLE2:
                    break
                if not self._quick_pool(value.number, data[at + 1], &value):
                    break
                at = self._quick_store(data, at + 3, length, <uint32_t>(<uint32_t>IS_POOL << 28 | value.number))
                if not at:
                    break
            self._field(&row, word, value.kind, value.number)
            if self.problem != NULL:
                break
        self.problem = NULL
        self.memo.truncate(before)
        return 0

    cdef size_t _quick_store(
        self, const uint8_t *data, size_t at, size_t length, uint32_t entry
    ) except? 0 nogil:
        """Stores an entry in the memo if that comes next; returns where the next opcode is, 0 where it is unusual."""
        if at + 6 > length:
            return 0
        if data[at] == MEMOIZE:
            at += 1
        elif data[at] == BINPUT and data[at + 1] == self.memo.size():
            at += 2
        elif data[at] == LONG_BINPUT and little4(data + at + 1) == self.memo.size():
            at += 5
        else:
            return 0
        if self.memo.size() >= MAX_MEMO:
            return 0
        self.memo.push(entry)
        return at

    cdef size_t _quick_stack(self, const uint8_t *data, size_t at, size_t length, Value *value) except? 0 nogil:
        """A list of frames that are all known already."""
        cdef size_t place = self.memo.size()
        cdef uint32_t entry
        cdef uint8_t op
        at = self._quick_store(data, at, length, 0)
        if not at or at >= length or data[at] != MARK:
            return 0
        at += 1
        self.scratch.clear()
        while at + 6 <= length:
            op = data[at]
            if op == LONG_BINGET:
                entry = little4(data + at + 1)
                at += 5
            elif op == BINGET:
                entry = data[at + 1]
                at += 2
            elif op == APPENDS and 0 < self.scratch.size() < BATCH and at + 1 < length and data[at + 1] != MARK:
                value.kind = IS_STACK
                value.number = self.stacks.add(self.scratch.data(), self.scratch.size() * sizeof(uint32_t))
                self.memo.set(place, <uint32_t>(<uint32_t>IS_STACK << 28 | value.number))
                return at + 1
            else:
                return 0
            if entry >= self.memo.size():
                return 0
            entry = self.memo.at(entry)
            if entry >> 28 != IS_FRAME or self.scratch.size() >= BATCH:
                return 0
            self.scratch.push_back(entry & 0x0fffffff)
        return 0

    cdef cbool _quick_pool(self, uint64_t first, uint64_t second, Value *value) except? False nogil:
        cdef uint64_t[2] pair
        if first >> 63:
            return False
        pair[0] = first
        pair[1] = second
        value.kind = IS_POOL
        value.number = self.pools.add(&pair[0], sizeof(pair))
        return True

    cdef int _append(self, size_t start) except -1 nogil:
        """Adds the values from `start` on to the list before them."""
        cdef size_t i, stop = self.stack.size()
        cdef uint8_t kind
        cdef Value *target
        cdef cbool alike = True
        if start < 1 or start >= stop:
            self.problem = b"a list of nothing"
            return 0
        if not self.marks.empty() and start - 1 < self.marks.back():
            self.problem = b"a list across a mark"
            return 0
        if not self.stack.at(start - 1).fresh:
            self.problem = b"adds to what is shared"
            return 0
        for i in range(start, stop):
            self._settle(&self.stack.at(i))
        kind = self.stack.at(start).kind
        for i in range(start, stop):
            alike = alike and self.stack.at(i).kind == kind
        if alike and kind == IS_FRAME:
            self._add_frames(start, stop)
        elif alike and kind == IS_EVENT:
            self._add_events(start, stop)
        else:
            self._add_objects(start, stop)
        if self.problem == NULL:
            self.stack.resize(start)
        return 0

    cdef int _add_frames(self, size_t start, size_t stop) except -1 nogil:
        cdef Value *target = &self.stack.at(start - 1)
        cdef size_t i, known = 0
        self.scratch.clear()
        if target.kind == IS_STACK:
            known = self.stacks.length(<uint32_t>target.number) // sizeof(uint32_t)
            if known % BATCH or known + stop - start > MAX_FRAMES:
                self.problem = b"a stack in odd pieces"
                return 0
            for i in range(known):
                self.scratch.push_back(self.stacks.number(<uint32_t>target.number, i))
        elif target.kind != IS_NEW_LIST:
            self.problem = b"frames among other things"
            return 0
        for i in range(start, stop):
            self.scratch.push_back(<uint32_t>self.stack.at(i).number)
        target.kind = IS_STACK
        target.number = self.stacks.add(self.scratch.data(), self.scratch.size() * sizeof(uint32_t))
        return 0

    cdef int _add_events(self, size_t start, size_t stop) except -1 nogil:
        cdef Value *target = &self.stack.at(start - 1)
        cdef uint64_t first = self.stack.at(start).number
        cdef Run *run
        cdef size_t i
        for i in range(start, stop):
            if self.stack.at(i).number != first + (i - start):
                self.problem = b"events out of order"
                return 0
        if target.kind == IS_NEW_LIST:
            self.runs.push_back(Run(first, 0, self.keys))
            target.kind = IS_EVENTS
            target.number = self.runs.size() - 1
        elif target.kind != IS_EVENTS:
            self.problem = b"events among other things"
            return 0
        run = &self.runs.at(target.number)
        if run.first + run.count != first or self.keys_since > run.first or self.keys != run.keys:
            self.problem = b"events of several kinds"
            return 0
        run.count += stop - start
        return 0

    cdef int _add_objects(self, size_t start, size_t stop) except -1 nogil:
        cdef Value *target = &self.stack.at(start - 1)
        if target.kind == IS_NEW_LIST:
            target.number = self._node(start, stop)
            target.kind = IS_LIST
        elif target.kind == IS_LIST:
            self._extend(target.number, start, stop)
        else:
            self.problem = b"a list of several kinds"
        return 0

    def finish(self):
        """What the pickle holds, with an `EventRun` for each list of events and a `StackRef` for each list of frames.

        Raises:
            Unsupported: It is not complete, or not of the expected shape.
        """
        if not self.done or self.tail or self.frame_end > self.fed:
            self._fail(b"ends early")
        self.memo.clear()
        cdef Value root = self.stack.at(0)
        cdef list texts = [None] * self.strings.size()
        try:
            for i in range(self.strings.size()):
                texts[i] = self.strings.data(i)[:self.strings.length(i)].decode("utf-8")
        except UnicodeDecodeError:
            self._fail(b"a text that is none")
        return self._object(root, texts, "")

    cdef object _object(self, Value value, list texts, str key):
        """A value as a Python object; `key` is what it stands under."""
        cdef double real
        cdef size_t i
        cdef vector[Value] *node
        cdef dict made
        if value.kind == IS_NONE:
            return None
        if value.kind == IS_STR:
            return texts[value.number]
        if value.kind == IS_INT:
            return <int64_t>value.number
        if value.kind == IS_BOOL:
            return bool(value.number)
        if value.kind == IS_EMPTY:
            return []
        if value.kind == IS_POOL:
            return self.pair(value.number)
        if value.kind == IS_UINT:
            return value.number
        if value.kind == IS_FLOAT:
            memcpy(&real, &value.number, sizeof(real))
            return real
        if value.kind == IS_STACK and key == "frames":
            return StackRef(<uint32_t>value.number)
        if value.kind == IS_EVENTS and key in ("device_traces", "host_traces"):
            run = self.runs.at(value.number)
            return EventRun(run.first, run.count, frozenset(name for bit, name in KEYS if run.keys & bit))
        if value.kind == IS_LIST:
            node = &self.nodes.at(value.number)
            return [self._object(node.at(i), texts, key) for i in range(node.size())]
        if value.kind == IS_DICT:
            node = &self.nodes.at(value.number)
            made = {}
            for i in range(0, node.size(), 2):
                name = texts[node.at(i).number]
                if name in made:
                    self._fail(b"a key twice")
                made[name] = self._object(node.at(i + 1), texts, name)
                if name == "frames" and node.at(i + 1).kind not in (IS_STACK, IS_EMPTY, IS_NONE):
                    self._fail(b"frames that are none")
                if name == "forward_frames" and node.at(i + 1).kind not in (IS_EMPTY, IS_NONE):
                    self._fail(b"forward frames")  # which join the others: Python's own way
            return made
        self._fail(b"frames or events where none belong")

    def pair(self, number):
        """The numbers of a pool's id."""
        cdef uint64_t[2] pair
        if self.pools.length(number) != sizeof(pair):
            raise IndexError(number)
        memcpy(&pair[0], self.pools.data(number), sizeof(pair))
        return (pair[0], pair[1])

    def text(self, number):
        """A text by its number in the columns."""
        return self.strings.data(number)[:self.strings.length(number)].decode("utf-8")

    def counts(self):
        """How many stacks, pools and texts the columns' numbers can mean."""
        return self.stacks.size(), self.pools.size(), self.strings.size()

    def columns(self):
        """The columns of all events of all devices; the decoder keeps none of it.

        Returns:
            Arrays by name. Those of pool, context and metadata are read-only when all their values are the same.
        """
        cdef size_t n = self.action.size()
        return {
            "action": memory(self.action.release(), n, np.uint8),
            "address": memory(self.address.release(), n, np.uint64),
            "size": memory(self.size.release(), n, np.int64),
            "stream": memory(self.stream.release(), n, np.uint64),
            "stack": memory(self.stack_of.release(), n, np.int32),
            "time_us": memory(self.time.release(), n, np.int64),
            "pool": codes(self.pool),
            "context": codes(self.context),
            "metadata": codes(self.metadata),
        }

    def device_free(self):
        """(row, free bytes) of each failed request."""
        return [(self.frees.at(i).row, self.frees.at(i).size) for i in range(self.frees.size())]

    def stack_table(self, const int32_t[::1] order):
        """The stacks in a given order, with their frames in the order of first use.

        Returns:
            (filename, line, name) of each frame; int64[stacks + 1], where each stack starts; int32[sum of depths],
            numbers of frames.
        """
        cdef size_t i, k, depth, total = 0, at = 0
        cdef uint32_t stack, frame
        for i in range(<size_t>order.shape[0]):
            total += self.stacks.length(<uint32_t>order[i]) // sizeof(uint32_t)
        offsets = np.zeros(order.shape[0] + 1, np.int64)
        ids = np.empty(total, np.int32)
        known = np.full(self.frames.size(), -1, np.int32)
        cdef int64_t[::1] starts = offsets
        cdef int32_t[::1] numbers = ids, number_of = known
        cdef list frames = []
        for i in range(<size_t>order.shape[0]):
            stack = <uint32_t>order[i]
            depth = self.stacks.length(stack) // sizeof(uint32_t)
            for k in range(depth):
                frame = self.stacks.number(stack, k)
                if number_of[frame] < 0:
                    number_of[frame] = <int32_t>len(frames)
                    frames.append(
                        (
                            self.text(self.frames.number(frame, 1)),
                            self.frames.number(frame, 2),
                            self.text(self.frames.number(frame, 0)),
                        )
                    )
                numbers[at] = number_of[frame]
                at += 1
            starts[i + 1] = at
        return frames, offsets, ids


cdef object codes(Codes &column):
    cdef size_t n = column.size()
    if column.varies():
        return memory(column.rows().release(), n, np.int32)
    return np.broadcast_to(np.int32(column.first()), n)


def renumber(int32_t[::1] values, int32_t[::1] number_of, list order):
    """Gives values new numbers in the order of their first use, in place; negative ones stay.

    Args:
        values: int32[n].
        number_of: int32[values that there can be], the new number of each old one, -1 for none yet; added to.
        order: The old ones by new number; added to.
    """
    cdef Py_ssize_t i
    cdef int32_t old, new
    for i in range(values.shape[0]):
        old = values[i]
        if old < 0:
            continue
        new = number_of[old]
        if new < 0:
            new = number_of[old] = <int32_t>len(order)
            order.append(old)
        values[i] = new
