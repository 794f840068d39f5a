// Blocks of the simulated allocator, and the order in which it searches the idle ones.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <vector>

namespace oomctl {

struct Block {
    std::int64_t address = 0;
    std::int64_t size = 0;
    std::int64_t born = 0;     // searches of its pool when it became idle
    std::int32_t prev = -1;    // neighbours in its segment or region, -1 for none
    std::int32_t next = -1;
    std::int32_t arena = 0;
    std::int32_t region = -1;  // -1 for a block of a fixed segment
    bool idle = false;
    bool mapped = true;
};

// A growing table of blocks that never moves one, so that a pointer to it stays good.
class Blocks {
  public:
    void push_back(const Block &block) {
        if (size_ == pages_.size() * PAGE) pages_.emplace_back(new Block[PAGE]);
        pages_[size_ / PAGE][size_ % PAGE] = block;
        ++size_;
    }

    Block &at(std::size_t i) {
        if (i >= size_) throw std::out_of_range("block");
        return pages_[i / PAGE][i % PAGE];
    }

    std::size_t size() const { return size_; }

  private:
    static constexpr std::size_t PAGE = 1024;
    std::vector<std::unique_ptr<Block[]>> pages_;
    std::size_t size_ = 0;
};

struct Fit {
    std::int64_t size = 0;
    std::int64_t address = 0;
    std::int32_t block = -1;

    Fit() = default;
    Fit(std::int64_t size, std::int64_t address, std::int32_t block) : size(size), address(address), block(block) {}

    bool operator<(const Fit &other) const {
        return size != other.size ? size < other.size : address < other.address;
    }
};

}  // namespace oomctl
