// Ordered factorisations of an integer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace autotune {

// Values that one factor may have, sorted; nothing when it may be any divisor.
using FactorDomain = std::optional<std::vector<std::int64_t>>;

// Every tuple of factors inside `domains` with the product `total`, lexicographic, one after the other.
// Throws std::invalid_argument for a total below 1, for no factors or an unsorted domain, std::length_error for more
// than `limit` tuples or for many times as many beginnings of tuples.
std::vector<std::int64_t> ordered_factorizations(std::int64_t total, const std::vector<FactorDomain>& domains,
                                                 std::int64_t limit);

}  // namespace autotune
