// Arrays at the border to Python: C-contiguous, on the CPU, of exactly the element type asked for.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace autotune {

namespace nb = nanobind;

// An array whose elements lie at multiples of their size, as C++ takes for granted; others are refused.
template <class T, int dimensions>
struct AlignedArray : nb::ndarray<const T, nb::ndim<dimensions>, nb::c_contig, nb::device::cpu> {
    using Plain = nb::ndarray<const T, nb::ndim<dimensions>, nb::c_contig, nb::device::cpu>;

    AlignedArray() = default;
    explicit AlignedArray(const Plain& plain) : Plain(plain) {}
};

template <class T>
using Vector = AlignedArray<T, 1>;
template <class T>
using Matrix = AlignedArray<T, 2>;
template <class T>
using Array = nb::ndarray<nb::numpy, T>;

// Memory that a kernel fills without the interpreter's lock and that then becomes a numpy array.
template <class T>
class NewArray {
  public:
    explicit NewArray(std::initializer_list<std::size_t> shape) : shape_(shape) {
        std::size_t count = 1;
        for (const std::size_t extent : shape_) {
            if (extent != 0 && count > static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T) / extent) {
                throw std::bad_array_new_length();
            }
            count *= extent;
        }
        // One element at least: an empty array still needs an address. Not initialised: a kernel writes everything.
        values_ = std::make_unique_for_overwrite<T[]>(count == 0 ? 1 : count);
    }
    T* data() { return values_.get(); }

    // Hands the memory over to Python; needs the interpreter's lock.
    Array<T> array() {
        T* values = values_.get();
        nb::capsule owner(values, [](void* pointer) noexcept { delete[] static_cast<T*>(pointer); });
        static_cast<void>(values_.release());
        return Array<T>(values, shape_.size(), shape_.data(), owner);
    }

  private:
    std::vector<std::size_t> shape_;
    std::unique_ptr<T[]> values_;
};

template <class T>
void require_columns(const Matrix<T>& matrix, int columns) {
    if (matrix.shape(1) != static_cast<std::size_t>(columns)) {
        throw std::invalid_argument("a tape over " + std::to_string(columns) + " parameters got a matrix with " +
                                    std::to_string(matrix.shape(1)) + " columns");
    }
}

}  // namespace autotune

namespace nanobind::detail {

template <class T, int dimensions>
struct type_caster<autotune::AlignedArray<T, dimensions>> {
    using Plain = make_caster<typename autotune::AlignedArray<T, dimensions>::Plain>;
    using Type = autotune::AlignedArray<T, dimensions>;
    NB_TYPE_CASTER(Type, Plain::Name)

    bool from_python(handle source, std::uint8_t flags, cleanup_list* cleanup) noexcept {
        Plain plain;
        if (!plain.from_python(source, flags, cleanup)) {
            return false;
        }
        value = autotune::AlignedArray<T, dimensions>(plain.value);
        return reinterpret_cast<std::uintptr_t>(value.data()) % alignof(T) == 0;
    }
};

}  // namespace nanobind::detail
