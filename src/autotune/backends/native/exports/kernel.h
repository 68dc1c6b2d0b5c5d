#include <stddef.h>
#include <stdint.h>

#ifndef AUTOTUNE_KERNEL
#define AUTOTUNE_KERNEL
#ifdef __cplusplus
#define AUTOTUNE_RESTRICT __restrict
extern "C" {
#else
#define AUTOTUNE_RESTRICT restrict
#endif

/* Results of functions. N > 0: the Nth array is null, or does not begin at a multiple of 64.
   NO_PROCESSOR: the processor lacks instructions that the code was made with. NO_SCRATCH: scratch
   memory is too small or does not begin at a multiple of 64, or threads are not 1 to 65536. */
#define AUTOTUNE_OK 0
#define AUTOTUNE_NO_PROCESSOR (-1)
#define AUTOTUNE_NO_SCRATCH (-2)

/* A part of a parallel loop: iterations from begin to end, by thread 0 <= thread < threads. */
typedef void autotune_task(void *const *arrays, int64_t begin, int64_t end, int64_t thread);

/* Calls task(arrays, ...) for parts that make up 0 <= iteration < count, at the same time or not,
   and returns when all have returned. No two calls of the same thread number run at once. */
typedef void autotune_launch(void *pool, autotune_task *task, void *const *arrays, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
