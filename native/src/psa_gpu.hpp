// Draft scores of GPU programs from the symbols of their statements or launches.
#pragma once

#include <cstdint>
#include <vector>

#include "simd.hpp"
#include "tape_program.hpp"

namespace autotune {

// Which arithmetic turns symbols into milliseconds. Both are described where Python names the symbols:
// autotune/models/pruning/psa_symbols.py.
enum class PsaArithmetic { published, corrected };

// Symbols per group (a statement or a launch), and numbers that describe the GPU.
int psa_symbols(PsaArithmetic arithmetic);
int psa_parameters(PsaArithmetic arithmetic);

// A scorer of one arithmetic on one GPU; throws std::invalid_argument unless the GPU has psa_parameters() positive
// numbers.
class PsaGpu {
  public:
    PsaGpu(PsaArithmetic arithmetic, std::vector<double> gpu, Simd level);

    PsaArithmetic arithmetic() const { return arithmetic_; }

    // Scores, 1/ms, of configurations: `rows` has program.inputs() integers a row. The program's outputs are the
    // symbols of all groups, then one value for each of `maxima`. A configuration with a value above its maximum, or
    // whose time is no positive number, scores minus infinity. Throws std::overflow_error for a value beyond 2^53,
    // std::domain_error on division by zero.
    void score(const TapeProgram& program, const std::int64_t* rows, std::int64_t count,
               const std::vector<double>& maxima, double* scores, int threads) const;

    // The same for symbols given directly, `groups` x psa_symbols() a row.
    void score_symbols(const double* symbols, std::int64_t count, int groups, double* scores, int threads) const;

  private:
    void score_block(const double* const* columns, int groups, const std::vector<double>& maxima, int count,
                     double* scores) const;

    PsaArithmetic arithmetic_;
    std::vector<double> gpu_;
    Simd level_;
};

}  // namespace autotune
