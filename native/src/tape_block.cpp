#include "tape_block.hpp"

#include <array>
#include <cstddef>
#include <utility>

namespace autotune {
namespace {

constexpr std::int32_t kNone = -1;

// An instruction whose operands and result are still slots; operands that it has not repeat the first.
struct Fused {
    BlockOp op;
    std::array<std::int32_t, 4> operands;
    std::int32_t result;
};

// Factors of a product, or terms of a sum; 0 for anything else.
int factors_of(BlockOp op) {
    return op == BlockOp::mul ? 2 : op == BlockOp::mul3 ? 3 : op == BlockOp::mul4 ? 4 : 0;
}

class Fuser {
  public:
    Fuser(int inputs, const std::vector<std::int64_t>& constants, const std::vector<Instruction>& instructions,
          const std::vector<std::int32_t>& outputs)
        : inputs_(inputs),
          constants_(constants),
          instructions_(instructions),
          first_(static_cast<std::size_t>(inputs) + constants.size()),
          uses_(first_ + instructions.size()) {
        for (const Instruction& instruction : instructions) {
            ++uses_[index(instruction.a)];
            ++uses_[index(instruction.b)];
            if (instruction.op == Op::select) {
                ++uses_[index(instruction.c)];
            }
        }
        for (const std::int32_t slot : outputs) {
            ++uses_[index(slot)];
        }
    }

    std::vector<Fused> fused() {
        all_.resize(instructions_.size());
        absorbed_.resize(instructions_.size());
        for (std::size_t at = 0; at < instructions_.size(); ++at) {
            all_[at] = translated(at);
        }
        std::vector<Fused> kept;
        for (std::size_t at = 0; at < instructions_.size(); ++at) {
            if (!absorbed_[at]) {
                kept.push_back(all_[at]);
            }
        }
        return kept;
    }

  private:
    static std::size_t index(std::int32_t slot) { return static_cast<std::size_t>(slot); }

    // Where a slot is computed that nothing else uses; the number of instructions where there is none.
    std::size_t only_for(std::int32_t slot) const {
        return index(slot) >= first_ && uses_[index(slot)] == 1 ? index(slot) - first_ : instructions_.size();
    }

    bool is_only_for(std::int32_t slot, Op op) const {
        const std::size_t at = only_for(slot);
        return at < instructions_.size() && instructions_[at].op == op;
    }

    bool is_constant(std::int32_t slot) const { return slot >= inputs_ && index(slot) < first_; }
    std::int64_t constant(std::int32_t slot) const { return constants_[index(slot - inputs_)]; }

    // Up to 2^52, whose reciprocal and multiples are exact.
    bool is_power_of_two(std::int32_t slot) const {
        if (!is_constant(slot)) {
            return false;
        }
        const std::int64_t value = constant(slot);
        return value > 0 && value <= (std::int64_t{1} << 52) && (value & (value - 1)) == 0;
    }

    Fused translated(std::size_t at) {
        const Instruction& it = instructions_[at];
        const auto result = static_cast<std::int32_t>(first_ + at);
        switch (it.op) {
            case Op::mul: return product(it, result);
            case Op::add: return sum(it, result);
            case Op::select: return selection(it, result);
            case Op::floordiv:
            case Op::mod:
                if (is_power_of_two(it.b)) {
                    return {it.op == Op::mod ? BlockOp::mod_by_power : BlockOp::floordiv_by_power,
                            {it.a, it.b, it.a, it.a},
                            result};
                }
                break;
            default: break;
        }
        return {static_cast<BlockOp>(it.op), {it.a, it.b, it.a, it.a}, result};
    }

    // With the factors of the left operand where it is a product for this one alone, or else of the right one.
    Fused product(const Instruction& it, std::int32_t result) {
        for (const auto& [inner, other] : {std::pair{it.a, it.b}, std::pair{it.b, it.a}}) {
            const std::size_t at = only_for(inner);
            const int factors = at < instructions_.size() ? factors_of(all_[at].op) : 0;
            if (factors == 2 || factors == 3) {
                Fused joined{factors == 2 ? BlockOp::mul3 : BlockOp::mul4, all_[at].operands, result};
                joined.operands[static_cast<std::size_t>(factors)] = other;
                absorbed_[at] = true;
                return joined;
            }
        }
        return {BlockOp::mul, {it.a, it.b, it.a, it.a}, result};
    }

