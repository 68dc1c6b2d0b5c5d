// A CUDA driver without a device: libcuda's functions, with the prototypes of cuda.h, over the
// memory of the host. A "cubin" is a shared library that fake_nvcc.py makes of CUDA source; its
// kernels run on the CPU, for each launch of theirs; of a graph, where memory has been copied to
// since it ran, and what it repeats only once. Time is virtual, and waiting for an event really
// takes as long.
//
// What is begun on a stream is done as late as CUDA allows: when something waits for it.
//
// Faults: the file "faults" in the folder FAKE_CUDA holds lines "ORDINAL FAULT"; the n-th module
// of a candidate that any process loads gets the fault of its number.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = unsigned long long;

struct Module {
  void* library;
  std::string fault;
  double seconds;
  long runs = 0;
  // Launches that have been begun and are still to run.
  long on_their_way = 0;
};
struct Function {
  Module* module;
  void (*run)(const unsigned*, const unsigned*, void**);
  int parameters;
  const size_t* sizes;
  int static_shared, shared_limit;
};
// Of a kernel; without one a copy, whose values are where to, from where, and how much.
struct Launch {
  Function* function;
  unsigned grid[3], block[3];
  std::vector<std::vector<char>> values;
};
struct Graph {
  std::vector<Launch> launches;
  long ran = -1;
};
using Shared = std::shared_ptr<Graph>;
struct Stream;
// What is done when another stream, if any, has come so far.
struct Job {
  std::function<void()> run;
  Stream* after = nullptr;
  long place = 0;
};
struct Stream {
  bool waits = true, strict = false;
  Graph* capturing = nullptr;
  std::deque<Job> queue;
  long begun = 0, done = 0;
};
// Has happened when a stream has come so far.
struct Event {
  bool timed = true;
  double at = 0;
  Stream* stream = nullptr;
  long place = 0;
};

