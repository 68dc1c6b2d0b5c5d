/* A network for other programs: its functions, and the threads that it runs on. It stands behind
   network.h, host_operators.c and the tables of what is in this network. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "thread_pool.h"

#define EXPORTED __attribute__((visibility("default")))

enum { ALIGNMENT = 64 };

static int status_of(int status, const char *text, ...)
    __attribute__((format(printf, 2, 3)));

static int status_of(int status, const char *text, ...) {
  va_list given;
  va_start(given, text);
  vsnprintf(message, sizeof message, text, given);
  va_end(given);
  return status;
}

/* The threads of the library's own. */

static struct {
  pthread_mutex_t busy; /* held by who runs the network */
  int64_t wanted;       /* threads, 0 until somebody asks */
  int64_t asked;        /* of the pool */
  autotune_pool *pool;
} own = {.busy = PTHREAD_MUTEX_INITIALIZER};

/* As many as are wanted, or as there can be. */
static void start_threads(void) {
  if (own.asked == own.wanted) return;
  if (own.pool) autotune_pool_free(own.pool);
  own.pool = own.wanted > 1 ? autotune_pool_make(own.wanted) : 0;
  own.asked = own.wanted;
}

static int64_t threads_wanted(void) {
  const char *said = getenv("AUTOTUNE_NUM_THREADS");
  char *end = 0;
  long number = said ? strtol(said, &end, 10) : 0;
  if (said && *said && !*end && number >= 1 && number <= AUTOTUNE_MOST_THREADS) return number;
  cpu_set_t all;
  int cpus = sched_getaffinity(0, sizeof all, &all) ? TUNED_THREADS : CPU_COUNT(&all);
  return cpus < TUNED_THREADS ? cpus : TUNED_THREADS;
}

/* Weights: in this library, or in a file beside it. */

static struct {
  pthread_mutex_t lock;
  int is_ready;
  const char *begin;
  void *arrays[CONSTANTS ? CONSTANTS : 1];
} weights = {.lock = PTHREAD_MUTEX_INITIALIZER};

#ifdef WEIGHTS_FILE
static char weights_path[4096];

/* Where the library lies, before anybody changes the folder that its path is relative to. */
__attribute__((constructor)) static void find_weights(void) {
  Dl_info found;
  char *whole = dladdr(weights_path, &found) ? realpath(found.dli_fname, 0) : 0, *slash;
  if (whole && (slash = strrchr(whole, '/')))
    snprintf(weights_path, sizeof weights_path, "%.*s/%s", (int)(slash - whole), whole,
             WEIGHTS_FILE);
  free(whole);
}

