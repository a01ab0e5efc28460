#include "simulate.h"

#include <algorithm>
#include <cstring>

#include "sweep.h"

namespace qmljob {
namespace {

constexpr int64_t kMaxGroups = 64;      // of units, whose gradients are summed one after the other
constexpr int64_t kMaxParts = 16;       // of a sweep's chunks, likewise
constexpr int64_t kSegment = 1 << 12;   // rows of an observable that are summed by one thread

template <class Real>
void write_adjoint(const Real* matrix, int64_t size, int64_t lanes, Real* adjoint) {
  for (int64_t row = 0; row < size; ++row) {
    for (int64_t column = 0; column < size; ++column) {
      const Real* from = matrix + 2 * (row * size + column) * lanes;
      Real* to = adjoint + 2 * (column * size + row) * lanes;
      for (int64_t lane = 0; lane < lanes; ++lane) {
        to[lane] = from[lane];
        to[lanes + lane] = -from[lanes + lane];
      }
    }
  }
}

int first_wanted(const Plan& plan, const Sweep& sweep, Source source) {
  for (size_t step = 0; step < sweep.steps.size(); ++step) {
    if (sweep.steps[step].block >= 0 && plan.blocks[sweep.steps[step].block].source == source)
      return static_cast<int>(step);
  }
  return -1;
}

int64_t wanted_entries(const Plan& plan, const Sweep& sweep, Source source) {
  int64_t total = 0;
  for (const Step& step : sweep.steps) {
    if (step.block >= 0 && plan.blocks[step.block].source == source) total += plan.blocks[step.block].entries();
  }
  return total;
}

}  // namespace

template <class Real>
struct Simulation<Real>::Unit {
  int64_t number;
  Buffer<Real> lanes, adjoint;  // matrices of features; in lanes where a lane is an example
  Parallel parallel;            // for the parts of one unit
};

template <class Real>
Simulation<Real>::Simulation(const Plan& plan, const Input<Real>& input)
    : plan_(plan), input_(input), kernels_(kernels<Real>()) {
  units_ = plan.lane_bits ? input.batch : (input.batch + kLanes<Real> - 1) / kLanes<Real>;
  unit_numbers_ = (int64_t{1} << plan.row_bits) * kRow<Real>;
  groups_ = std::min(units_, kMaxGroups);
  adjoint_ = buffer_of<Real>(2 * plan.shared);
  for (const Block& block : plan.blocks) {
    if (block.source == Source::kFeatures) continue;
    write_adjoint(input.shared + 2 * block.offset, int64_t{1} << block.width, 1, adjoint_.get() + 2 * block.offset);
  }
}

// Calls task(group, first unit, end): units in parallel where there are enough of them, else what a unit consists of.
template <class Real>
template <class Task>
void Simulation<Real>::for_units(int64_t groups, Task task) const {
  const auto one = [&](int64_t group) { task(group, units_ * group / groups, units_ * (group + 1) / groups); };
  if (groups >= input_.threads) return input_.parallel(groups, one);
  for (int64_t group = 0; group < groups; ++group) one(group);
}

template <class Real>
int64_t Simulation<Real>::example(const Unit& unit, int lane) const {
  return plan_.lane_bits ? unit.number : unit.number * kLanes<Real> + lane;
}

template <class Real>
typename Simulation<Real>::Unit Simulation<Real>::unit(int64_t number, bool adjoint) const {
  Unit made{number, nullptr, nullptr, input_.parallel};
  if (groups_ >= input_.threads) {
    made.parallel = [](int64_t count, const std::function<void(int64_t)>& task) {
      for (int64_t each = 0; each < count; ++each) task(each);
    };
  }
  const int64_t lanes = plan_.lane_bits ? 1 : kLanes<Real>, size = 2 * plan_.own * lanes;
  if (size == 0) return made;
  const Real* matrices = input_.own + 2 * plan_.own * number;
  if (lanes > 1) {
    made.lanes = buffer_of<Real>(size);
    for (int64_t entry = 0; entry < 2 * plan_.own; ++entry) {
      for (int lane = 0; lane < lanes; ++lane) {
        const int64_t which = example(made, lane);
        made.lanes[entry * lanes + lane] = which < input_.batch ? input_.own[2 * plan_.own * which + entry] : Real(0);
      }
    }
    matrices = made.lanes.get();
  }
  if (!adjoint) return made;
  made.adjoint = buffer_of<Real>(size);
  for (const Block& block : plan_.blocks) {
    const int64_t at = 2 * block.offset * lanes;
    if (block.source == Source::kFeatures)
      write_adjoint(matrices + at, int64_t{1} << block.width, lanes, made.adjoint.get() + at);
  }
  return made;
}

template <class Real>
const Real* Simulation<Real>::matrix(const Unit& unit, const Block& block, bool* by_lane) const {
  *by_lane = block.source == Source::kFeatures && plan_.lane_bits == 0;
  if (block.source != Source::kFeatures) return input_.shared + 2 * block.offset;
  if (*by_lane) return unit.lanes.get() + 2 * block.offset * kLanes<Real>;
  return input_.own + 2 * (plan_.own * unit.number + block.offset);
}

// Writes the state that the sweeps after the prepared ones begin with.
template <class Real>
void Simulation<Real>::start(const Unit& unit, Real* rows) const {
  constexpr int kCount = kLanes<Real>;
  if (input_.initial != nullptr) {
    for (int64_t row = 0; row < int64_t{1} << plan_.row_bits; ++row) {
      for (int lane = 0; lane < kCount; ++lane) {
        const Real* from = input_.initial + 2 * (plan_.lane_bits ? row * kCount + lane : row);
        rows[row * kRow<Real> + lane] = from[0];
        rows[row * kRow<Real> + kCount + lane] = from[1];
      }
    }
    return;
  }
  std::vector<Real> factors(2 * kRow<Real> * plan_.qubits, Real(0));
  for (int bit = 0; bit < plan_.qubits; ++bit) std::fill_n(&factors[2 * bit * kRow<Real>], kCount, Real(1));
  for (const Prepared& each : plan_.prepared) {
    bool by_lane;
    const Real* of = matrix(unit, plan_.blocks[each.block], &by_lane);
    Real* to = &factors[2 * each.bit * kRow<Real>];
    for (int column = 0; column < 2; ++column)
      for (int part = 0; part < 2; ++part)
        for (int lane = 0; lane < kCount; ++lane)
          to[(2 * column + part) * kCount + lane] = by_lane ? of[(4 * column + part) * kCount + lane] : of[4 * column + part];
  }
  for (int lane = 0; lane < kCount; ++lane) {
    Real re = 1, im = 0;
    for (int bit = 0; bit < plan_.lane_bits; ++bit) {
      const Real* of = &factors[(2 * bit + (lane >> bit & 1)) * kRow<Real>];
      const Real next = re * of[0] - im * of[kCount];
      im = re * of[kCount] + im * of[0];
      re = next;
    }
    rows[lane] = re;
    rows[kCount + lane] = im;
  }
  kernels_.prepare(rows, plan_.row_bits, &factors[0] + 2 * kRow<Real> * plan_.lane_bits);
}

template <class Real>
void Simulation<Real>::forward(const Unit& unit, Real* rows) const {
  start(unit, rows);
  for (size_t number = plan_.prepared_sweeps; number < plan_.sweeps.size(); ++number) {
    const Sweep& sweep = plan_.sweeps[number];
    const Chunks<Real> chunks(sweep, plan_.row_bits);
    const int64_t parts = std::min(chunks.count(), kMaxParts);
    unit.parallel(parts, [&](int64_t part) {
      const Buffer<Real> scratch = chunks.contiguous() ? Buffer<Real>() : buffer_of<Real>(chunks.numbers());
      for (int64_t chunk = chunks.count() * part / parts; chunk < chunks.count() * (part + 1) / parts; ++chunk) {
        Real* const at = rows + chunks.base(chunk);
        Real* const local = scratch ? scratch.get() : at;
        if (scratch) chunks.gather(at, local);
        for (const Step& step : sweep.steps) {
          if (step.block < 0) {
            kernels_.exchange(local, chunks.bits(), step.places.data());
            continue;
          }
          bool by_lane;
          const Real* of = matrix(unit, plan_.blocks[step.block], &by_lane);
          kernels_.apply(local, chunks.bits(), plan_.blocks[step.block].width, step.places.data(), of, by_lane);
        }
        if (scratch) chunks.scatter(local, at);
      }
    });
  }
}

template <class Real>
void Simulation<Real>::expect(const Unit& unit, const Real* rows, Real* values) const {
  const int count = static_cast<int>(plan_.strings.size());
  const int64_t total = int64_t{1} << plan_.row_bits, segments = std::max<int64_t>(1, total / kSegment);
  const size_t size = static_cast<size_t>(count) * kLanes<Real>;
  std::vector<double> sums(size * segments, 0.0), found(static_cast<size_t>(plan_.readouts) * kLanes<Real>, 0.0);
  unit.parallel(segments, [&](int64_t segment) {
    kernels_.expect(rows, plan_.row_bits, total / segments * segment, total / segments * (segment + 1),
                    plan_.strings.data(), count, sums.data() + size * segment);
  });
  for (int each = 0; each < count; ++each) {
    const PauliString& string = plan_.strings[each];
    for (int lane = 0; lane < kLanes<Real>; ++lane) {
      double sum = 0;
      for (int64_t segment = 0; segment < segments; ++segment) sum += sums[size * segment + each * kLanes<Real> + lane];
      const double signed_sum = __builtin_parity(lane & string.lane_z) ? -sum : sum;
      found[string.readout * kLanes<Real> + (plan_.lane_bits ? 0 : lane)] += input_.coefficients[each] * signed_sum;
    }
  }
  for (int lane = 0; lane < (plan_.lane_bits ? 1 : kLanes<Real>) && example(unit, lane) < input_.batch; ++lane)
    for (int readout = 0; readout < plan_.readouts; ++readout)
      values[example(unit, lane) * plan_.readouts + readout] = static_cast<Real>(found[readout * kLanes<Real> + lane]);
}

template <class Real>
void Simulation<Real>::values(Real* values, Real* states) const {
  for_units(units_, [&](int64_t, int64_t first, int64_t end) {
    for (int64_t number = first; number < end; ++number) {
      const Unit one = unit(number, false);
      Buffer<Real> scratch = states == nullptr ? buffer_of<Real>(unit_numbers_) : Buffer<Real>();
      Real* const rows = states == nullptr ? scratch.get() : states + number * unit_numbers_;
      forward(one, rows);
      expect(one, rows, values);
    }
  });
}

// The costate is 2 sum_r upstream[r] O_r |state>, the gradient in the state.
template <class Real>
void Simulation<Real>::weigh(const Unit& unit, const Real* upstream, const Real* rows, Real* costates) const {
  const int count = static_cast<int>(plan_.strings.size());
  std::vector<Real> weights(static_cast<size_t>(count) * kLanes<Real> + 1, Real(0));
  for (int each = 0; each < count; ++each) {
    const PauliString& string = plan_.strings[each];
    for (int lane = 0; lane < kLanes<Real>; ++lane) {
      const int64_t which = example(unit, lane);
      if (which >= input_.batch) continue;
      const double weight = 2 * input_.coefficients[each] * upstream[which * plan_.readouts + string.readout];
      weights[each * kLanes<Real> + lane] = static_cast<Real>(__builtin_parity(lane & string.lane_z) ? -weight : weight);
    }
  }
  const int64_t total = int64_t{1} << plan_.row_bits, segments = std::max<int64_t>(1, total / kSegment);
  unit.parallel(segments, [&](int64_t segment) {
    kernels_.weigh(rows, costates, plan_.row_bits, total / segments * segment, total / segments * (segment + 1),
                   plan_.strings.data(), count, weights.data());
  });
}

// Undoes the steps of a sweep down to `first`, on rows that are all local.
template <class Real>
void Simulation<Real>::undo(const Unit& unit, const Sweep& sweep, int first, Source source, Real* rows, Real* costates,
                            Real* gradients) const {
  const int bits = static_cast<int>(sweep.locals.size());
  int64_t at = wanted_entries(plan_, sweep, source) * kRow<Real>;
  for (int number = static_cast<int>(sweep.steps.size()) - 1; number >= first; --number) {
    const Step& step = sweep.steps[number];
    if (step.block < 0) {
      kernels_.exchange(rows, bits, step.places.data());
      kernels_.exchange(costates, bits, step.places.data());
      continue;
    }
    const Block& block = plan_.blocks[step.block];
    const bool wanted = block.source == source, by_lane = block.source == Source::kFeatures && plan_.lane_bits == 0;
    const Real* adjoint = block.source == Source::kFeatures
                              ? unit.adjoint.get() + 2 * block.offset * (by_lane ? kLanes<Real> : 1)
                              : adjoint_.get() + 2 * block.offset;
    if (wanted) at -= block.entries() * kRow<Real>;
    kernels_.undo(rows, costates, bits, block.width, step.places.data(), adjoint, by_lane,
                  wanted ? gradients + at : nullptr);
  }
}

// Adds what `undo` has found to sums [entries][2], or [entries][2][lanes] where a lane is an example with its own.
template <class Real>
void Simulation<Real>::collect(const Sweep& sweep, int first, Source source, const Real* gradients, double* sums) const {
  const bool by_lane = source == Source::kFeatures && plan_.lane_bits == 0;
  for (size_t number = first; number < sweep.steps.size(); ++number) {
    if (sweep.steps[number].block < 0) continue;
    const Block& block = plan_.blocks[sweep.steps[number].block];
    if (block.source != source) continue;
    for (int64_t entry = 2 * block.offset; entry < 2 * (block.offset + block.entries()); ++entry) {
      for (int lane = 0; lane < kLanes<Real>; ++lane) sums[by_lane ? entry * kLanes<Real> + lane : entry] += *gradients++;
    }
  }
}

template <class Real>
void Simulation<Real>::backward(const Unit& unit, Source source, Real* rows, Real* costates, double* sums) const {
  size_t stop = 0;
  while (stop < plan_.sweeps.size() && first_wanted(plan_, plan_.sweeps[stop], source) < 0) ++stop;
  for (size_t number = plan_.sweeps.size(); number-- > stop;) {
    const Sweep& sweep = plan_.sweeps[number];
    const int first = number == stop ? first_wanted(plan_, sweep, source) : 0;
    const Chunks<Real> chunks(sweep, plan_.row_bits);
    const int64_t parts = std::min(chunks.count(), kMaxParts), size = wanted_entries(plan_, sweep, source) * kRow<Real>;
    std::vector<Buffer<Real>> gradients(parts);
    unit.parallel(parts, [&](int64_t part) {
      gradients[part] = buffer_of<Real>(size);
      std::fill_n(gradients[part].get(), size, Real(0));
      const Buffer<Real> scratch = chunks.contiguous() ? Buffer<Real>() : buffer_of<Real>(2 * chunks.numbers());
      for (int64_t chunk = chunks.count() * part / parts; chunk < chunks.count() * (part + 1) / parts; ++chunk) {
        const int64_t base = chunks.base(chunk);
        Real* const one = scratch ? scratch.get() : rows + base;
        Real* const other = scratch ? one + chunks.numbers() : costates + base;
        if (scratch) chunks.gather(rows + base, one), chunks.gather(costates + base, other);
        undo(unit, sweep, first, source, one, other, gradients[part].get());
        if (scratch) chunks.scatter(one, rows + base), chunks.scatter(other, costates + base);
      }
    });
    for (int64_t part = 0; part < parts; ++part) collect(sweep, first, source, gradients[part].get(), sums);
  }
}

template <class Real>
void Simulation<Real>::write_features(const Unit& unit, const double* sums, Real* gradient) const {
  const int lanes = plan_.lane_bits ? 1 : kLanes<Real>;
  for (int lane = 0; lane < lanes && example(unit, lane) < input_.batch; ++lane) {
    Real* to = gradient + 2 * plan_.own * example(unit, lane);
    for (int64_t entry = 0; entry < 2 * plan_.own; ++entry) to[entry] = static_cast<Real>(sums[entry * lanes + lane]);
  }
}

template <class Real>
void Simulation<Real>::gradient(Source source, const Real* upstream, const Real* states, Real* gradient) const {
  const bool features = source == Source::kFeatures;
  const int64_t lanes = features && !plan_.lane_bits ? kLanes<Real> : 1, size = 2 * (features ? plan_.own * lanes : plan_.shared);
  std::vector<double> sums(features ? 0 : groups_ * size, 0.0);
  for_units(groups_, [&](int64_t group, int64_t first, int64_t end) {
    std::vector<double> own(features ? size : 0);
    const Buffer<Real> rows = buffer_of<Real>(unit_numbers_), costates = buffer_of<Real>(unit_numbers_);
    for (int64_t number = first; number < end; ++number) {
      const Unit one = unit(number, true);
      if (states == nullptr) {
        forward(one, rows.get());
      } else {
        std::memcpy(rows.get(), states + number * unit_numbers_, unit_numbers_ * sizeof(Real));
      }
      weigh(one, upstream, rows.get(), costates.get());
      std::fill(own.begin(), own.end(), 0.0);
      backward(one, source, rows.get(), costates.get(), features ? own.data() : sums.data() + group * size);
      if (features) write_features(one, own.data(), gradient);
    }
  });
  if (features) return;
  for (int64_t entry = 0; entry < size; ++entry) {
    double sum = 0;
    for (int64_t group = 0; group < groups_; ++group) sum += sums[group * size + entry];
    gradient[entry] = static_cast<Real>(sum);
  }
}

template class Simulation<float>;
template class Simulation<double>;

}  // namespace qmljob
