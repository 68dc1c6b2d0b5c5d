// Rows in blocks: aligned scratch memory, and blocks shared out to threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

namespace autotune {

// Rows that kernels work on at a time: so many that starting an instruction of a tape costs little beside running it.
constexpr int kBlock = 128;
constexpr int kMaxThreads = 1024;

// Doubles aligned for any vector register; not initialised.
class AlignedDoubles {
  public:
    explicit AlignedDoubles(std::size_t count) {
        const std::size_t bytes = std::max<std::size_t>(64, (count * sizeof(double) + 63) / 64 * 64);
        data_.reset(static_cast<double*>(std::aligned_alloc(64, bytes)));
        if (!data_) {
            throw std::bad_alloc();
        }
    }
    double* get() { return data_.get(); }
    const double* get() const { return data_.get(); }

  private:
    struct Free {
        void operator()(double* pointer) const { std::free(pointer); }
    };
    std::unique_ptr<double[], Free> data_;
};

// Calls work(first, last) for consecutive ranges of the blocks of `rows` rows (first and last are rows, first a
// multiple of kBlock): once on the calling thread, or on `threads` threads. The first exception is thrown again here.
template <class Work>
void for_row_ranges(std::int64_t rows, int threads, const Work& work) {
    if (threads < 1 || threads > kMaxThreads) {
        throw std::invalid_argument("the number of threads is between 1 and 1024");
    }
    const std::int64_t blocks = (rows + kBlock - 1) / kBlock;
    const std::int64_t parts = std::min<std::int64_t>(threads, blocks);
    if (parts <= 1) {
        if (rows > 0) {
            work(std::int64_t{0}, rows);
        }
        return;
    }
    std::vector<std::exception_ptr> errors(static_cast<std::size_t>(parts));
    std::vector<std::thread> pool;
    pool.reserve(static_cast<std::size_t>(parts));
    const auto join = [&pool] {
        for (std::thread& thread : pool) {
            thread.join();
        }
    };
    try {
        for (std::int64_t part = 0; part < parts; ++part) {
            pool.emplace_back([&, part] {
                try {
                    const std::int64_t first = blocks * part / parts * kBlock;
                    work(first, std::min(rows, blocks * (part + 1) / parts * kBlock));
                } catch (...) {
                    errors[static_cast<std::size_t>(part)] = std::current_exception();
                }
            });
        }
    } catch (...) {
        join();
        throw;
    }
    join();
    for (const std::exception_ptr& error : errors) {
        if (error) {
            std::rethrow_exception(error);
        }
    }
}

}  // namespace autotune