    // Of a product for this sum alone, or of a sum of two.
    Fused sum(const Instruction& it, std::int32_t result) {
        for (const auto& [inner, other] : {std::pair{it.a, it.b}, std::pair{it.b, it.a}}) {
            const std::size_t at = only_for(inner);
            if (at < instructions_.size() && (all_[at].op == BlockOp::mul || all_[at].op == BlockOp::add)) {
                Fused joined{all_[at].op == BlockOp::mul ? BlockOp::mul_add : BlockOp::add3, all_[at].operands, result};
                joined.operands[2] = other;
                absorbed_[at] = true;
                return joined;
            }
        }
        return {BlockOp::add, {it.a, it.b, it.a, it.a}, result};
    }

    Fused selection(const Instruction& it, std::int32_t result) {
        if (!is_only_for(it.a, Op::less)) {
            return {BlockOp::select, {it.a, it.b, it.c, it.a}, result};
        }
        const std::size_t at = only_for(it.a);
        const Instruction& condition = instructions_[at];
        absorbed_[at] = true;
        const bool is_below_one = is_constant(condition.b) && constant(condition.b) == 1;
        if (is_below_one && is_only_for(condition.a, Op::mod)) {
            const std::size_t rest = only_for(condition.a);
            if (is_power_of_two(instructions_[rest].b)) {
                absorbed_[rest] = true;
                return {BlockOp::select_divisible, {instructions_[rest].a, instructions_[rest].b, it.b, it.c}, result};
            }
        }
        return {BlockOp::select_less, {condition.a, condition.b, it.b, it.c}, result};
    }

    int inputs_;
    const std::vector<std::int64_t>& constants_;
    const std::vector<Instruction>& instructions_;
    std::size_t first_;
    std::vector<int> uses_;
    std::vector<Fused> all_;
    std::vector<bool> absorbed_;
};

}  // namespace

BlockProgram block_program(int inputs, const std::vector<std::int64_t>& constants,
                           const std::vector<Instruction>& instructions, const std::vector<std::int32_t>& outputs) {
    const std::vector<Fused> fused = Fuser(inputs, constants, instructions, outputs).fused();
    const std::size_t known = static_cast<std::size_t>(inputs) + constants.size();
    // The last instruction that needs a slot; constants are filled in once, and outputs are read at the end.
    std::vector<std::size_t> last(known + instructions.size(), 0);
    constexpr std::size_t kAlways = static_cast<std::size_t>(-1);
    for (std::size_t at = 0; at < fused.size(); ++at) {
        for (const std::int32_t slot : fused[at].operands) {
            last[static_cast<std::size_t>(slot)] = at;
        }
        last[static_cast<std::size_t>(fused[at].result)] = at;
    }
    for (std::size_t slot = static_cast<std::size_t>(inputs); slot < known; ++slot) {
        last[slot] = kAlways;
    }
    for (const std::int32_t slot : outputs) {
        last[static_cast<std::size_t>(slot)] = kAlways;
    }

    BlockProgram program;
    program.columns = static_cast<std::int32_t>(known);
    std::vector<std::int32_t> column(last.size(), kNone), free;
    for (std::size_t slot = 0; slot < known; ++slot) {
        column[slot] = static_cast<std::int32_t>(slot);
    }
    const auto place = [&column](std::int32_t slot) { return column[static_cast<std::size_t>(slot)]; };
    for (std::size_t at = 0; at < fused.size(); ++at) {
        const Fused& it = fused[at];
        std::int32_t result = program.columns;
        if (free.empty()) {
            ++program.columns;
        } else {
            result = free.back();
            free.pop_back();
        }
        const auto& [a, b, c, d] = it.operands;
        program.instructions.push_back({it.op, place(a), place(b), place(c), place(d), result});
        column[static_cast<std::size_t>(it.result)] = result;
        for (const std::int32_t slot : {a, b, c, d, it.result}) {
            if (last[static_cast<std::size_t>(slot)] == at && place(slot) != kNone) {
                free.push_back(place(slot));
                column[static_cast<std::size_t>(slot)] = kNone;
            }
        }
    }
    for (const std::int32_t slot : outputs) {
        program.outputs.push_back(place(slot));
    }
    return program;
}

}  // namespace autotune
