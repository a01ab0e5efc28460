#include "plan.h"

#include <stdexcept>

namespace qmljob {
namespace {

// Reads numbers in order; what is out of its bounds ends the reading.
class Reader {
 public:
  explicit Reader(const std::vector<int64_t>& numbers) : numbers_(numbers) {}
  int64_t take(int64_t low, int64_t high, const char* what) {
    if (next_ >= numbers_.size()) throw std::invalid_argument(std::string("ends before ") + what);
    const int64_t found = numbers_[next_++];
    if (found < low || found > high) {
      throw std::invalid_argument(std::string(what) + " is " + std::to_string(found) + ", not in " +
                                  std::to_string(low) + ".." + std::to_string(high));
    }
    return found;
  }
  // How many of something follow; each is a number at least.
  int count(const char* what) { return static_cast<int>(take(0, numbers_.size() - next_, what)); }
  bool done() const { return next_ == numbers_.size(); }

 private:
  const std::vector<int64_t>& numbers_;
  size_t next_ = 0;
};

void read_places(Reader* reader, int count, int bits, Step* step) {
  int64_t seen = 0;
  for (int each = 0; each < count; ++each) {
    step->places[each] = static_cast<int>(reader->take(0, bits - 1, "a step's place"));
    if (seen >> step->places[each] & 1) throw std::invalid_argument("a step names a place twice");
    seen |= int64_t{1} << step->places[each];
  }
}

void read_header(Reader* reader, int lane_bits, Plan* plan) {
  reader->take(kPlanVersion, kPlanVersion, "the version");
  plan->lane_bits = static_cast<int>(reader->take(0, lane_bits, "the lane's bits"));
  if (plan->lane_bits != 0 && plan->lane_bits != lane_bits) throw std::invalid_argument("wrong number of lanes");
  plan->qubits = static_cast<int>(reader->take(1, kMaxQubits, "the number of qubits"));
  plan->row_bits = plan->qubits - plan->lane_bits;
  if (plan->row_bits < (plan->lane_bits ? plan->lane_bits : 1)) throw std::invalid_argument("too few qubits");
  plan->shared = reader->take(0, INT32_MAX, "the number of shared entries");
  plan->own = reader->take(0, INT32_MAX, "the number of an example's entries");
  plan->readouts = static_cast<int>(reader->take(0, INT32_MAX, "the number of readouts"));
}

void read_blocks(Reader* reader, Plan* plan) {
  plan->blocks.resize(reader->count("the number of blocks"));
  for (Block& block : plan->blocks) {
    block.width = static_cast<int>(reader->take(1, kMaxPlaces, "a block's width"));
    block.source = static_cast<Source>(reader->take(0, 2, "a block's source"));
    const int64_t size = block.source == Source::kFeatures ? plan->own : plan->shared;
    block.offset = reader->take(0, size - block.entries(), "a block's offset");
  }
}

void read_sweeps(Reader* reader, Plan* plan) {
  plan->sweeps.resize(reader->count("the number of sweeps"));
  for (Sweep& sweep : plan->sweeps) {
    sweep.locals.resize(reader->take(1, plan->row_bits < kMaxLocals ? plan->row_bits : kMaxLocals, "a sweep's size"));
    int least = 0;
    for (int& local : sweep.locals) {
      local = static_cast<int>(reader->take(least, plan->row_bits - 1, "a sweep's bit"));
      least = local + 1;
    }
    const int bits = static_cast<int>(sweep.locals.size());
    sweep.steps.resize(reader->count("the number of steps"));
    for (Step& step : sweep.steps) {
      step.block = static_cast<int>(reader->take(-1, int64_t(plan->blocks.size()) - 1, "a step's block"));
      if (step.block < 0 && plan->lane_bits == 0) throw std::invalid_argument("lanes are examples: nothing to exchange");
      const int count = step.block < 0 ? plan->lane_bits : plan->blocks[step.block].width;
      if (count > bits) throw std::invalid_argument("a block is wider than its sweep");
      read_places(reader, count, bits, &step);
    }
  }
  plan->prepared_sweeps = static_cast<int>(reader->take(0, plan->sweeps.size(), "the number of prepared sweeps"));
}

void read_prepared(Reader* reader, Plan* plan) {
  plan->prepared.resize(reader->count("the number of prepared blocks"));
  int64_t seen = 0;
  for (Prepared& each : plan->prepared) {
    each.bit = static_cast<int>(reader->take(0, plan->qubits - 1, "a prepared bit"));
    each.block = static_cast<int>(reader->take(0, int64_t(plan->blocks.size()) - 1, "a prepared block"));
    if (plan->blocks[each.block].width != 1) throw std::invalid_argument("a prepared block acts on more than a qubit");
    if (seen >> each.bit & 1) throw std::invalid_argument("a bit is prepared twice");
    seen |= int64_t{1} << each.bit;
  }
}

void read_strings(Reader* reader, Plan* plan) {
  const int64_t most = (int64_t{1} << plan->qubits) - 1, lanes = (int64_t{1} << plan->lane_bits) - 1;
  plan->strings.resize(reader->count("the number of strings"));
  for (PauliString& string : plan->strings) {
    string.readout = static_cast<int>(reader->take(0, int64_t{plan->readouts} - 1, "a string's readout"));
    const int64_t x = reader->take(0, most, "a string's flips"), z = reader->take(0, most, "a string's signs");
    string.odd = reader->take(0, 1, "a string's parity") == 1;
    string.row_x = x >> plan->lane_bits;
    string.row_z = z >> plan->lane_bits;
    string.lane_x = static_cast<int>(x & lanes);
    string.lane_z = static_cast<int>(z & lanes);
  }
}

}  // namespace

std::string read_plan(const std::vector<int64_t>& numbers, int lane_bits, Plan* plan) {
  try {
    Reader reader(numbers);
    read_header(&reader, lane_bits, plan);
    read_blocks(&reader, plan);
    read_sweeps(&reader, plan);
    read_prepared(&reader, plan);
    read_strings(&reader, plan);
    if (!reader.done()) throw std::invalid_argument("goes on after its end");
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

}  // namespace qmljob
