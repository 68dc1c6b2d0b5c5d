// The draft model for CPUs: estimated cycles of every configuration, from the symbols of its loop nest.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tape_program.hpp"

namespace autotune {

// The machine parameters of the model. Capacities in bytes, rates in bytes per cycle of one core.
struct CpuMachine {
    double cores, vector_registers, fma_units, loads_per_cycle, stores_per_cycle, latency;
    double capacity[3];   // usable bytes of each cache for one core
    double way_bytes[3];  // bytes between addresses that share a set; 0 where addresses are hashed
    double bandwidth[3];  // what comes in from the next level
    double foreign;       // what another core made
    double unrolled;      // vector statements that the compiler unrolls completely
    double iteration, entry;  // cycles per iteration of a loop, and per time it is entered
    double spill;             // cycles per accumulator beyond the registers and update
    double overlap;           // share of the shorter of computing and moving data that is not hidden
    double launch;            // cycles to start a parallel loop
    double row;               // bytes that a jump to another row of memory costs
    double wide_call;         // cost of a call per lane of a vector beyond 32 bytes, relative to a narrow one
    double contention;        // share of issue, loads and stores that does not hide behind the largest
};

enum class LanesMeet : std::uint8_t { broadcast, contiguous, scattered };

// One statement; columns are outputs of the program. [b][d] is at b * (loops + 1) + d.
struct CpuStatement {
    int loops, buffers, vector, body, written;
    bool declared;
    double work, calls, lanes, narrow;  // issue slots per vector, cycles per element, lanes of a register and of 32 bytes
    std::vector<std::int32_t> extents;
    std::vector<std::uint8_t> parallel, remains, reduces;
    std::vector<std::int32_t> regions, rows, lines, apart, traffic;
    std::vector<std::int32_t> element_bytes;
    std::vector<LanesMeet> meets;
    std::vector<std::int32_t> aligned, divided;
    std::int32_t early;  // column of the halves of its data that move while other statements compute; -1: none
    bool hides;          // whether it computes where the data of others moves
};

class PsaCpu {
  public:
    // Throws std::invalid_argument where a statement refers to something that does not exist.
    PsaCpu(std::shared_ptr<const TapeProgram> program, std::vector<CpuStatement> statements, double program_bytes,
           double nests, CpuMachine machine);

    int inputs() const { return program_->inputs(); }

    // Estimated cycles of each row. Throws std::overflow_error and std::domain_error as require_ok does.
    void cycles(const std::int64_t* rows, std::int64_t count, double* result, int threads) const;

  private:
    std::shared_ptr<const TapeProgram> program_;
    std::vector<CpuStatement> statements_;
    double program_bytes_, nests_;
    CpuMachine machine_;
};

}  // namespace autotune
