// A tape as it is run for a block of rows: pairs of instructions made one, and columns that are used again.
#pragma once

#include <cstdint>
#include <vector>

namespace autotune {

enum class Op : std::uint8_t { add, mul, floordiv, mod, min, max, less, select };
constexpr int kOps = 8;

// Operands are slots: inputs come first, then constants, then one slot per instruction. Only select has three: the
// condition, the value where it is not zero, and the value where it is.
struct Instruction {
    Op op;
    std::int32_t a, b, c;
};

// Those of tapes, and what they become: sums and products of more; a * b + c; divisions by a constant power of two;
// a < b ? c : d; and c where a constant power of two b divides a, else d.
enum class BlockOp : std::uint8_t {
    add, mul, floordiv, mod, min, max, less, select,
    add3, mul3, mul4, mul_add, floordiv_by_power, mod_by_power, select_less, select_divisible
};

// Operands and the result are columns of the workspace.
struct BlockInstruction {
    BlockOp op;
    std::int32_t a, b, c, d, result;
};

// Columns hold the inputs, then the constants, then what is computed. A column is given to another result once nothing
// needs its values any more, so that those that are in use stay in the first-level cache.
struct BlockProgram {
    std::vector<BlockInstruction> instructions;
    std::vector<std::int32_t> outputs;
    std::int32_t columns = 0;
};

// Every slot is of the tape and known before it is used, and so are `outputs`.
BlockProgram block_program(int inputs, const std::vector<std::int64_t>& constants,
                           const std::vector<Instruction>& instructions, const std::vector<std::int32_t>& outputs);

}  // namespace autotune