namespace {
constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNoDevice = 100, kInvalidDevice = 101;
constexpr int kUnavailable = 46, kInvalidImage = 200, kNotFound = 500, kImplicit = 906;
constexpr int kInvalidContext = 201, kInvalidHandle = 400, kNotReady = 600, kIsolation = 905;
// Streams that wait for the default one and are recorded: the default one cannot be used then.
int recorded = 0;
// Streams that are recorded in a mode that allows their thread nothing else.
int strict = 0;
constexpr int kRelaxed = 2, kUnsupported = 900;
int initialized = 0, lost = 0;
// Of a thread: whether a context is current, those before it, and what recordings forbid it.
thread_local int contexts = 0, mode = 0;
thread_local std::vector<int> stacked;
double now = 0, slept = 0;
double seconds_of(const Launch& launch) {
  return launch.function == nullptr ? 0 : launch.function->module->seconds;
}
long copies = 0;
std::map<CUdeviceptr, size_t> allocated;

// The legacy default stream, and all others that there are.
Stream default_stream;
std::set<Stream*> streams;

bool step(Stream* stream) {
  if (stream->queue.empty()) return false;
  const Job job = stream->queue.front();
  if (job.after != nullptr && job.after->done < job.place) return false;
  stream->queue.pop_front();
  job.run();
  ++stream->done;
  return true;
}
// What others have begun goes on meanwhile, step by step.
void finish(Stream* stream, long place) {
  while (stream->done < place) {
    bool goes_on = false;
    for (Stream* other : streams) goes_on |= other != stream && step(other);
    if (stream != &default_stream) goes_on |= step(&default_stream);
    goes_on |= stream->done < place && step(stream);
    if (!goes_on) std::abort();
  }
}
void finish(Stream* stream) { finish(stream, stream->begun); }
void finish_all() {
  finish(&default_stream);
  for (Stream* each : streams) finish(each);
}
Stream* stream_of(void* handle) {
  return handle == nullptr ? &default_stream : static_cast<Stream*>(handle);
}
void begin(Stream* stream, Job job) {
  if (stream == &default_stream) {
    for (Stream* each : streams) {
      if (each->waits) finish(each);
    }
  } else if (stream->waits) {
    finish(&default_stream);
  }
  stream->queue.push_back(std::move(job));
  ++stream->begun;
}

std::string setting(const char* name, const char* otherwise) {
  const char* found = std::getenv(name);
  return found != nullptr ? found : otherwise;
}
long long number(const char* name, long long otherwise) {
  return std::atoll(setting(name, std::to_string(otherwise).c_str()).c_str());
}
std::vector<std::string> devices() {
  std::vector<std::string> found;
  std::string text = setting("FAKE_CUDA_DEVICES", "h100");
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    found.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return found;
}
long long total() { return number("FAKE_CUDA_MEMORY", 80LL << 30); }
size_t used() {
  size_t sum = 512u << 20;
  for (auto& [_, size] : allocated) sum += size;
  return sum + static_cast<size_t>(number("FAKE_CUDA_USED", 0));
}
// In which allocation a pointer lies; false if in none.
bool inside(CUdeviceptr pointer, size_t size, CUdeviceptr* base = nullptr, size_t* whole = nullptr) {
  auto after = allocated.upper_bound(pointer);
  if (after == allocated.begin()) return false;
  auto& [begin, length] = *std::prev(after);
  if (base != nullptr) *base = begin, *whole = length;
  return pointer + size <= begin + length;
}
void run(const Launch& launch) {
  if (launch.function == nullptr) {
    CUdeviceptr to, from;
    const size_t bytes = launch.values[2].size();
    std::memcpy(&to, launch.values[0].data(), sizeof to);
    std::memcpy(&from, launch.values[1].data(), sizeof from);
    std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
    ++copies;
    return;
  }
  std::string fault = launch.function->module->fault;
  if (fault.rfind("later ", 0) == 0) fault = launch.function->module->runs++ ? fault.substr(6) : "";
  if (fault == "nothing") return;
  if (fault == "hang") for (;;) pause();
  if (fault.rfind("error ", 0) == 0) {
    lost = std::atoi(fault.c_str() + 6);
    return;
  }
  std::vector<std::vector<char>> values = launch.values;
  std::vector<void*> pointers;
  for (std::vector<char>& value : values) pointers.push_back(value.data());
  launch.function->run(launch.grid, launch.block, pointers.data());
  CUdeviceptr base, first = 0;
  size_t whole;
  if (!values.empty()) std::memcpy(&first, values[0].data(), sizeof first);
  if (fault == "beside" && inside(first, 1, &base, &whole)) {
    reinterpret_cast<char*>(base)[whole - 1] ^= 1;
  }
  if (fault == "input") *reinterpret_cast<char*>(first) ^= 1;
}
// Of how many launches all that follow are repetitions.
size_t period(const std::vector<Launch>& launches) {
  for (size_t part = 1; part < launches.size(); ++part) {
    bool repeats = launches.size() % part == 0;
    for (size_t at = part; repeats && at < launches.size(); ++at) {
      const Launch &one = launches[at], &other = launches[at - part];
      repeats = one.function == other.function && one.values == other.values;
    }
    if (repeats) return part;
  }
  return launches.size();
}
}  // namespace

#define API extern "C" __attribute__((visibility("default"))) CUresult
#define ALIVE \
  if (!initialized || !contexts) return kInvalidContext; \
  if (lost) return lost
// What is potentially unsafe while a stream is recorded ends the recording, too, on a device.
#define SAFE \
  ALIVE; \
  if (strict && mode != kRelaxed) return kUnsupported
#define ALIVE_ON_DEFAULT_STREAM \
  ALIVE; \
  if (recorded) return kImplicit

