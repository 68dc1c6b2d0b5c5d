#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A thread looks at a word for some ten microseconds before it sleeps: programs that are called one
   after the other find the threads awake, and nobody else is disturbed for longer. */
enum { LOOKS = 400 };

enum { WAIT_PRIVATE = 128, WAKE_PRIVATE = 129 };

typedef struct {
  autotune_pool *pool;
  int64_t number;
  pthread_t handle;
} worker;

struct autotune_pool {
  pthread_mutex_t busy; /* held by who runs a loop */
  uint32_t forks;       /* that led to the process whose threads they are */
  uint32_t round, unfinished, asleep;
  int is_stopping;
  autotune_pool_task *task;
  void *const *arrays;
  int64_t count, parts;
  int *cpus;       /* of threads, the caller's first; null where they run anywhere */
  int64_t started; /* threads beside the caller */
  worker workers[];
};

/* Forks between the first process with this code and this one. */
static uint32_t forks;

static void count_fork(void) { ++forks; }

__attribute__((constructor)) static void watch_forks(void) { pthread_atfork(0, 0, count_fork); }

static void wait_while(autotune_pool *pool, uint32_t *word, uint32_t value) {
  for (int look = 0; look < LOOKS; ++look) {
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != value) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  __atomic_add_fetch(&pool->asleep, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
    syscall(SYS_futex, word, WAIT_PRIVATE, value, 0, 0, 0);
  __atomic_sub_fetch(&pool->asleep, 1, __ATOMIC_RELAXED);
}

/* Behind a change of the word. */
static void wake_all(autotune_pool *pool, uint32_t *word) {
  if (__atomic_load_n(&pool->asleep, __ATOMIC_SEQ_CST))
    syscall(SYS_futex, word, WAKE_PRIVATE, INT32_MAX, 0, 0, 0);
}

static void run_part(autotune_pool *pool, int64_t part) {
  int64_t begin = pool->count * part / pool->parts, end = pool->count * (part + 1) / pool->parts;
  if (begin < end) pool->task(pool->arrays, begin, end, part);
}

static void *work(void *given) {
  worker *self = given;
  autotune_pool *pool = self->pool;
  for (uint32_t seen = 0;;) {
    wait_while(pool, &pool->round, seen);
    seen = __atomic_load_n(&pool->round, __ATOMIC_ACQUIRE);
    if (pool->is_stopping) return 0;
    if (self->number < pool->parts) run_part(pool, self->number);
    if (__atomic_sub_fetch(&pool->unfinished, 1, __ATOMIC_SEQ_CST) == 0)
      wake_all(pool, &pool->unfinished);
  }
}

static void begin_round(autotune_pool *pool) {
  __atomic_store_n(&pool->unfinished, (uint32_t)pool->started, __ATOMIC_RELAXED);
  __atomic_add_fetch(&pool->round, 1, __ATOMIC_SEQ_CST);
  wake_all(pool, &pool->round);
}

static void pin(const autotune_pool *pool, int64_t number) {
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(pool->cpus[number], &own);
  pthread_setaffinity_np(pool->workers[number - 1].handle, sizeof own, &own);
}

/* A CPU for each of the threads; null where there are not enough. */
static int *chosen_cpus(int64_t threads) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) || CPU_COUNT(&all) < threads) return 0;
  int *cpus = malloc((size_t)threads * sizeof *cpus);
  if (!cpus) return 0;
  int64_t number = 0;
  for (int cpu = 0; number < threads; ++cpu)
    if (CPU_ISSET(cpu, &all)) cpus[number++] = cpu;
  return cpus;
}

/* Moves the thread whose CPU the caller is on to the one that the caller left: they would take
   turns there. */
static void make_room(autotune_pool *pool) {
  int here = sched_getcpu();
  if (!pool->cpus || here == pool->cpus[0]) return;
  for (int64_t number = 1; number <= pool->started; ++number)
    if (pool->cpus[number] == here) {
      pool->cpus[number] = pool->cpus[0];
      pool->cpus[0] = here;
      pin(pool, number);
      return;
    }
}

autotune_pool *autotune_pool_make(int64_t threads) {
  autotune_pool *pool = calloc(1, sizeof *pool + (size_t)threads * sizeof(worker));
  if (!pool) return 0;
  pthread_mutex_init(&pool->busy, 0);
  pool->forks = forks;
  pool->cpus = chosen_cpus(threads);
  /* Signals are for the threads of the program. */
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int64_t number = 1; number < threads; ++number) {
    worker *next = &pool->workers[pool->started];
    next->pool = pool;
    next->number = number;
    if (pthread_create(&next->handle, 0, work, next)) break;
    ++pool->started;
    if (pool->cpus) pin(pool, number);
  }
  pthread_sigmask(SIG_SETMASK, &before, 0);
  return pool;
}

static int is_of_parent(const autotune_pool *pool) { return pool->forks != forks; }

void autotune_pool_free(autotune_pool *pool) {
  if (!is_of_parent(pool)) {
    pool->is_stopping = 1;
    begin_round(pool);
    for (int64_t number = 0; number < pool->started; ++number)
      pthread_join(pool->workers[number].handle, 0);
    pthread_mutex_destroy(&pool->busy);
  }
  free(pool->cpus);
  free(pool);
}

int64_t autotune_pool_threads(const autotune_pool *pool) {
  return is_of_parent(pool) ? 1 : pool->started + 1;
}

void autotune_pool_launch(void *given, autotune_pool_task *task, void *const *arrays,
                          int64_t count) {
  autotune_pool *pool = given;
  int64_t threads = autotune_pool_threads(pool), parts = count < threads ? count : threads;
  if (parts < 2 || pthread_mutex_trylock(&pool->busy)) {
    if (count > 0) task(arrays, 0, count, 0);
    return;
  }
  make_room(pool);
  pool->parts = parts;
  pool->task = task;
  pool->arrays = arrays;
  pool->count = count;
  begin_round(pool);
  run_part(pool, 0);
  for (uint32_t left; (left = __atomic_load_n(&pool->unfinished, __ATOMIC_ACQUIRE));)
    wait_while(pool, &pool->unfinished, left);
  pthread_mutex_unlock(&pool->busy);
}
