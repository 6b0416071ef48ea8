#include "runtime/apps/check_plugin/import_watch.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigaction is POSIX
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string_view>

#include "runtime/apps/check_plugin/check.h"

namespace bloomery::apps::check {
namespace {

// What the redirected functions write: they are C functions and are given nothing of ours, so this
// is one for the process.
struct Counters {
  std::atomic<uint64_t> allocations, largest, maps, locks;
  std::atomic<int64_t> held;
  std::mutex mutex;
  std::string outside;

  void Allocated(const void* p, size_t bytes) {
    ++allocations;
    uint64_t seen = largest;
    while (bytes > seen && !largest.compare_exchange_weak(seen, bytes)) {
    }
    if (p != nullptr) {
      held += static_cast<int64_t>(::malloc_usable_size(const_cast<void*>(p)));
    }
  }
  void Freed(void* p) {
    if (p != nullptr) held -= static_cast<int64_t>(::malloc_usable_size(p));
  }
  void Outside(const char* function, const char* what) {
    const std::lock_guard lock(mutex);
    if (!outside.empty()) return;
    outside = function;
    if (what != nullptr) outside += std::string("(\"") + what + "\")";
  }
};

Counters& Counts() {
  static Counters counters;
  return counters;
}

// NOLINTBEGIN(cppcoreguidelines-no-malloc): this is malloc
void* Malloc(size_t n) {
  void* p = std::malloc(n);
  Counts().Allocated(p, n);
  return p;
}
void* Calloc(size_t n, size_t each) {
  void* p = std::calloc(n, each);
  Counts().Allocated(p, n * each);
  return p;
}
void* Realloc(void* old, size_t n) {
  Counts().Freed(old);
  void* p = std::realloc(old, n);
  Counts().Allocated(p, n);
  return p;
}
void* AlignedAlloc(size_t align, size_t n) {
  void* p = std::aligned_alloc(align, n);
  Counts().Allocated(p, n);
  return p;
}
int PosixMemalign(void** p, size_t align, size_t n) {
  const int error = ::posix_memalign(p, align, n);
  Counts().Allocated(error == 0 ? *p : nullptr, n);
  return error;
}
void Free(void* p) {
  Counts().Freed(p);
  std::free(p);
}
// NOLINTEND(cppcoreguidelines-no-malloc)

void* Mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  ++Counts().maps;
  return ::mmap(at, bytes, protection, flags, fd, offset);
}
int MutexLock(pthread_mutex_t* mutex) {
  ++Counts().locks;
  return ::pthread_mutex_lock(mutex);
}
int ReadLock(pthread_rwlock_t* lock) {
  ++Counts().locks;
  return ::pthread_rwlock_rdlock(lock);
}
int WriteLock(pthread_rwlock_t* lock) {
  ++Counts().locks;
  return ::pthread_rwlock_wrlock(lock);
}
int Open(const char* path, int flags, mode_t mode) {
  Counts().Outside("open", path);
  return ::open(path, flags, mode);
}
int OpenAt(int folder, const char* path, int flags, mode_t mode) {
  Counts().Outside("openat", path);
  return ::openat(folder, path, flags, mode);
}
FILE* FOpen(const char* path, const char* mode) {
  Counts().Outside("fopen", path);
  return std::fopen(path, mode);
}
char* GetEnv(const char* name) {
  Counts().Outside("getenv", name);
  return std::getenv(name);
}
char* SecureGetEnv(const char* name) {
  Counts().Outside("secure_getenv", name);
  return ::secure_getenv(name);
}
int SetEnv(const char* name, const char* value, int overwrite) {
  Counts().Outside("setenv", name);
  return ::setenv(name, value, overwrite);
}
int Socket(int domain, int type, int protocol) {
  Counts().Outside("socket", nullptr);
  return ::socket(domain, type, protocol);
}
pid_t Fork() {
  Counts().Outside("fork", nullptr);
  return ::fork();
}
int System(const char* command) {
  Counts().Outside("system", command);
  return -1;  // not run: no plugin has a reason to
}
int SigAction(int number, const struct sigaction* action, struct sigaction* old) {
  if (action != nullptr) Counts().Outside("sigaction", nullptr);
  return ::sigaction(number, action, old);
}
int ThreadCreate(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                 void* argument) {
  Counts().Outside("pthread_create", nullptr);
  return ::pthread_create(thread, attributes, start, argument);
}

struct Redirection {
  std::string_view name;
  void* to;
};

template <class Function>
void* Address(Function* function) {
  return reinterpret_cast<void*>(function);
}

const auto& Redirections() {
  static const std::array kAll = {Redirection{"malloc", Address(Malloc)},
                                  Redirection{"calloc", Address(Calloc)},
                                  Redirection{"realloc", Address(Realloc)},
                                  Redirection{"aligned_alloc", Address(AlignedAlloc)},
                                  Redirection{"posix_memalign", Address(PosixMemalign)},
                                  Redirection{"free", Address(Free)},
                                  Redirection{"mmap", Address(Mmap)},
                                  Redirection{"mmap64", Address(Mmap)},
                                  Redirection{"pthread_mutex_lock", Address(MutexLock)},
                                  Redirection{"pthread_rwlock_rdlock", Address(ReadLock)},
                                  Redirection{"pthread_rwlock_wrlock", Address(WriteLock)},
                                  Redirection{"open", Address(Open)},
                                  Redirection{"open64", Address(Open)},
                                  Redirection{"openat", Address(OpenAt)},
                                  Redirection{"openat64", Address(OpenAt)},
                                  Redirection{"fopen", Address(FOpen)},
                                  Redirection{"fopen64", Address(FOpen)},
                                  Redirection{"getenv", Address(GetEnv)},
                                  Redirection{"secure_getenv", Address(SecureGetEnv)},
                                  Redirection{"setenv", Address(SetEnv)},
                                  Redirection{"socket", Address(Socket)},
                                  Redirection{"fork", Address(Fork)},
                                  Redirection{"system", Address(System)},
                                  Redirection{"sigaction", Address(SigAction)},
                                  Redirection{"pthread_create", Address(ThreadCreate)}};
  return kAll;
}

// The parts of a loaded library's dynamic section that its imports are told by.
struct Dynamic {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  struct Table {
    const ElfW(Rela) * at = nullptr;
    size_t bytes = 0;
  };
  std::array<Table, 2> tables;  // functions; data
};

Dynamic Read(const link_map& map) {
  Dynamic found;
  for (const ElfW(Dyn)* entry = map.l_ld; entry->d_tag != DT_NULL; ++entry) {
    const auto address = entry->d_un.d_ptr;
    switch (entry->d_tag) {
      case DT_SYMTAB:
        found.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
        break;
      case DT_STRTAB:
        found.names = reinterpret_cast<const char*>(address);
        break;
      case DT_JMPREL:
        found.tables[0].at = reinterpret_cast<const ElfW(Rela)*>(address);
        break;
      case DT_PLTRELSZ:
        found.tables[0].bytes = entry->d_un.d_val;
        break;
      case DT_RELA:
        found.tables[1].at = reinterpret_cast<const ElfW(Rela)*>(address);
        break;
      case DT_RELASZ:
        found.tables[1].bytes = entry->d_un.d_val;
        break;
      default:
        break;
    }
  }
  return found;
}

// The slot may lie in pages that were made read-only once it was filled.
void Write(void** slot, void* value) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  void* start = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) / page * page);
  if (::mprotect(start, page, PROT_READ | PROT_WRITE) != 0) {
    throw Error(ErrorKind::kInternal,
                "the plugin's imports cannot be watched: " + std::string(std::strerror(errno)));
  }
  *slot = value;
}

}  // namespace

