// Keeps a thread on one logical CPU.
#pragma once

#include <cerrno>

#include <pthread.h>
#include <sched.h>

namespace autotune {

// Returns 0, or the error number: the CPU does not exist, or this process may not use it.
inline int pin_thread(pthread_t thread, int cpu) {
    if (cpu < 0 || cpu >= CPU_SETSIZE) return EINVAL;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return pthread_setaffinity_np(thread, sizeof(set), &set);
}

inline int pin_calling_thread(int cpu) { return pin_thread(pthread_self(), cpu); }

}  // namespace autotune
