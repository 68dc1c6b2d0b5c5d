#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results of functions; autotune_network_error() says more.
   N > 0: the Nth array, inputs first, is null or does not begin at a multiple of 64. */
#define AUTOTUNE_NETWORK_OK 0
#define AUTOTUNE_NETWORK_NO_PROCESSOR (-1) /* the processor lacks instructions */
#define AUTOTUNE_NETWORK_NO_WORKSPACE (-2) /* memory is missing, too small or unaligned */
#define AUTOTUNE_NETWORK_NO_WEIGHTS (-3)   /* the file with the weights cannot be mapped */
#define AUTOTUNE_NETWORK_INVALID (-4)      /* what inputs hold, such as an index out of range */

/* An input or an output: contiguous, in row-major order. Numbers of float16 and bfloat16 are their
   bits, truth values are bytes 0 or 1. */
typedef struct {
  const char *name, *dtype;
  int32_t rank;
  const int64_t *shape;
  size_t bytes;
} autotune_network_tensor;

/* How many inputs or outputs there are; `*tensors`, where it is no null, is set to them. */
int32_t autotune_network_inputs(const autotune_network_tensor **tensors);
int32_t autotune_network_outputs(const autotune_network_tensor **tensors);

/* What the network keeps between calls, which all callers share: what a call that succeeds writes,
   the next one reads, so that calls at the same time wait for each other. The array of a number
   lies where it is until the next call; null for no such number, or where there are no weights. */
int32_t autotune_network_states(const autotune_network_tensor **tensors);
const void *autotune_network_state(int32_t number);
/* Sets it to what it was before the first call. */
void autotune_network_reset(void);

/* Runs the network once, in memory and on threads of the library's own. Arrays begin at multiples
   of 64 bytes and do not overlap; inputs are not changed. Calls at the same time wait for each
   other. A child of fork() may call it, too: it gets threads of its own. */
int autotune_network_run(const void *const *inputs, void *const *outputs);

/* How many threads those are, the calling one included: as many as the network was tuned with, but
   no more than there are processors for, unless the environment's AUTOTUNE_NUM_THREADS or a call
   says something else. It returns AUTOTUNE_NETWORK_NO_WORKSPACE for what is not from 1 to 1024. */
int64_t autotune_network_threads(void);
int autotune_network_set_threads(int64_t threads);

/* A part of a parallel loop: iterations from begin to end, by thread 0 <= thread < threads. */
typedef void autotune_network_task(void *const *arrays, int64_t begin, int64_t end,
                                   int64_t thread);

/* Calls task(arrays, ...) for parts that make up 0 <= iteration < count, at the same time or not,
   and returns when all have returned. No two calls of the same thread number run at once. */
typedef void autotune_network_launch(void *pool, autotune_network_task *task, void *const *arrays,
                                     int64_t count);

/* The same in memory and on threads of the caller's, who may do so several times at once, each
   time in memory of its own: so many bytes, beginning at a multiple of 64. A null `launch` runs
   everything on the calling thread. */
size_t autotune_network_workspace_bytes(int64_t threads);
int autotune_network_run_in(const void *const *inputs, void *const *outputs, void *workspace,
                            size_t workspace_bytes, int64_t threads,
                            autotune_network_launch *launch, void *pool);

/* What went wrong in the last call of the calling thread that failed, in one line. */
const char *autotune_network_error(void);

/* The network's name, what it was made for, and with how many threads, as JSON. */
const char *autotune_network_about(void);

#ifdef __cplusplus
}
#endif
