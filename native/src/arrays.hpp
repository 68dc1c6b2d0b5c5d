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

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Matrix = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
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
