#include "machine_peak.hpp"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <thread>
#include <vector>

#include <sys/mman.h>

#include "probe_kernels.hpp"

namespace autotune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostThreads = 4096;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

void check_effort(int threads, double seconds) {
    if (threads < 1 || threads > kMostThreads) {
        throw std::invalid_argument("threads must be from 1 to " + std::to_string(kMostThreads));
    }
    if (!(seconds > 0.0 && seconds <= 60.0)) throw std::invalid_argument("seconds must be in (0, 60]");
}

ComputeKernel kernel_of(const std::string& dtype) {
    if (dtype == "float32") return float_kernel();
    if (dtype == "int8") return byte_kernel();
    if (dtype == "bfloat16") return bfloat16_kernel();
    throw std::invalid_argument("dtype must be float32, int8 or bfloat16, not " + dtype);
}

// Least seconds of a slice in which every thread calls `work(its number)` once; none begins before all are ready, and
// the slice ends with the last. Slices follow each other for about `seconds`.
template <typename Work>
double least_slice(int threads, double seconds, const Work& work) {
    // The first slice warms up.
    constexpr int kLeastSlices = 3;
    double least = std::numeric_limits<double>::infinity();
    int slices = -1;
    bool done = false;
    Clock::time_point first, slice;
    // Runs in one thread while all others wait.
    const auto turn = [&]() noexcept {
        if (slices < 0) first = Clock::now();
        if (slices > 0) least = std::min(least, seconds_since(slice));
        if (++slices >= kLeastSlices && seconds_since(first) >= seconds) done = true;
        slice = Clock::now();
    };
    std::barrier ready(threads, turn);
    const auto loop = [&](int number) {
        for (ready.arrive_and_wait(); !done; ready.arrive_and_wait()) work(number);
    };
    std::vector<std::jthread> others;
    try {
        for (int number = 1; number < threads; ++number) others.emplace_back(loop, number);
    } catch (...) {
        // Those that did start wait for the rest.
        done = true;
        for (auto missing = static_cast<std::size_t>(threads) - others.size(); missing > 0; --missing) {
            ready.arrive_and_drop();
        }
        throw;
    }
    loop(0);
    others.clear();
    return least;
}

struct Pattern {
    StreamKernel kernel;
    std::size_t arrays;
};

Pattern pattern_of(const std::string& name) {
    if (name == "read") return {read_kernel(), 1};
    if (name == "copy") return {copy_kernel(false), 2};
    if (name == "copy-stream") return {copy_kernel(true), 2};
    if (name == "triad") return {triad_kernel(false), 3};
    if (name == "triad-stream") return {triad_kernel(true), 3};
    throw std::invalid_argument("pattern must be read, copy, copy-stream, triad or triad-stream, not " + name);
}

using Floats = std::unique_ptr<float, decltype(&std::free)>;

Floats allocate(std::size_t count) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20;
    const std::size_t page = count * sizeof(float) < kHugePage ? 4096 : kHugePage;
    const std::size_t bytes = (count * sizeof(float) + page - 1) / page * page;
    Floats array(static_cast<float*>(std::aligned_alloc(page, bytes)), &std::free);
    if (!array) throw std::bad_alloc();
    // As numpy asks for its arrays: translating addresses of small pages would be what is measured. May be refused.
    if (page == kHugePage) madvise(array.get(), bytes, MADV_HUGEPAGE);
    return array;
}

}  // namespace

std::string peak_instruction_set(const std::string& dtype) { return kernel_of(dtype).instruction_set; }

double peak_rate(const std::string& dtype, int threads, double seconds) {
    check_effort(threads, seconds);
    const auto kernel = kernel_of(dtype).run;
    if (kernel == nullptr) throw std::invalid_argument("this processor has no instruction for " + dtype);
    // About 0.5 ms: long against the clock and the barrier, short against an interruption.
    constexpr std::int64_t kRounds = 100'000;
    const double operations = kernel(1) * kRounds * threads;
    return operations / least_slice(threads, seconds, [&](int) { kernel(kRounds); });
}

double stream_bandwidth(const std::string& pattern, std::size_t bytes, int threads, double seconds) {
    check_effort(threads, seconds);
    const auto [kernel, arrays] = pattern_of(pattern);
    if (bytes < 4096 || bytes > (std::size_t{1} << 36)) {
        throw std::invalid_argument("bytes must be from 4096 to 2**36");
    }
    // Whole turns of the loop in every thread.
    const std::size_t parts = arrays * static_cast<std::size_t>(threads);
    const std::size_t count = std::max(bytes / sizeof(float) / parts / kStreamFloats, std::size_t{1}) * kStreamFloats;
    std::vector<Floats> shares;
    for (std::size_t i = 0; i < parts; ++i) shares.push_back(allocate(count));
    const std::size_t used = parts * count * sizeof(float);
    // A small share is gone over several times per slice, so that the barrier is not what is measured.
    const std::size_t repeats = std::max<std::size_t>(1, (std::size_t{16} << 20) / (used / threads));
    std::vector<char> written(static_cast<std::size_t>(threads), 0);
    const double least = least_slice(threads, seconds, [&](int number) {
        Floats* own = &shares[static_cast<std::size_t>(number) * arrays];
        // By the thread that will use it, which puts it near: untouched pages would all be one page of zeros.
        if (char& done = written[static_cast<std::size_t>(number)]; !done) {
            for (std::size_t i = 0; i < arrays; ++i) std::fill_n(own[i].get(), count, 1.0f);
            done = 1;
        }
        for (std::size_t repeat = 0; repeat < repeats; ++repeat) {
            kernel(own[0].get(), own[arrays == 1 ? 0 : 1].get(), own[arrays - 1].get(), count);
        }
    });
    return static_cast<double>(used) * static_cast<double>(repeats) / least;
}

}  // namespace autotune
