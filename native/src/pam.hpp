// Statement features and data-flow features (Ansor, OSDI'20; Pruner, ASPLOS'25) of all configurations of a sketch.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tape_program.hpp"

namespace autotune {

constexpr int kPamColumns = 164;
constexpr int kPamBufferColumns = 18;
constexpr int kPamBuffers = 5;
constexpr int kPamSamples = 10;
constexpr int kPamFirstBuffer = 57;
constexpr int kPamFirstSample = kPamFirstBuffer + kPamBuffers * kPamBufferColumns;
constexpr int kPamAccesses = 8;
constexpr int kPamFlowColumns = 1 + 3 + kPamBufferColumns + 1;
// Outputs of the tape that describe one buffer of a statement, in the order of PamBuffer::outputs.
constexpr int kPamBufferOutputs = 12;

// A column that follows from one output: scale * output, and of that log2(1 + x) if `logarithm`.
struct PamColumn {
    std::int32_t statement, column, output;
    bool logarithm;
    double scale;
};

// A buffer of a statement; those of one statement are sorted by name. `access` is 0 for read, 1 for
// written, 2 for both; `width` is the size of an element in bytes.
struct PamBuffer {
    std::int32_t statement, access, width;
    std::array<std::int32_t, kPamBufferOutputs> outputs;
};

// A loop of a statement, outermost first: outputs of its extent, of whether it counts (0 or 1) and of the bytes that
// are touched inside it.
struct PamLoop {
    std::int32_t statement, extent, counts, bytes;
};

// An access of the data-flow block; buffer -1 leaves its columns zero. `allocation` is an output in bytes, or -1.
struct PamAccess {
    std::int32_t buffer, place, allocation;
    double operations;
};

class PamPlan {
  public:
    // `rows[s]` is the row of statement s among those of a configuration, or -1 if it has none; the rows are 0, 1, ...
    // in some order. `operations[s]` are the floating-point operations of one execution. Throws
    // std::invalid_argument for an index that does not exist.
    PamPlan(TapeProgram program, std::vector<std::int32_t> rows, std::vector<double> operations,
            std::vector<PamColumn> columns, std::vector<PamBuffer> buffers, std::vector<PamLoop> loops,
            std::vector<PamAccess> accesses, bool operations_squared);

    int inputs() const { return program_.inputs(); }
    int rows() const { return row_count_; }

    // `features` has count * rows() * kPamColumns values, `flow` count * kPamAccesses * kPamFlowColumns. Throws
    // std::overflow_error where a quantity passes 2^53, std::domain_error where something is divided by zero.
    void evaluate(const std::int64_t* matrix, std::int64_t count, float* features, float* flow, int threads) const;

  private:
    struct Scratch;

    void check_rows();
    void check_entries() const;
    const double* values(const Scratch& scratch, std::int32_t output) const;
    void evaluate_block(Scratch& scratch, int size, float* features, float* flow) const;
    void write_statement(Scratch& scratch, std::int32_t statement, int size, float* features) const;
    void write_access(Scratch& scratch, const PamAccess& access, int size, float* flow) const;

    TapeProgram program_;
    std::vector<std::int32_t> rows_;
    std::vector<double> operations_;
    std::vector<PamColumn> columns_;
    std::vector<PamBuffer> buffers_;
    std::vector<PamLoop> loops_;
    std::vector<PamAccess> accesses_;
    bool operations_squared_;
    int row_count_ = 0;
};

}  // namespace autotune
