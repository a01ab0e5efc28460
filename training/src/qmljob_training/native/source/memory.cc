#include "memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

namespace qmljob {
namespace {

constexpr size_t kLargePage = size_t{2} << 20;
constexpr size_t kMaxKept = 64;

struct Kept {
  std::mutex mutex;
  std::vector<std::pair<size_t, void*>> buffers;
};
Kept& kept() {
  static Kept* const made = new Kept;  // never destroyed: threads may outlive the end of main
  return *made;
}

}  // namespace

void Return::operator()(void* buffer) const {
  if (buffer == nullptr) return;
  std::lock_guard<std::mutex> lock(kept().mutex);
  if (kept().buffers.size() < kMaxKept) {
    kept().buffers.emplace_back(bytes, buffer);
  } else {
    std::free(buffer);
  }
}

void* take_buffer(size_t bytes) {
  std::lock_guard<std::mutex> lock(kept().mutex);
  auto& buffers = kept().buffers;
  for (size_t index = buffers.size(); index-- > 0;) {
    if (buffers[index].first != bytes) continue;
    void* const found = buffers[index].second;
    buffers.erase(buffers.begin() + static_cast<std::ptrdiff_t>(index));
    return found;
  }
  // Another size is asked for: another circuit. What the last one left is of no more use, where it is large.
  if (bytes >= kLargePage) {
    for (auto& each : buffers) std::free(each.second);
    buffers.clear();
  }
  void* const made = std::aligned_alloc(bytes >= kLargePage ? kLargePage : 64,
                                        bytes >= kLargePage ? (bytes + kLargePage - 1) / kLargePage * kLargePage : bytes);
  if (made == nullptr) throw std::bad_alloc();
  if (bytes >= kLargePage) advise_large_pages(made, bytes);
  return made;
}

void advise_large_pages(void* start, size_t bytes) {
  const auto first = (reinterpret_cast<uintptr_t>(start) + kLargePage - 1) / kLargePage * kLargePage;
  const auto last = (reinterpret_cast<uintptr_t>(start) + bytes) / kLargePage * kLargePage;
  // It may be refused: then the memory is as it was.
  if (last > first) static_cast<void>(madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE));
}

}  // namespace qmljob
