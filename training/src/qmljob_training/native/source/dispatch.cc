// Chooses the loops for the processor that this runs on.
#include <cstdlib>
#include <string>

#include "kernels.h"

namespace qmljob {
namespace baseline {
template <class Real>
const Kernels<Real>& table();
}
#if defined(__x86_64__)
namespace avx2 {
template <class Real>
const Kernels<Real>& table();
}
namespace avx512 {
template <class Real>
const Kernels<Real>& table();
}
#endif

// QMLJOB_NATIVE_ISA asks for less than the processor has, so that machines of a mixed cluster compute the same bits.
const char* instruction_set() {
  static const char* const found = [] {
#if defined(__x86_64__)
    const char* const most = std::getenv("QMLJOB_NATIVE_ISA");
    const std::string limit = most == nullptr ? "avx512" : most;
    const bool two = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool five = two && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
    if (five && limit == "avx512") return "avx512";
    if (two && limit != "baseline") return "avx2";
#endif
    return "baseline";
  }();
  return found;
}

template <class Real>
const Kernels<Real>& kernels() {
#if defined(__x86_64__)
  const std::string name = instruction_set();
  if (name == "avx512") return avx512::table<Real>();
  if (name == "avx2") return avx2::table<Real>();
#endif
  return baseline::table<Real>();
}
template const Kernels<float>& kernels<float>();
template const Kernels<double>& kernels<double>();

}  // namespace qmljob