static int map_weights(void) {
  struct stat about;
  int file = open(weights_path, O_RDONLY | O_CLOEXEC), why = errno;
  if (file < 0)
    return status_of(AUTOTUNE_NETWORK_NO_WEIGHTS, "the network's weights, %s, cannot be read: %s",
                     weights_path, strerror(why));
  const char *begin = MAP_FAILED;
  if (!fstat(file, &about) && about.st_size == WEIGHTS_HEAD + WEIGHTS_BYTES)
    begin = mmap(0, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (begin == MAP_FAILED || memcmp(begin, WEIGHTS_DIGEST, sizeof WEIGHTS_DIGEST - 1)) {
    if (begin != MAP_FAILED) munmap((void *)(uintptr_t)begin, (size_t)about.st_size);
    return status_of(AUTOTUNE_NETWORK_NO_WEIGHTS,
                     "%s does not hold this network's weights: it is truncated, or of another one",
                     weights_path);
  }
  weights.begin = begin + WEIGHTS_HEAD;
  return 0;
}
#else
extern const char autotune_network_weights[] __attribute__((visibility("hidden")));

static int map_weights(void) {
  weights.begin = autotune_network_weights;
  return 0;
}
#endif

extern int32_t autotune_network_lacks(void) __attribute__((visibility("hidden")));

/* Whether the processor has what the code was made with, and the weights are there. */
static int prepared(void) {
  if (__atomic_load_n(&weights.is_ready, __ATOMIC_ACQUIRE)) return 0;
  int32_t lacking = autotune_network_lacks();
  if (lacking >= 0)
    return status_of(AUTOTUNE_NETWORK_NO_PROCESSOR,
                     "this processor lacks %s, which the network was made with for %s",
                     needed_features[lacking], MADE_FOR);
  pthread_mutex_lock(&weights.lock);
  int status = weights.is_ready ? 0 : map_weights();
  if (!status && !weights.is_ready) {
    for (int at = 0; at < CONSTANTS; ++at)
      weights.arrays[at] = (void *)(uintptr_t)(weights.begin + constant_offsets[at]);
    __atomic_store_n(&weights.is_ready, 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&weights.lock);
  return status;
}

static int is_apart(const void *array) { return !array || (uintptr_t)array % ALIGNMENT; }

static int checked(const void *const *inputs, void *const *outputs) {
  for (int at = 0; at < INPUTS + OUTPUTS; ++at) {
    const autotune_network_tensor *tensor = at < INPUTS ? &network_inputs[at]
                                                        : &network_outputs[at - INPUTS];
    const void *array = at < INPUTS ? inputs[at] : outputs[at - INPUTS];
    if (tensor->bytes && is_apart(array))
      return status_of(at + 1, "%s %s begins at address %p, which is null or no multiple of %d",
                       at < INPUTS ? "input" : "output", tensor->name, array, ALIGNMENT);
  }
  return prepared();
}

static int64_t scratch_bytes(int64_t threads) {
  int64_t most = 0;
  for (int at = 0; at < PROGRAMS; ++at) {
    int64_t size = scratch_sizes[at][0] + scratch_sizes[at][1] * threads;
    most = size > most ? size : most;
  }
  return most;
}

static int host_step(void *const *arrays, int64_t number) {
  return host_calls[number].function(&host_calls[number].call, arrays);
}

static int run_plan(const void *const *inputs, void *const *outputs, char *workspace,
                    int64_t threads, autotune_network_launch *launch, void *pool) {
  int64_t failure = 0;
  autotune_frame given = {network_steps, (void *const *)inputs, outputs, weights.arrays, programs,
                          host_functions, workspace, workspace + ARENA_BYTES, threads, launch, pool,
                          0, &failure};
  int status = autotune_run_steps(&given);
  if (status > 0) {
    const check *refused = &checks[status - 1];
    if (refused->divides && !failure)
      return status_of(AUTOTUNE_NETWORK_INVALID, "%s: an integer is divided by zero",
                       refused->label);
    char index[24];
    snprintf(index, sizeof index, refused->is_unsigned ? "%llu" : "%lld", (long long)failure);
    return status_of(AUTOTUNE_NETWORK_INVALID, "%s: index %s is not %s", refused->label, index,
                     refused->allowed);
  }
  return status ? AUTOTUNE_NETWORK_INVALID : AUTOTUNE_NETWORK_OK;
}

/* The state: each of its arrays has two places, of which a call reads one and writes the other. */
static struct {
  pthread_mutex_t busy; /* held by who reads or writes it */
  char *memory;
  int turn;
  const void *now[STATES ? STATES : 1]; /* null before the first call */
} state = {.busy = PTHREAD_MUTEX_INITIALIZER};

static size_t padded(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

static size_t state_bytes(void) {
  size_t total = ALIGNMENT;
  for (int at = 0; at < STATES; ++at) total += padded(network_states[at].bytes);
  return total;
}

static const void *state_now(int number) {
  return state.now[number] ? state.now[number]
                           : weights.begin + constant_offsets[CONSTANTS + number];
}

#if STATES
static int run_held(const void *const *given_inputs, void *const *given_outputs, char *workspace,
                    int64_t threads, autotune_network_launch *launch, void *given) {
  const void *inputs[INPUTS + STATES];
  void *outputs[OUTPUTS + STATES];
  if (!state.memory) {
    state.memory = mmap(0, 2 * state_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
    if (state.memory == MAP_FAILED) {
      state.memory = 0;
      return status_of(AUTOTUNE_NETWORK_NO_WORKSPACE, "%zu bytes of memory cannot be had",
                       2 * state_bytes());
    }
  }
  for (int at = 0; at < INPUTS; ++at) inputs[input_slots[at]] = given_inputs[at];
  for (int at = 0; at < OUTPUTS; ++at) outputs[output_slots[at]] = given_outputs[at];
  char *next = state.memory + (state.turn ? state_bytes() : 0);
  for (int at = 0; at < STATES; next += padded(network_states[at++].bytes)) {
    inputs[state_inputs[at]] = state_now(at);
    outputs[state_outputs[at]] = next;
  }
  int status = run_plan(inputs, outputs, workspace, threads, launch, given);
  if (status) return status;
  for (int at = 0; at < STATES; ++at) state.now[at] = outputs[state_outputs[at]];
  state.turn = !state.turn;
  return status;
}

static int run_steps(const void *const *inputs, void *const *outputs, char *workspace,
                     int64_t threads, autotune_network_launch *launch, void *given) {
  pthread_mutex_lock(&state.busy);
  int status = run_held(inputs, outputs, workspace, threads, launch, given);
  pthread_mutex_unlock(&state.busy);
  return status;
}
#else
#define run_steps run_plan
#endif

EXPORTED int32_t autotune_network_states(const autotune_network_tensor **tensors) {
  if (tensors) *tensors = network_states;
  return STATES;
}

EXPORTED const void *autotune_network_state(int32_t number) {
  if (number < 0 || number >= STATES || prepared()) return 0;
  pthread_mutex_lock(&state.busy);
  const void *found = state_now(number);
  pthread_mutex_unlock(&state.busy);
  return found;
}

EXPORTED void autotune_network_reset(void) {
  pthread_mutex_lock(&state.busy);
  memset(state.now, 0, sizeof state.now);
  pthread_mutex_unlock(&state.busy);
}

EXPORTED int32_t autotune_network_inputs(const autotune_network_tensor **tensors) {
  if (tensors) *tensors = network_inputs;
  return INPUTS;
}

EXPORTED int32_t autotune_network_outputs(const autotune_network_tensor **tensors) {
  if (tensors) *tensors = network_outputs;
  return OUTPUTS;
}

EXPORTED const char *autotune_network_error(void) { return message; }

EXPORTED const char *autotune_network_about(void) { return about_network; }

EXPORTED size_t autotune_network_workspace_bytes(int64_t threads) {
  return (size_t)(ARENA_BYTES + scratch_bytes(threads));
}

EXPORTED int autotune_network_run_in(const void *const *inputs, void *const *outputs,
                                     void *workspace, size_t workspace_bytes, int64_t threads,
                                     autotune_network_launch *launch, void *given) {
  int status = checked(inputs, outputs);
  if (status) return status;
  if (threads < 1 || threads > AUTOTUNE_MOST_THREADS)
    return status_of(AUTOTUNE_NETWORK_NO_WORKSPACE, "threads are from 1 to %d, and not %lld",
                     AUTOTUNE_MOST_THREADS, (long long)threads);
  size_t needed = autotune_network_workspace_bytes(threads);
  if (needed && (is_apart(workspace) || workspace_bytes < needed))
    return status_of(AUTOTUNE_NETWORK_NO_WORKSPACE,
                     "the workspace is %zu bytes at address %p; needed are %zu at a multiple of %d",
                     workspace_bytes, workspace, needed, ALIGNMENT);
  return run_steps(inputs, outputs, workspace, threads, launch, given);
}

/* The library's own memory, which it keeps. */
static struct { size_t size; char *begin; } memory;

static int sized_memory(void) {
  size_t needed = autotune_network_workspace_bytes(own.wanted);
  if (memory.size >= needed) return 0;
  if (memory.begin) munmap(memory.begin, memory.size);
  memory.begin = mmap(0, needed, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memory.size = memory.begin == MAP_FAILED ? 0 : needed;
  if (memory.size) return 0;
  memory.begin = 0;
  return status_of(AUTOTUNE_NETWORK_NO_WORKSPACE, "%zu bytes of memory cannot be had", needed);
}

EXPORTED int autotune_network_run(const void *const *inputs, void *const *outputs) {
  int status = checked(inputs, outputs);
  if (status) return status;
  pthread_mutex_lock(&own.busy);
  if (!own.wanted) own.wanted = threads_wanted();
  status = sized_memory();
  if (!status) {
    start_threads();
    status = run_steps(inputs, outputs, memory.begin, own.wanted,
                       own.pool ? autotune_pool_launch : 0, own.pool);
  }
  pthread_mutex_unlock(&own.busy);
  return status;
}

EXPORTED int64_t autotune_network_threads(void) {
  pthread_mutex_lock(&own.busy);
  if (!own.wanted) own.wanted = threads_wanted();
  int64_t found = own.wanted;
  pthread_mutex_unlock(&own.busy);
  return found;
}

EXPORTED int autotune_network_set_threads(int64_t threads) {
  if (threads < 1 || threads > AUTOTUNE_MOST_THREADS)
    return status_of(AUTOTUNE_NETWORK_NO_WORKSPACE, "threads are from 1 to %d, and not %lld",
                     AUTOTUNE_MOST_THREADS, (long long)threads);
  pthread_mutex_lock(&own.busy);
  own.wanted = threads;
  pthread_mutex_unlock(&own.busy);
  return AUTOTUNE_NETWORK_OK;
}

/* A child has the thread that forked it and no other, whatever the others were about to do. */
static void after_fork(void) {
  pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
  own.busy = weights.lock = state.busy = fresh;
  own.asked = 0;
}

__attribute__((constructor)) static void loaded(void) { pthread_atfork(0, 0, after_fork); }

/* A program that ends while the network runs, such as by a signal, has no use for tidiness. */
__attribute__((destructor)) static void unloaded(void) {
  if (pthread_mutex_trylock(&own.busy)) return;
  if (own.pool) autotune_pool_free(own.pool);
  if (memory.begin) munmap(memory.begin, memory.size);
  if (state.memory) munmap(state.memory, 2 * state_bytes());
#ifdef WEIGHTS_FILE
  if (weights.begin)
    munmap((char *)(uintptr_t)weights.begin - WEIGHTS_HEAD, WEIGHTS_HEAD + WEIGHTS_BYTES);
#endif
  pthread_mutex_unlock(&own.busy);
}