ImportWatch::ImportWatch(const std::string& path) {
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (handle == nullptr || ::dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0) {
    throw Error(ErrorKind::kInternal, "the plugin is not loaded");
  }
  const Dynamic dynamic = Read(*map);
  for (const Dynamic::Table& table : dynamic.tables) {
    for (size_t i = 0; i < table.bytes / sizeof(ElfW(Rela)); ++i) {
      const ElfW(Rela)& relocation = table.at[i];
      const auto symbol = ELF64_R_SYM(relocation.r_info);
      if (symbol == 0) continue;
      const std::string_view name = dynamic.names + dynamic.symbols[symbol].st_name;
      for (const Redirection& redirection : Redirections()) {
        if (redirection.name != name) continue;
        Write(reinterpret_cast<void**>(map->l_addr + relocation.r_offset), redirection.to);
      }
    }
  }
  ::dlclose(handle);
  Reset();
}

void ImportWatch::Reset() {
  Counters& counters = Counts();
  counters.allocations = counters.largest = counters.maps = counters.locks = 0;
  counters.held = 0;
  const std::lock_guard lock(counters.mutex);
  counters.outside.clear();
}

ImportCounts ImportWatch::counts() const {
  Counters& counters = Counts();
  const std::lock_guard lock(counters.mutex);
  return {.allocations = counters.allocations,
          .largest_bytes = counters.largest,
          .held_bytes = counters.held,
          .maps = counters.maps,
          .locks = counters.locks,
          .outside = counters.outside};
}

}  // namespace bloomery::apps::check
