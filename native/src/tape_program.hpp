// A tape ready to run: checked once, then evaluated for blocks of configurations.
#pragma once

#include <cstdint>
#include <vector>

#include "blocks.hpp"
#include "simd.hpp"
#include "tape_block.hpp"

namespace autotune {

enum class BlockStatus { ok, inexact, division_by_zero };

class TapeProgram {
  public:
    // Throws std::invalid_argument for an unknown operation or a slot that is not computed before it is used.
    TapeProgram(int inputs, std::vector<std::int64_t> constants, std::vector<Instruction> instructions,
                std::vector<std::int32_t> outputs, Simd level);

    int inputs() const { return inputs_; }
    int slots() const { return inputs_ + static_cast<int>(constants_.size() + instructions_.size()); }
    // Of a workspace: fewer than slots() where results share one.
    int columns() const { return block_.columns; }
    int outputs() const { return static_cast<int>(outputs_.size()); }
    Simd level() const { return level_; }
    const std::vector<std::int64_t>& constants() const { return constants_; }
    const std::vector<Instruction>& instructions() const { return instructions_; }
    // The values of an output in a workspace begin at output_column(j) * kBlock.
    int output_column(int output) const { return block_.outputs[static_cast<std::size_t>(output)]; }

    // Memory for evaluate_block: columns of kBlock doubles, with the constants filled in.
    AlignedDoubles workspace() const;

    // Evaluates `count` <= kBlock rows of `inputs()` integers each; rows beyond `count` of the workspace repeat the
    // last one. Every value is exact unless the result says otherwise: a sum or product beyond 2^53, or an input.
    BlockStatus evaluate_block(const std::int64_t* rows, int count, double* columns) const;

    // As evaluate_block, for all rows and exactly, in 64-bit integers where doubles do not suffice; `result` has
    // outputs() values a row. Throws std::overflow_error beyond 64 bits, std::domain_error on division by zero.
    void evaluate(const std::int64_t* rows, std::int64_t count, std::int64_t* result, int threads) const;

  private:
    void evaluate_exactly(const std::int64_t* row, std::vector<std::int64_t>& slots) const;

    int inputs_;
    std::vector<std::int64_t> constants_;
    std::vector<Instruction> instructions_;
    std::vector<std::int32_t> outputs_;
    BlockProgram block_;
    bool constants_are_exact_ = true;
    Simd level_;
};

// What a kernel that needs doubles throws for a status that is not ok: std::overflow_error or std::domain_error.
void require_ok(BlockStatus status);

}  // namespace autotune
