// Large buffers that are used again by the next call: fresh memory costs a page fault for every page.
#pragma once

#include <cstddef>
#include <memory>

namespace qmljob {

// Gives a buffer back to the process' store of them.
struct Return {
  size_t bytes = 0;
  void operator()(void* buffer) const;
};
template <class Real>
using Buffer = std::unique_ptr<Real[], Return>;

void* take_buffer(size_t bytes);

// Asks for large pages in a range of memory.
void advise_large_pages(void* start, size_t bytes);

// Returns a buffer of so many numbers, not initialised.
template <class Real>
Buffer<Real> buffer_of(size_t count) {
  const size_t bytes = (count * sizeof(Real) + 63) / 64 * 64 + 64;
  return Buffer<Real>(static_cast<Real*>(take_buffer(bytes)), Return{bytes});
}

}  // namespace qmljob
