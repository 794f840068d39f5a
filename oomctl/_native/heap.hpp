// Blocks of the simulated allocator, and the order in which it searches the idle ones.
#pragma once

#include <cstdint>

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
