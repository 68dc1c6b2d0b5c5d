#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "bindings.hpp"
#include "cache_flush.hpp"
#include "timing.hpp"

namespace autotune {
namespace {

using namespace nb::literals;

constexpr std::int64_t kMostCalls = 1'000'000'000;
constexpr std::int64_t kMostSamples = 10'000'000;

NativeCall call_of(std::uintptr_t address, const std::vector<std::uint64_t>& arguments) {
    if (address == 0 || arguments.size() > kMostCallArguments) {
        throw std::invalid_argument("a native call has an address that is not 0 and at most six arguments");
    }
    NativeCall call{address, {}};
    std::copy(arguments.begin(), arguments.end(), call.arguments.begin());
    return call;
}

std::pair<Array<double>, int> sample_native_call(std::uintptr_t address, const std::vector<std::uint64_t>& arguments,
                                                 std::int64_t number, std::int64_t samples) {
    const NativeCall call = call_of(address, arguments);
    if (number < 1 || number > kMostCalls || samples < 1 || samples > kMostSamples) {
        throw std::invalid_argument("a sample has from 1 to 1e9 calls, and there are from 1 to 1e7 samples");
    }
    NewArray<double> seconds({static_cast<std::size_t>(samples)});
    // Written before anything is timed: the clock is not to see first touches of pages.
    std::fill_n(seconds.data(), samples, 0.0);
    int result = 0;
    {
        nb::gil_scoped_release release;
        result = sample_calls(call, number, {seconds.data(), static_cast<std::size_t>(samples)});
    }
    return {seconds.array(), result};
}

using Bytes = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

std::span<const std::byte> span_of(const Bytes& bytes) {
    return {reinterpret_cast<const std::byte*>(bytes.data()), bytes.shape(0)};
}

void flush_memory(const Bytes& memory) {
    const std::span<const std::byte> bytes = span_of(memory);
    nb::gil_scoped_release release;
    flush_lines(bytes.data(), bytes.size());
}

void stream_memory(const Bytes& memory, const std::vector<int>& cpus, std::size_t least) {
    const std::span<const std::byte> bytes = span_of(memory);
    if (bytes.empty() || cpus.empty()) {
        throw std::invalid_argument("streaming needs a buffer and a CPU");
    }
    nb::gil_scoped_release release;
    read_through(bytes, cpus, least);
}

}  // namespace

void bind_timing(nb::module_& module) {
    module.def("sample_native_call", &sample_native_call, "address"_a, "arguments"_a, "number"_a, "samples"_a);
    module.def("flush_memory", &flush_memory, "memory"_a);
    module.def("stream_memory", &stream_memory, "memory"_a, "cpus"_a, "least"_a);
}

}  // namespace autotune
