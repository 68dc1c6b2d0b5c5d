"""From MLIR programs, on tensors, to workloads and to the programs that schedules apply to."""