API cuInit(unsigned) {
  if (devices().empty()) return kNoDevice;
  initialized = 1;
  return 0;
}
API cuDriverGetVersion(int* version) {
  *version = static_cast<int>(number("FAKE_CUDA_VERSION", 13000));
  return 0;
}
API cuDeviceGetCount(int* count) {
  *count = static_cast<int>(devices().size());
  return initialized ? 0 : 3;
}
API cuDeviceGet(CUdevice* device, int ordinal) {
  if (ordinal < 0 || ordinal >= static_cast<int>(devices().size())) return kInvalidDevice;
  *device = ordinal;
  return 0;
}
API cuDeviceGetName(char* name, int length, CUdevice device) {
  const bool hopper = devices()[static_cast<size_t>(device)] == "h100";
  std::snprintf(name, static_cast<size_t>(length), "%s",
                hopper ? "NVIDIA H100 80GB HBM3" : "NVIDIA GeForce RTX 4090");
  return 0;
}
API cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  *bytes = static_cast<size_t>(total());
  return 0;
}
API cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
  const bool hopper = devices()[static_cast<size_t>(device)] == "h100";
  const std::map<int, int> h100 = {
      {1, 1024}, {8, 49152}, {10, 32}, {12, 65536}, {13, 1980000}, {16, 132}, {36, 2619000},
      {37, 5120}, {38, 52428800}, {39, 2048}, {75, 9}, {76, 0}, {81, 233472}, {82, 65536},
      {106, 32}};
  const std::map<int, int> rtx4090 = {
      {1, 1024}, {8, 49152}, {10, 32}, {12, 65536}, {13, 2520000}, {16, 128}, {36, 10501000},
      {37, 384}, {38, 75497472}, {39, 1536}, {75, 8}, {76, 9}, {81, 102400}, {82, 65536},
      {106, 24}};
  const auto& facts = hopper ? h100 : rtx4090;
  if (attribute == 20) {
    *value = static_cast<int>(number("FAKE_CUDA_MODE", 0));
    return 0;
  }
  auto found = facts.find(attribute);
  if (found == facts.end()) return kInvalidValue;
  *value = found->second;
  return 0;
}
API cuDevicePrimaryCtxRetain(void** context, CUdevice device) {
  if (!initialized) return 3;
  if (number("FAKE_CUDA_MODE", 0) == 3) return kUnavailable;
  *context = reinterpret_cast<void*>(static_cast<uintptr_t>(device + 1));
  return 0;
}
API cuDevicePrimaryCtxRelease_v2(CUdevice) { return 0; }
API cuCtxSetCurrent(void* context) {
  contexts = context != nullptr;
  return 0;
}
API cuCtxPushCurrent_v2(void* context) {
  stacked.push_back(contexts);
  contexts = context != nullptr;
  return 0;
}
API cuCtxPopCurrent_v2(void** context) {
  if (stacked.empty()) return kInvalidContext;
  *context = nullptr;
  contexts = stacked.back();
  stacked.pop_back();
  return 0;
}
API cuMemGetInfo_v2(size_t* free, size_t* all) {
  ALIVE;
  *all = static_cast<size_t>(total());
  *free = *all - std::min(*all, used());
  return 0;
}
API cuMemAlloc_v2(CUdeviceptr* pointer, size_t bytes) {
  SAFE;
  if (bytes == 0) return kInvalidValue;
  if (used() + bytes > static_cast<size_t>(total())) return kOutOfMemory;
  void* memory = nullptr;
  if (posix_memalign(&memory, 256, bytes) != 0) return kOutOfMemory;
  std::memset(memory, 0x5c, bytes);
  *pointer = reinterpret_cast<CUdeviceptr>(memory);
  allocated[*pointer] = bytes;
  return 0;
}
API cuMemFree_v2(CUdeviceptr pointer) {
  SAFE;
  finish_all();
  if (allocated.erase(pointer) == 0) return kInvalidValue;
  std::free(reinterpret_cast<void*>(pointer));
  return lost;
}
// What is copied from the host is read at once, as from memory that is not pinned.
API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, void* stream) {
  ALIVE;
  if (stream == nullptr && recorded) return kImplicit;
  // From memory that is not pinned.
  if (stream_of(stream)->capturing != nullptr) return kUnsupported;
  if (!inside(to, bytes)) return kInvalidValue;
  const char* begun = static_cast<const char*>(from);
  std::vector<char> held(begun, begun + bytes);
  begin(stream_of(stream), Job{[to, held] {
    std::memcpy(reinterpret_cast<void*>(to), held.data(), held.size());
    ++copies;
  }});
  return 0;
}
API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, void* stream) {
  ALIVE;
  if (stream == nullptr && recorded) return kImplicit;
  if (!inside(to, bytes) || !inside(from, bytes)) return kInvalidValue;
  auto text = [](CUdeviceptr value) {
    const char* raw = reinterpret_cast<const char*>(&value);
    return std::vector<char>(raw, raw + sizeof value);
  };
  Launch copy{nullptr, {}, {}, {text(to), text(from), std::vector<char>(bytes)}};
  if (auto* graph = stream_of(stream)->capturing) {
    graph->launches.push_back(copy);
    return 0;
  }
  begin(stream_of(stream), Job{[copy] { run(copy); }});
  return 0;
}
API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  const int code = cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr);
  if (code == 0) finish(&default_stream);
  return code;
}
API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr);
}
API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  ALIVE_ON_DEFAULT_STREAM;
  if (!inside(from, bytes)) return kInvalidValue;
  begin(&default_stream, Job{[=] { std::memcpy(to, reinterpret_cast<void*>(from), bytes); }});
  finish(&default_stream);
  return lost;
}
API cuMemsetD8_v2(CUdeviceptr to, unsigned char byte, size_t bytes) {
  ALIVE_ON_DEFAULT_STREAM;
  if (!inside(to, bytes)) return kInvalidValue;
  begin(&default_stream, Job{[=] { std::memset(reinterpret_cast<void*>(to), byte, bytes); }});
  return 0;
}
API cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) {
  SAFE;
  if (std::memcmp(image, "\x7f" "ELF", 4) != 0) return kInvalidImage;
  // How long it is, fake_nvcc.py has written to the header's padding, which dlopen wants empty.
  const char* begin = static_cast<const char*>(image);
  uint64_t length = 0;
  std::memcpy(&length, begin + 9, 7);
  std::vector<char> bytes(begin, begin + length);
  std::memset(bytes.data() + 9, 0, 7);
  const std::string folder = setting("FAKE_CUDA", "/nonexistent");
  std::string path = folder + "/module-XXXXXX";
  const int file = mkstemp(path.data());
  if (file < 0 || write(file, bytes.data(), length) != static_cast<ssize_t>(length)) return 999;
  close(file);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  unlink(path.c_str());
  if (library == nullptr) return kInvalidImage;
  auto* made = new Module{library, "", 0};
  uint64_t hash = 1469598103934665603ull;
  for (uint64_t at = 0; at < length; ++at) {
    hash = (hash ^ static_cast<unsigned char>(begin[at])) * 1099511628211ull;
  }
  made->seconds = 4e-6 + static_cast<double>(hash % 97) * 1e-7;
  if (dlsym(library, "run_check_bytes") == nullptr) {
    std::ofstream(folder + "/modules", std::ios::app) << getpid() << "\n";
    std::ifstream seen(folder + "/modules"), faults(folder + "/faults");
    int ordinal = 0, faulty;
    for (std::string line; std::getline(seen, line);) ++ordinal;
    for (std::string line; std::getline(faults, line);) {
      const size_t space = line.find(' ');
      faulty = std::atoi(line.c_str());
      if (faulty == ordinal) made->fault = line.substr(space + 1);
    }
  }
  *module = made;
  return 0;
}
API cuModuleUnload(void* module) {
  SAFE;
  // What then runs is not defined.
  if (static_cast<Module*>(module)->on_their_way != 0) std::abort();
  dlclose(static_cast<Module*>(module)->library);
  return 0;
}
API cuModuleGetFunction(void** function, void* module, const char* name) {
  ALIVE;
  auto* in = static_cast<Module*>(module);
  void* run = dlsym(in->library, (std::string("run_") + name).c_str());
  void* count = dlsym(in->library, (std::string("parameters_of_") + name).c_str());
  void* sizes = dlsym(in->library, (std::string("sizes_of_") + name).c_str());
  void* fixed = dlsym(in->library, (std::string("static_shared_of_") + name).c_str());
  if (run == nullptr || count == nullptr || sizes == nullptr || fixed == nullptr) return kNotFound;
  // What a kernel may have without asking is static and dynamic memory together.
  const int bytes = *static_cast<int*>(fixed);
  *function = new Function{in,    reinterpret_cast<decltype(Function::run)>(run),
                           *static_cast<int*>(count), static_cast<size_t*>(sizes),
                           bytes, 49152 - bytes};
  return 0;
}
API cuFuncSetAttribute(void* function, int attribute, int value) {
  ALIVE;
  auto* kernel = static_cast<Function*>(function);
  if (attribute != 8 || kernel->static_shared + value > 232448) return kInvalidValue;
  kernel->shared_limit = value;
  return 0;
}
API cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void* stream, void** parameters, void** extra) {
  ALIVE;
  auto* kernel = static_cast<Function*>(function);
  if (extra != nullptr || bx == 0 || by == 0 || bz == 0 || gx == 0 || gy == 0 || gz == 0) {
    return kInvalidValue;
  }
  if (gx > 0x7fffffff || gy > 65535 || gz > 65535) return kInvalidValue;
  if (bx > 1024 || by > 1024 || bz > 64 || bx * by * bz > 1024) return kInvalidValue;
  if (static_cast<int>(shared) > kernel->shared_limit) return kInvalidValue;
  Launch launch{kernel, {gx, gy, gz}, {bx, by, bz}, {}};
  for (int at = 0; at < kernel->parameters; ++at) {
    const char* value = static_cast<const char*>(parameters[at]);
    launch.values.emplace_back(value, value + kernel->sizes[at]);
  }
  if (auto* graph = stream_of(stream)->capturing) {
    graph->launches.push_back(launch);
    return 0;
  }
  ++kernel->module->on_their_way;
  begin(stream_of(stream), Job{[launch] {
    run(launch);
    --launch.function->module->on_their_way;
    now += seconds_of(launch);
  }});
  return 0;
}
// The descriptor holds what the driver was given, a number in each 8 bytes.
API cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* tensor,
                           const uint64_t* shape, const uint64_t* strides, const unsigned* box,
                           const unsigned* steps, int interleave, int swizzle, int promotion,
                           int beyond) {
  ALIVE;
  const auto start = reinterpret_cast<uint64_t>(tensor);
  const int size = type == 0 ? 1 : type == 6 || type == 9 ? 2 : 0;
  if (reinterpret_cast<uint64_t>(map) % 64 || start % 16 || rank < 1 || rank > 5 || size == 0) {
    return kInvalidValue;
  }
  for (unsigned at = 0; at < rank; ++at) {
    if (box[at] < 1 || box[at] > 256 || steps[at] != 1) return kInvalidValue;
    if (shape[at] < 1 || shape[at] > 1ull << 32) return kInvalidValue;
    if (at + 1 == rank) continue;
    // Of a dimension, neighbours do not overlap.
    const uint64_t inner = at == 0 ? size : strides[at - 1];
    if (strides[at] % 16 || strides[at] >> 40 || strides[at] < shape[at] * inner) {
      return kInvalidValue;
    }
  }
  if (interleave != 0 || beyond != 0 || promotion > 3 || swizzle < 1 || swizzle > 3) {
    return kInvalidValue;
  }
  if (box[0] * size > 16u << swizzle || box[0] * size % 16) return kInvalidValue;
  auto* words = static_cast<uint64_t*>(map);
  std::memset(map, 0, 128);
  words[0] = start;
  words[1] = type * 16 + swizzle;
  for (unsigned at = 0; at < rank; ++at) words[2 + at] = shape[at] << 16 | box[at];
  for (unsigned at = 0; at + 1 < rank; ++at) words[8 + at] = strides[at];
  return 0;
}
API cuStreamCreate(void** stream, unsigned flags) {
  ALIVE;
  auto* made = new Stream;
  made->waits = flags != 1;
  streams.insert(made);
  *stream = made;
  return 0;
}
API cuStreamDestroy_v2(void* stream) {
  ALIVE;
  Stream* gone = static_cast<Stream*>(stream);
  if (streams.count(gone) == 0 || gone->capturing != nullptr) return kInvalidHandle;
  // Events may still say how far it has come.
  finish(gone);
  streams.erase(gone);
  return 0;
}
API cuThreadExchangeStreamCaptureMode(int* other) {
  if (!initialized) return 3;
  if (*other < 0 || *other > kRelaxed) return kInvalidValue;
  std::swap(*other, mode);
  return 0;
}
API cuStreamSynchronize(void* stream) {
  ALIVE;
  if (stream_of(stream)->capturing != nullptr) return kUnsupported;
  finish(stream_of(stream));
  return lost;
}
API cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
  ALIVE;
  if (flags != 0) return kInvalidValue;
  const Event awaited = *static_cast<Event*>(event);
  // What is recorded waits for nothing outside.
  if (stream_of(stream)->capturing != nullptr) return kIsolation;
  if (awaited.stream == nullptr || awaited.stream == stream_of(stream)) return 0;
  begin(stream_of(stream), {[] {}, awaited.stream, awaited.place});
  return 0;
}
API cuStreamIsCapturing(void* stream, int* status) {
  ALIVE;
  if (stream == nullptr && recorded) return kImplicit;
  *status = stream_of(stream)->capturing != nullptr;
  return 0;
}
API cuStreamBeginCapture_v2(void* stream, int mode) {
  ALIVE;
  auto* here = static_cast<Stream*>(stream);
  here->capturing = new Graph;
  here->strict = mode != kRelaxed;
  recorded += here->waits;
  strict += here->strict;
  return 0;
}
API cuStreamEndCapture(void* stream, void** graph) {
  ALIVE;
  auto* here = static_cast<Stream*>(stream);
  *graph = here->capturing;
  if (here->capturing != nullptr) recorded -= here->waits, strict -= here->strict;
  here->capturing = nullptr;
  return *graph == nullptr ? 901 : 0;
}
API cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags) {
  ALIVE;
  *executable = new Shared(new Graph(*static_cast<Graph*>(graph)));
  return flags == 0 ? 0 : kInvalidValue;
}
API cuGraphUpload(void*, void* stream) {
  ALIVE;
  return stream_of(stream)->capturing != nullptr ? kUnsupported : 0;
}
API cuGraphLaunch(void* executable, void* stream) {
  ALIVE;
  if (stream_of(stream)->capturing != nullptr) return kUnsupported;
  const Shared graph = *static_cast<Shared*>(executable);
  const auto count = [graph](int change) {
    for (const Launch& launch : graph->launches) {
      if (launch.function != nullptr) launch.function->module->on_their_way += change;
    }
  };
  count(1);
  begin(stream_of(stream), Job{[graph, count] {
    // Launches that are timed one after the other would compute the same.
    if (graph->ran != copies) {
      const size_t part = period(graph->launches);
      for (size_t at = 0; at < part; ++at) run(graph->launches[at]);
      graph->ran = copies;
    }
    for (const Launch& launch : graph->launches) now += seconds_of(launch);
    count(-1);
  }});
  return 0;
}
// What is on its way goes on.
API cuGraphExecDestroy(void* executable) {
  ALIVE;
  delete static_cast<Shared*>(executable);
  return 0;
}
API cuGraphDestroy(void* graph) {
  ALIVE;
  delete static_cast<Graph*>(graph);
  return 0;
}
API cuEventCreate(void** event, unsigned flags) {
  ALIVE;
  *event = new Event{flags != 2};
  return flags == 0 || flags == 2 ? 0 : kInvalidValue;
}
API cuEventRecord(void* event, void* stream) {
  ALIVE;
  if (stream == nullptr && recorded) return kImplicit;
  // Events of graphs are not here.
  if (stream_of(stream)->capturing != nullptr) return kUnsupported;
  auto* made = static_cast<Event*>(event);
  begin(stream_of(stream), Job{[made] { made->at = now; }});
  made->stream = stream_of(stream);
  made->place = made->stream->begun;
  return 0;
}
API cuEventSynchronize(void* event) {
  ALIVE;
  const Event awaited = *static_cast<Event*>(event);
  if (awaited.stream != nullptr) finish(awaited.stream, awaited.place);
  const double wait = now - slept;
  slept = now;
  usleep(static_cast<useconds_t>(wait * 1e6) + 1);
  return lost;
}
// One that is still to happen goes away when it has.
API cuEventDestroy_v2(void*) {
  ALIVE;
  return 0;
}
API cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  ALIVE;
  const Event &first = *static_cast<Event*>(begin), &second = *static_cast<Event*>(end);
  for (const Event* each : {&first, &second}) {
    if (!each->timed || each->stream == nullptr) return kInvalidHandle;
    if (each->stream->done < each->place) return kNotReady;
  }
  *milliseconds = static_cast<float>((second.at - first.at) * 1e3);
  return 0;
}
API cuGetErrorName(int code, const char** text) {
  static const std::map<int, const char*> names = {
      {2, "CUDA_ERROR_OUT_OF_MEMORY"},       {214, "CUDA_ERROR_ECC_UNCORRECTABLE"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},   {702, "CUDA_ERROR_LAUNCH_TIMEOUT"},
      {716, "CUDA_ERROR_MISALIGNED_ADDRESS"}};
  auto found = names.find(code);
  if (found == names.end()) return kInvalidValue;
  *text = found->second;
  return 0;
}
API cuGetErrorString(int, const char**) { return kInvalidValue; }
