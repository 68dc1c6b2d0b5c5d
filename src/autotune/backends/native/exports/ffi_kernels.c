/* What functions of kernels need besides: scratch memory, and the threads of TVM's runtime. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

/* Scratch memory of a thread, which keeps it until it ends. */
typedef struct { size_t size; void *memory; } room;

static pthread_key_t key;
static pid_t owner;

static void freed(void *held) {
  free(((room *)held)->memory);
  free(held);
}

__attribute__((constructor)) static void begin(void) {
  pthread_key_create(&key, freed);
  owner = getpid();
}

__attribute__((destructor)) static void end(void) {
  room *held = pthread_getspecific(key);
  if (held) freed(held);
  pthread_key_delete(key);
}

static void *scratch_of(size_t size) {
  room *held = pthread_getspecific(key);
  if (!held && !((held = calloc(1, sizeof *held)) && !pthread_setspecific(key, held))) {
    free(held);
    return 0;
  }
  if (held->size < size) {
    free(held->memory);
    held->memory = aligned_alloc(64, (size + 63) / 64 * 64);
    held->size = held->memory ? size : 0;
  }
  return held->memory;
}

/* Parallel loops on the threads of TVM's runtime, as many as there are and at most THREADS. */
typedef struct { void *sync; int32_t count; } group;
typedef struct { autotune_task *task; void *const *arrays; int64_t count; } work;

EXPORTED __attribute__((weak)) int (*__TVMBackendParallelLaunch)(
    int (*)(int, group *, void *), void *, int);

/* A forked process has no threads but the one that forked it. */
static int has_threads(void) {
  return THREADS > 1 && __TVMBackendParallelLaunch && getpid() == owner;
}

static int part(int number, group *all, void *data) {
  const work *own = data;
  int64_t parts = all->count < THREADS ? all->count : THREADS;
  int64_t begin = own->count * number / parts, end = own->count * (number + 1) / parts;
  if (number < parts) own->task(own->arrays, begin, end, number);
  return 0;
}

static void launched(void *pool, autotune_task *task, void *const *arrays, int64_t count) {
  work all = {task, arrays, count};
  (void)pool;
  if (__TVMBackendParallelLaunch(part, &all, 0)) task(arrays, 0, count, 0);
}

static int finished(const char *function, int result) {
  if (result == AUTOTUNE_OK) return 0;
  if (result == AUTOTUNE_NO_PROCESSOR)
    return error("RuntimeError", "%s: this processor lacks instructions that it was built with",
                 function);
  return error("RuntimeError", "%s: failed with status %d", function, result);
}
