/* The steps of a network, which the core's native module and every network that is a library make
   from here. autotune/networks/plan/steps.py writes them as words. */
#ifndef AUTOTUNE_STEPS_H
#define AUTOTUNE_STEPS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void autotune_step_task(void *const *arrays, int64_t begin, int64_t end, int64_t thread);
typedef void autotune_step_launch(void *pool, autotune_step_task *task, void *const *arrays,
                                  int64_t count);

/* Memory and functions of a call; calls at the same time need frames of their own. Every array
   begins at a multiple of 64 bytes. */
typedef struct {
  const int64_t *steps;                         /* what is done */
  void *const *inputs, *const *outputs, *const *constants;
  int32_t (*const *programs)(void **, autotune_step_launch *, void *);
  int (*const *hosts)(void *const *, int64_t);  /* is given the number of its call; 0 for success */
  char *arena, *scratch;
  int64_t threads;                              /* at most so many run a parallel loop */
  autotune_step_launch *launch;
  void *pool;
  int64_t *times;    /* null, or the time that the call begins at (CLOCK_MONOTONIC, nanoseconds),
                        which is written to, and what each task and then all else has taken,
                        added to what is there */
  int64_t *failure;  /* where a check stores the number that it refuses */
} autotune_frame;

/* Makes all steps. It returns 0; or the number of the check that failed, counted from 1 in the
   order of the steps; or less, for the call of the host of number -1 - result. */
int autotune_run_steps(const autotune_frame *frame);

#ifdef __cplusplus
}
#endif
#endif
