#include "machine_probe.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "pin_thread.hpp"
#include "probe_kernels.hpp"

namespace autotune {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

void check_seconds(double seconds) {
    if (!(seconds > 0.0 && seconds <= 60.0)) throw std::invalid_argument("seconds must be in (0, 60]");
}

void pin_or_throw(int cpu) {
    if (const int error = pin_calling_thread(cpu); error != 0) {
        throw std::system_error(error, std::generic_category(), "cannot pin to CPU " + std::to_string(cpu));
    }
}

// What the two threads of a neighbour probe share; its end stops the neighbour.
struct Neighbours {
    enum State : int { idle, work, end };
    std::atomic<int> state{idle};
    std::atomic<std::int64_t> steps{0};

    void set(State wanted) {
        state.store(wanted);
        state.notify_all();
    }
};

struct EndOfNeighbours {
    Neighbours& shared;
    ~EndOfNeighbours() { shared.set(Neighbours::end); }
};

// About 2 us: short against a slice, so that the neighbour is seen to run within it.
constexpr std::int64_t kStepRounds = 400;

// Works whenever that is wanted. Otherwise it sleeps: to spin would be work, too.
void be_neighbour(int cpu, Neighbours& shared) {
    pin_or_throw(cpu);
    const auto kernel = float_kernel().run;
    for (int state = shared.state.load(); state != Neighbours::end; state = shared.state.load()) {
        if (state == Neighbours::idle) {
            shared.state.wait(Neighbours::idle);
            continue;
        }
        kernel(kStepRounds);
        shared.steps.fetch_add(1, std::memory_order_relaxed);
    }
}

// Best rates alone and beside the neighbour, alternating.
std::pair<double, double> alternate(int cpu, Neighbours& shared, double seconds) {
    pin_or_throw(cpu);
    const auto kernel = float_kernel().run;
    constexpr std::int64_t kSlices = 5;
    constexpr std::int64_t kSteps = 50;
    double alone = 0.0, beside = 0.0;
    for (const auto start = Clock::now(); seconds_since(start) < seconds || alone == 0.0;) {
        for (const bool busy : {false, true}) {
            shared.set(busy ? Neighbours::work : Neighbours::idle);
            for (std::int64_t i = 0; i < kSlices; ++i) {
                const std::int64_t before = shared.steps.load(std::memory_order_relaxed);
                const auto slice = Clock::now();
                const double flop = kernel(kSteps * kStepRounds);
                const double rate = flop / seconds_since(slice);
                const std::int64_t steps = shared.steps.load(std::memory_order_relaxed) - before;
                // A hardware thread that shares its core does at least a third of the work that the other one does.
                if (!busy && steps == 0) alone = std::max(alone, rate);
                if (busy && steps >= kSteps / 3) beside = std::max(beside, rate);
            }
        }
    }
    return {alone, beside};
}

}  // namespace

std::string fma_instruction_set() { return float_kernel().instruction_set; }

double fma_rate(double seconds) {
    check_seconds(seconds);
    const auto kernel = float_kernel().run;
    // About 0.1 ms a slice: long against the clock, short against an interruption. The best slice counts.
    constexpr std::int64_t kRounds = 20'000;
    double best = 0.0;
    for (const auto start = Clock::now(); seconds_since(start) < seconds || best == 0.0;) {
        const auto slice = Clock::now();
        const double flop = kernel(kRounds);
        best = std::max(best, flop / seconds_since(slice));
    }
    return best;
}

std::pair<double, double> neighbour_rates(int cpu, int other, double seconds) {
    check_seconds(seconds);
    if (std::min(cpu, other) < 0 || std::max(cpu, other) >= CPU_SETSIZE || cpu == other) {
        throw std::invalid_argument("the two CPUs must differ and be from 0 to " + std::to_string(CPU_SETSIZE - 1));
    }
    Neighbours shared;
    std::pair<double, double> rates{0.0, 0.0};
    std::exception_ptr errors[2];
    const auto guarded = [&](std::exception_ptr& error, const auto& work) {
        return std::jthread([&error, work] {
            try {
                work();
            } catch (...) {
                error = std::current_exception();
            }
        });
    };
    {
        const std::jthread neighbour = guarded(errors[0], [&] { be_neighbour(other, shared); });
        const EndOfNeighbours end{shared};
        // In a thread of its own too: the calling one keeps the CPUs that it has.
        const std::jthread probe = guarded(errors[1], [&] { rates = alternate(cpu, shared, seconds); });
    }
    for (const std::exception_ptr& error : errors) {
        if (error) std::rethrow_exception(error);
    }
    return rates;
}

double read_bandwidth(std::size_t bytes, double seconds) {
    check_seconds(seconds);
    if (bytes < 4096 || bytes > (std::size_t{1} << 34)) {
        throw std::invalid_argument("bytes must be from 4096 to 2**34");
    }
    constexpr std::size_t kBlock = kStreamFloats * sizeof(float);
    const std::size_t used = bytes / kBlock * kBlock;
    const std::size_t count = used / sizeof(float);
    std::unique_ptr<float, decltype(&std::free)> data(static_cast<float*>(std::aligned_alloc(kBlock, used)), &std::free);
    if (!data) throw std::bad_alloc();
    // Written once: untouched pages would all be the same page of zeros, and read from cache.
    std::fill_n(data.get(), count, 1.0f);

    const StreamKernel read = read_kernel();
    // A small buffer is read several times per slice, so that the clock is not what is measured.
    const std::size_t repeats = std::max<std::size_t>(1, (std::size_t{4} << 20) / used);
    double best = 0.0;
    for (const auto start = Clock::now(); seconds_since(start) < seconds || best == 0.0;) {
        const auto slice = Clock::now();
        for (std::size_t repeat = 0; repeat < repeats; ++repeat) {
            read(nullptr, data.get(), nullptr, count);
        }
        best = std::max(best, static_cast<double>(used * repeats) / seconds_since(slice));
    }
    return best;
}

std::vector<double> repeat_times(int repeats, long work) {
    if (repeats < 1 || repeats > 1'000'000) {
        throw std::invalid_argument("repeats must be from 1 to 1000000");
    }
    if (work < 1 || work > 10'000'000'000L) {
        throw std::invalid_argument("work must be from 1 to 10000000000");
    }
    std::vector<double> times(static_cast<std::size_t>(repeats));
    for (auto& time : times) {
        const auto start = Clock::now();
        // A chain of multiplications: some processors drop a chain of additions at renaming.
        unsigned long total = 1;
        for (long i = 0; i < work; ++i) {
            total *= 3;
            asm volatile("" : "+r"(total));
        }
        time = seconds_since(start);
    }
    return times;
}

}  // namespace autotune
