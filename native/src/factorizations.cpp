#include "factorizations.hpp"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace autotune {
namespace {

std::vector<std::int64_t> divisors(std::int64_t value) {
    std::vector<std::int64_t> small, large;
    for (std::int64_t divisor = 1; divisor <= value / divisor; ++divisor) {
        if (value % divisor == 0) {
            small.push_back(divisor);
            if (divisor != value / divisor) {
                large.push_back(value / divisor);
            }
        }
    }
    small.insert(small.end(), large.rbegin(), large.rend());
    return small;
}

class Enumeration {
  public:
    Enumeration(const std::vector<FactorDomain>& domains, std::vector<std::int64_t> all, std::int64_t limit)
        : all_(std::move(all)), width_(domains.size()), limit_(limit), prefix_(domains.size()) {
        for (const FactorDomain& domain : domains) {
            domains_.push_back(domain ? &*domain : &all_);
        }
    }

    std::vector<std::int64_t> run(std::int64_t total) {
        extend(0, total);
        return std::move(rows_);
    }

  private:
    void extend(std::size_t position, std::int64_t rest) {
        const std::vector<std::int64_t>& domain = *domains_[position];
        // Domains may lead into many dead ends, which no row counts.
        if (++visited_ / 16 > limit_) {
            throw std::length_error("the factorizations of a product take too long to list");
        }
        if (position + 1 == width_) {
            if (std::binary_search(domain.begin(), domain.end(), rest)) {
                prefix_[position] = rest;
                add();
            }
            return;
        }
        for (const std::int64_t value : domain) {
            if (value > rest) {
                break;
            }
            if (rest % value == 0) {
                prefix_[position] = value;
                extend(position + 1, rest / value);
            }
        }
    }

    void add() {
        if (++count_ > limit_) {
            throw std::length_error("a product has more than " + std::to_string(limit_) + " factorizations");
        }
        rows_.insert(rows_.end(), prefix_.begin(), prefix_.end());
    }

    std::vector<std::int64_t> all_;
    std::size_t width_;
    std::int64_t limit_;
    std::int64_t count_ = 0;
    std::int64_t visited_ = 0;
    std::vector<const std::vector<std::int64_t>*> domains_;
    std::vector<std::int64_t> prefix_;
    std::vector<std::int64_t> rows_;
};

}  // namespace

std::vector<std::int64_t> ordered_factorizations(std::int64_t total, const std::vector<FactorDomain>& domains,
                                                 std::int64_t limit) {
    constexpr std::int64_t kLargest = std::int64_t{1} << 50;
    constexpr std::size_t kMostFactors = 64;
    if (total < 1 || total > kLargest) {
        throw std::invalid_argument("a product of factors is from 1 to 2**50, not " + std::to_string(total));
    }
    if (limit < 1) {
        throw std::invalid_argument("a limit is at least 1");
    }
    if (domains.empty() || domains.size() > kMostFactors) {
        throw std::invalid_argument("a product has from 1 to 64 factors");
    }
    for (const FactorDomain& domain : domains) {
        if (domain && (!std::is_sorted(domain->begin(), domain->end()) ||
                       std::adjacent_find(domain->begin(), domain->end()) != domain->end() ||
                       (!domain->empty() && domain->front() < 1))) {
            throw std::invalid_argument("the values of a factor are positive, different and in increasing order");
        }
    }
    return Enumeration(domains, divisors(total), limit).run(total);
}

}  // namespace autotune
