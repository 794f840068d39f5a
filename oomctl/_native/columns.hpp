// Storage of the kernels: growing columns and a table of distinct byte strings. Every access by index is checked.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

namespace oomctl {

// A growing array in malloc's memory: large ones grow by remapping pages, so that growth neither copies nor touches
// memory that is not used yet; and the memory can be handed to numpy as it is.
template <class T>
class Column {
  public:
    Column() = default;
    Column(const Column &) = delete;
    Column &operator=(const Column &) = delete;
    ~Column() { std::free(data_); }

    void push(T value) {
        if (size_ == capacity_) grow(size_ + 1);
        data_[size_++] = value;
    }

    void fill(T value, std::size_t count) {
        if (count > capacity_ - size_) grow(size_ + count);
        for (std::size_t i = 0; i < count; ++i) data_[size_++] = value;
    }

    T at(std::size_t i) const {
        if (i >= size_) throw std::out_of_range("column");
        return data_[i];
    }

    void set(std::size_t i, T value) {
        if (i >= size_) throw std::out_of_range("column");
        data_[i] = value;
    }

    std::size_t size() const { return size_; }

    void truncate(std::size_t size) {
        if (size < size_) size_ = size;
    }

    void clear() {
        std::free(data_);
        data_ = nullptr;
        size_ = capacity_ = 0;
    }

    // The memory itself, shrunk to its content; the caller frees it. Null when there is none.
    void *release() {
        if (size_ && size_ < capacity_) {
            void *less = std::realloc(data_, size_ * sizeof(T));
            if (less) data_ = static_cast<T *>(less);
        }
        void *memory = data_;
        data_ = nullptr;
        size_ = capacity_ = 0;
        return memory;
    }

  private:
    void grow(std::size_t least) {
        std::size_t capacity = capacity_ + capacity_ / 2 + 1024;
        if (capacity < least) capacity = least;
        if (capacity > SIZE_MAX / sizeof(T)) throw std::bad_alloc();
        void *more = std::realloc(data_, capacity * sizeof(T));
        if (!more) throw std::bad_alloc();
        data_ = static_cast<T *>(more);
        capacity_ = capacity;
    }

    T *data_ = nullptr;
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

// A column that costs nothing while all its values are the same.
class Codes {
  public:
    void push(std::int32_t value) {
        if (!size_) first_ = value;
        if (varies_) {
            rows_.push(value);
        } else if (value != first_) {
            varies_ = true;
            rows_.fill(first_, size_);
            rows_.push(value);
        }
        ++size_;
    }

    std::size_t size() const { return size_; }
    bool varies() const { return varies_; }
    std::int32_t first() const { return first_; }
    Column<std::int32_t> &rows() { return rows_; }

  private:
    Column<std::int32_t> rows_;
    std::int32_t first_ = -1;
    std::size_t size_ = 0;
    bool varies_ = false;
};

// Distinct byte strings, numbered in the order of their first use.
class Interner {
  public:
    explicit Interner(std::uint64_t seed) : seed_(seed | 1), slots_(1024, 0), ends_(1, 0) {}

    std::uint32_t add(const void *bytes, std::size_t length) {
        const std::uint64_t hash = hash_of(static_cast<const unsigned char *>(bytes), length);
        std::size_t slot = hash & (slots_.size() - 1);
        while (slots_[slot]) {
            const std::uint32_t known = slots_[slot] - 1;
            if (hashes_[known] == hash && equals(known, bytes, length)) return known;
            slot = (slot + 1) & (slots_.size() - 1);
        }
        if (hashes_.size() >= 0x0fffffff) throw std::length_error("too many distinct values");
        const char *begin = static_cast<const char *>(bytes);
        bytes_.insert(bytes_.end(), begin, begin + length);
        ends_.push_back(bytes_.size());
        hashes_.push_back(hash);
        slots_[slot] = static_cast<std::uint32_t>(hashes_.size());
        if (hashes_.size() * 2 > slots_.size()) rehash();
        return static_cast<std::uint32_t>(hashes_.size() - 1);
    }

    std::size_t size() const { return hashes_.size(); }

    std::size_t length(std::uint32_t id) const { return ends_.at(std::size_t(id) + 1) - ends_.at(id); }

    // Valid until the next `add`.
    const char *data(std::uint32_t id) const {
        if (id >= hashes_.size()) throw std::out_of_range("interner");
        return bytes_.data() + ends_[id];
    }

    // The i-th number of a string that consists of numbers.
    std::uint32_t number(std::uint32_t id, std::size_t i) const {
        if ((i + 1) * sizeof(std::uint32_t) > length(id)) throw std::out_of_range("interner");
        std::uint32_t value;
        std::memcpy(&value, data(id) + i * sizeof value, sizeof value);
        return value;
    }

    bool equals(std::uint32_t id, const void *bytes, std::size_t length) const {
        return this->length(id) == length && (!length || !std::memcmp(data(id), bytes, length));
    }

  private:
    // The seed differs from process to process, so that no file can be made of strings that collide.
    std::uint64_t hash_of(const unsigned char *bytes, std::size_t length) const {
        std::uint64_t hash = seed_ ^ (length * 0x9e3779b97f4a7c15u);
        std::uint64_t word = 0;
        while (length >= 8) {
            std::memcpy(&word, bytes, 8);
            hash = (hash ^ word) * 0xff51afd7ed558ccdu;
            hash ^= hash >> 32;
            bytes += 8;
            length -= 8;
        }
        word = 0;
        if (length) std::memcpy(&word, bytes, length);
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash = (hash ^ (hash >> 32)) * seed_;
        return hash ^ (hash >> 29);
    }

    void rehash() {
        std::vector<std::uint32_t> slots(slots_.size() * 2, 0);
        for (std::size_t id = 0; id < hashes_.size(); ++id) {
            std::size_t slot = hashes_[id] & (slots.size() - 1);
            while (slots[slot]) slot = (slot + 1) & (slots.size() - 1);
            slots[slot] = static_cast<std::uint32_t>(id + 1);
        }
        slots_.swap(slots);
    }

    std::uint64_t seed_;
    std::vector<std::uint32_t> slots_;
    std::vector<std::uint64_t> hashes_;
    std::vector<std::size_t> ends_;
    std::vector<char> bytes_;
};

}  // namespace oomctl
