/* Threads that run the parts of parallel loops, and sleep in between. The core's native module and
   every network that is a library have them from here. */
#ifndef AUTOTUNE_THREAD_POOL_H
#define AUTOTUNE_THREAD_POOL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { AUTOTUNE_MOST_THREADS = 1024 };

typedef struct autotune_pool autotune_pool;

/* A part of a parallel loop: iterations [begin, end), run by one thread. */
typedef void autotune_pool_task(void *const *arrays, int64_t begin, int64_t end, int64_t thread);

/* So many threads, or as many as there can be. The caller of a loop is one of them, and runs where
   it likes; the others are made here, each on a CPU of its own where there is one for each. Null
   where there is no memory. */
autotune_pool *autotune_pool_make(int64_t threads);

/* Ends the threads. */
void autotune_pool_free(autotune_pool *pool);

/* Threads that run parts of loops, the caller included. In a child of fork(), which has none of
   the others, it is 1. */
int64_t autotune_pool_threads(const autotune_pool *pool);

/* Runs iterations [0, count) in equal parts, and returns when all have run. Where another thread
   runs a loop on the pool meanwhile, and in a child of fork(), the caller runs them all. */
void autotune_pool_launch(void *pool, autotune_pool_task *task, void *const *arrays,
                          int64_t count);

#ifdef __cplusplus
}
#endif
#endif
