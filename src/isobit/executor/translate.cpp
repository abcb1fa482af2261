// SPDX-License-Identifier: Apache-2.0
// From statements to instructions: registers become slots, variables offsets, labels targets.
#include <algorithm>
#include <initializer_list>
#include <optional>

#include "isobit/executor/operands.h"

namespace isobit::executor {
namespace {

class Translator : Operands {
 public:
  Translator(const Text& text, Module& module) : Operands(text), module_(module) {}

  std::unique_ptr<Function> translate() {
    function_->name = text_.name;
    function_->most_threads = text_.most_threads;
    for (const Statement& statement : text_.statements) {
      statement_ = &statement;
      instruction_ = {};
      instruction_.line = statement.line;
      add();
    }
    function_->code.push_back({.execute = trap, .kind = Kind::control});  // behind the last return
    function_->opcodes.emplace_back("the end of the function");
    function_->register_bytes = aligned(function_->register_bytes, kSlotAlignment);
    function_->local_bytes = aligned(function_->local_bytes, 16);
    return std::move(function_);
  }

 private:
  using Handlers = std::initializer_list<std::pair<std::string_view, Handler>>;

  // ---- statements ----

  void add() {
    if (!statement_->guard.empty()) {
      instruction_.guard = slot({.name = statement_->guard}, 0);
      instruction_.unless = statement_->unless;
    }
    const std::vector<std::string_view> parts = parts_of(statement_->opcode);
    const std::string_view base = parts[0];
    if (base == "ld" || base == "st")
      access(parts, base == "ld");
    else if (base == "mov")
      move(parts);
    else if (base == "bra")
      jump();
    else if (base == "call")
      call();
    else if (base == "ret" || base == "exit")
      as(Kind::control, return_from);
    else if (base == "trap")
      as(Kind::control, trap);
    else if (base == "fence" || base == "membar" || base == "griddepcontrol")
      as(Kind::sync, nothing);
    else if (base == "bar" || base == "barrier")
      barrier();
    else if (base == "shfl")
      shuffle(parts);
    else if (base == "vote")
      vote();
    else if (base == "redux")
      reduce();
    else if (base == "mbarrier")
      arrival();
    else if (base == "cp")
      copy(parts);
    else if (base == "atom" || base == "red")
      atomic(parts);
    else if (base == "ldmatrix" || base == "stmatrix" || base == "mma")
      matrices(parts);
    else if (base == "wgmma" || base == "setmaxnreg")
      warpgroup();
    else
      compute();
    function_->code.push_back(instruction_);
    function_->opcodes.push_back(statement_->opcode);
  }

  void as(Kind kind, Handler handler) {
    instruction_.kind = kind;
    instruction_.execute = handler;
  }
  void as(Kind kind, Handlers handlers) {
    for (const auto& [opcode, handler] : handlers)
      if (opcode == statement_->opcode) return as(kind, handler);
    unknown();
  }

  // What is computed from registers alone.
  void compute() {
    const Operation* operation = operation_named(opcode_of_operands());
    if (operation == nullptr) unknown();
    as(operation->kind, operation->execute);
    if (statement_->operands.size() != operation->widths.size())
      wrong("it has " + std::to_string(statement_->operands.size()) + " operands");
    for (std::size_t i = 0; i < operation->widths.size(); ++i) {
      if (!operand(i).second.empty()) unknown();
      instruction_.slots[i] = slot(operand(i), operation->widths[i]);
    }
  }

  // The source of cvt may be a wider register, of which it takes the lower bits.
  std::string opcode_of_operands() const {
    const std::vector<Operand>& operands = statement_->operands;
    if (statement_->opcode.starts_with("cvt.") && operands.size() == 2 &&
        operands[1].is == Operand::Is::name)
      if (const auto from = register_named(operands[1].name))
        if (const std::string wide = statement_->opcode + " of " + std::to_string(from->width);
            operation_named(wide) != nullptr)
          return wide;
    return statement_->opcode;
  }

  void address(const Operand& operand) {
    if (operand.is != Operand::Is::address) unknown();
    instruction_.number = operand.offset;
    if (operand.name.empty()) {
      instruction_.base = Base::none;
    } else if (const auto found_local = local(operand.name)) {
      instruction_.base = Base::own_local;
      instruction_.number += found_local->offset;
    } else if (const auto at = names_.entry_parameter(operand.name)) {
      instruction_.base = Base::parameters;
      instruction_.number += *at;
    } else if (const auto found = register_named(operand.name)) {
      instruction_.base = found->width == 8 ? Base::reg64 : Base::reg32;
      instruction_.slots[4] = found->slot;
    } else {
      instruction_.base = Base::none;  // the dynamic array in shared memory
      if (instruction_.space != Space::shared) wrong("no variable " + std::string(operand.name));
    }
  }

  void access(const std::vector<std::string_view>& parts, bool loads) {
    as(loads ? Kind::load : Kind::store, loads ? load : store);
    if (parts[1] == ".param" && loads) instruction_.kind = Kind::move;  // operands of machine code
    for (std::size_t i = 1; i + 1 < parts.size(); ++i) {
      const std::string_view part = parts[i];
      if (part == ".global")
        instruction_.space = Space::global;
      else if (part.starts_with(".shared"))
        instruction_.space = Space::shared;
      else if (part == ".local")
        instruction_.space = Space::local;
      else if (part == ".v2" || part == ".v4")
        instruction_.count = part == ".v2" ? 2 : 4;
      else if (part != ".param" && part != ".nc" && part != ".cs" && part != ".ca" &&
               part != ".cg" && part != ".cv" && part != ".wb" && part != ".wt" &&
               part != ".volatile" && part != ".relaxed" && part != ".acquire" &&
               part != ".release" && part != ".gpu" && part != ".cta" && part != ".cluster" &&
               part != ".sys" && part != ".L1::no_allocate" && part != ".L1::evict_first")
        unknown();
    }
    const std::string_view type = parts.back();
    instruction_.bytes = static_cast<std::uint8_t>(bytes_of_type(type));
    instruction_.is_signed = type[1] == 's';
    address(operand(loads ? 1 : 0));
    const Operand& values = operand(loads ? 0 : 1);
    const bool is_list = values.is == Operand::Is::list;
    if ((is_list ? values.elements.size() : 1) != instruction_.count) unknown();
    int width = instruction_.bytes;
    for (std::size_t i = 0; i < instruction_.count; ++i) {
      const Operand& value = is_list ? values.elements[i] : values;
      if (value.is == Operand::Is::name && value.name != "_")
        width = slot_and_width(value, instruction_.bytes).second;
    }
    instruction_.width = static_cast<std::uint8_t>(width);
    for (std::size_t i = 0; i < instruction_.count; ++i)
      instruction_.slots[i] = slot(is_list ? values.elements[i] : values, width);
  }

  void move(const std::vector<std::string_view>& parts) {
    const Operand& to = operand(0);
    const Operand& from = operand(1);
    if (to.is == Operand::Is::list || from.is == Operand::Is::list)
      return pack_or_unpack(parts.back());
    if (from.is == Operand::Is::number || register_named(from.name)) return compute();
    instruction_.kind = Kind::move;
    const auto [slot, width] = slot_and_width(to, bytes_of_type(parts.back()));
    instruction_.slots[0] = slot;
    if (const Handler special = special_register(from.name)) {
      if (width != 4) unknown();
      instruction_.execute = special;
    } else if (const auto found_local = local(from.name)) {
      if (width != 8) unknown();
      instruction_.execute = address_of_local;
      instruction_.number = found_local->offset;
    } else if (const auto at = names_.entry_parameter(from.name)) {
      if (width != 8) unknown();
      instruction_.execute = address_of_parameter;
      instruction_.number = *at;
    } else if (from.name[0] == '%') {
      wrong("the executor does not know " + std::string(from.name));
    } else {  // the dynamic array in shared memory: it begins at 0
      instruction_.execute = width == 8 ? address_of_shared64 : address_of_shared32;
    }
  }

  void pack_or_unpack(std::string_view type) {
    const bool packs = operand(1).is == Operand::Is::list;
    const std::vector<Operand>& elements = operand(packs ? 1 : 0).elements;
    as(Kind::move, packs ? pack : unpack);
    const int width = bytes_of_type(type);
    const int bytes = width / static_cast<int>(std::max<std::size_t>(elements.size(), 1));
    instruction_.width = static_cast<std::uint8_t>(width);
    instruction_.bytes = static_cast<std::uint8_t>(bytes);
    instruction_.count = static_cast<std::uint8_t>(elements.size());
    instruction_.slots[0] = slot(operand(packs ? 0 : 1), width);
    for (std::size_t i = 0; i < elements.size(); ++i)
      instruction_.slots[1 + i] = slot(elements[i], bytes);
  }

  void jump() {
    as(Kind::control, branch);
    const auto to = names_.label(operand(0).name, statement_->scope);
    if (!to) wrong("no label " + std::string(operand(0).name));
    instruction_.target = static_cast<std::uint32_t>(*to);
  }

  // [(results),] name [, (arguments)]
  void call() {
    as(Kind::control, call_function);
    auto made = std::make_unique<Call>();
    std::vector<Variable>* list = &made->results;
    for (const Operand& operand : statement_->operands) {
      if (operand.is == Operand::Is::name) {
        made->callee = module_.find(operand.name);
        if (made->callee == nullptr) wrong("no function " + std::string(operand.name));
        list = &made->arguments;
        continue;
      }
      if (operand.is != Operand::Is::list) unknown();
      for (const Operand& element : operand.elements) {
        const auto found = local(element.name);
        if (!found) wrong("no parameter " + std::string(element.name));
        list->push_back(*found);
      }
    }
    if (made->callee == nullptr || made->arguments.size() != made->callee->parameters.size() ||
        made->results.size() != made->callee->results.size())
      wrong("its parameters are not those of the function");
    instruction_.call = made.get();
    function_->calls.push_back(std::move(made));
  }

  void barrier() {
    const std::string_view opcode = statement_->opcode;
    if (opcode == "bar.warp.sync") {
      as(Kind::sync, sync_warp);
      instruction_.slots[0] = slot(operand(0), 4);
    } else if (opcode.starts_with("barrier.cluster.arrive")) {
      as(Kind::sync, arrive_cluster);
    } else if (opcode.starts_with("barrier.cluster.wait")) {
      as(Kind::sync, wait_cluster);
    } else if (opcode == "bar.sync" || opcode == "barrier.sync" || opcode == "barrier.cta.sync") {
      as(Kind::sync, sync_block);
      require_barrier_0(operand(0));
    } else if (opcode.starts_with("bar.red.") || opcode.starts_with("barrier.red.") ||
               opcode.starts_with("barrier.cta.red.")) {
      as(Kind::sync, vote_in_block);
      require_barrier_0(operand(1));
      const bool counts = opcode.find(".popc") != std::string_view::npos;
      instruction_.number = counts ? 2 : opcode.find(".and") != std::string_view::npos ? 1 : 0;
      instruction_.slots[0] = slot(operand(0), counts ? 4 : 0);
      instruction_.slots[1] = slot(operand(2), 0);
    } else {
      unknown();
    }
  }
  void require_barrier_0(const Operand& operand) const {
    if (operand.is != Operand::Is::number || operand.bits != 0) wrong("only barrier 0 is known");
  }

  void shuffle(const std::vector<std::string_view>& parts) {
    if (parts.size() != 4) unknown();
    as(Kind::shuffle,
       Handlers{{"shfl.sync.bfly.b32", shuffle_xor}, {"shfl.sync.idx.b32", shuffle_index}});
    for (std::size_t i = 0; i < 5; ++i) {
      Operand each = operand(i);
      if (i == 0 && !each.second.empty()) {
        instruction_.slots[5] = slot({.name = each.second}, 0);
        each.second = {};
      }
      instruction_.slots[i] = slot(each, 4);
    }
  }

  void vote() {
    const bool ballots = statement_->opcode == "vote.sync.ballot.b32";
    as(Kind::shuffle, Handlers{{"vote.sync.ballot.b32", vote_ballot},
                               {"vote.sync.any.pred", vote_any},
                               {"vote.sync.all.pred", vote_all}});
    instruction_.slots[0] = slot(operand(0), ballots ? 4 : 0);
    instruction_.slots[1] = slot(operand(1), 0);
    instruction_.slots[2] = slot(operand(2), 4);
  }

  void reduce() {
    as(Kind::shuffle, reduce_lanes);
    const std::optional<Reduction> reduction = reduction_named(statement_->opcode);
    if (!reduction) unknown();
    instruction_.number = static_cast<std::int64_t>(*reduction);
    for (std::size_t i = 0; i < 3; ++i) instruction_.slots[i] = slot(operand(i), 4);
  }

  void arrival() {
    as(Kind::sync, Handlers{{"mbarrier.init.shared::cta.b64", init_arrival},
                            {"mbarrier.arrive.expect_tx.shared::cta.b64", expect_bytes},
                            {"mbarrier.arrive.shared::cta.b64", arrive},
                            {"mbarrier.try_wait.parity.shared::cta.b64", wait_arrival}});
    if (instruction_.execute == init_arrival) {
      instruction_.slots[0] = plain_address(operand(0), 4);
      instruction_.slots[1] = slot(operand(1), 4);
    } else if (instruction_.execute == expect_bytes || instruction_.execute == arrive) {
      const bool expects = instruction_.execute == expect_bytes;
      if (operand(0).name != "_" || statement_->operands.size() != (expects ? 3 : 2)) unknown();
      instruction_.slots[0] = plain_address(operand(1), 4);
      if (expects) instruction_.slots[1] = slot(operand(2), 4);
    } else {
      instruction_.slots[0] = slot(operand(0), 0);
      instruction_.slots[1] = plain_address(operand(1), 4);
      instruction_.slots[2] = slot(operand(2), 4);
    }
  }

  void copy(const std::vector<std::string_view>& parts) {
    const std::string_view opcode = statement_->opcode;
    if (opcode == "cp.async.commit_group") return as(Kind::copy, commit_copies);
    if (opcode == "cp.async.wait_group" || opcode == "cp.async.wait_all") {
      as(Kind::copy, wait_copies);
      if (opcode == "cp.async.wait_all") unknown();
      instruction_.number = static_cast<std::int64_t>(operand(0).bits);
      return;
    }
    if (opcode == "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes") {
      as(Kind::copy, copy_bulk);
      instruction_.slots[0] = plain_address(operand(0), 4);
      instruction_.slots[1] = plain_address(operand(1), 8);
      instruction_.slots[2] = slot(operand(2), 4);
      instruction_.slots[3] = plain_address(operand(3), 4);
      return;
    }
    if (opcode == "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes") {
      as(Kind::copy, copy_box);
      Operand map = operand(1);
      if (map.elements.size() != 3) unknown();
      for (std::size_t i = 0; i < 3; ++i) instruction_.slots[2 + i] = slot(map.elements[i], 4);
      map.elements.clear();
      instruction_.slots[0] = plain_address(operand(0), 4);
      instruction_.slots[1] = plain_address(map, 8);
      instruction_.slots[5] = plain_address(operand(2), 4);
      return;
    }
    if (parts.size() < 5 || !opcode.starts_with("cp.async.c") || !parts[3].starts_with(".shared") ||
        parts[4] != ".global")
      unknown();
    as(Kind::copy, copy_async);
    instruction_.slots[0] = plain_address(operand(0), 4);
    instruction_.slots[1] = plain_address(operand(1), 8);
    instruction_.bytes = static_cast<std::uint8_t>(operand(2).bits);
    if (statement_->operands.size() > 3) instruction_.slots[2] = slot(operand(3), 4);
  }

  // atom.{order}.{scope}.global.add.u32 d, [a], b; and red, also of f32, without d
  void atomic(const std::vector<std::string_view>& parts) {
    const bool returns = parts[0] == "atom", of_floats = parts.back() == ".f32" && !returns;
    if ((parts.back() != ".u32" && !of_floats) || parts[parts.size() - 2] != ".add") unknown();
    as(Kind::store, of_floats ? atomic_add_float : atomic_add);
    instruction_.space = Space::global;
    if (std::ranges::find(parts, ".global") == parts.end()) unknown();
    if (returns) instruction_.slots[0] = slot(operand(0), 4);
    address(operand(returns ? 1 : 0));
    instruction_.slots[7] = slot(operand(returns ? 2 : 1), 4);
  }

  void matrices(const std::vector<std::string_view>& parts) {
    if (parts[0] != "mma") return parts_of_matrices(parts);
    as(Kind::tensor,
       Handlers{{"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", multiply_add_f16},
                {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", multiply_add_bf16}});
    std::size_t next = 0;
    for (const Operand& operand : statement_->operands) {
      if (operand.is != Operand::Is::list) unknown();
      for (const Operand& element : operand.elements) instruction_.slots[next++] = slot(element, 4);
    }
    if (next != 14) unknown();
  }

  // {ld,st}matrix.sync.aligned.m8n8.x{1,2,4}[.trans].shared.b16
  void parts_of_matrices(const std::vector<std::string_view>& parts) {
    const bool loads = parts[0] == "ldmatrix", transposed = parts.size() == 8;
    if (parts.size() < 7 || parts[3] != ".m8n8" || (transposed && parts[5] != ".trans") ||
        parts[parts.size() - 2] != ".shared" || parts.back() != ".b16")
      unknown();
    as(Kind::tensor, loads        ? transposed ? load_matrices_transposed : load_matrices
                     : transposed ? store_matrices_transposed
                                  : store_matrices);
    const std::vector<Operand>& words = operand(loads ? 0 : 1).elements;
    if (parts[4] != ".x" + std::to_string(words.size()) || words.size() > 4) unknown();
    instruction_.count = static_cast<std::uint8_t>(words.size());
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i].is != Operand::Is::name) unknown();
      instruction_.slots[i] = slot(words[i], 4);
    }
    Operand at = operand(loads ? 1 : 0);
    instruction_.number = std::exchange(at.offset, 0);
    instruction_.slots[4] = plain_address(at, 4);
  }

  // Of wgmma: sums, the descriptors of a and b, whether sums are added to, the signs of a and b,
  // and whether each lies across k. Of m64n64k16 a is four registers, which lie no way.
  void warpgroup() {
    as(Kind::tensor, warpgroup_handler(statement_->opcode));
    if (instruction_.execute == nullptr) unknown();
    const std::vector<Operand>& operands = statement_->operands;
    const auto number = [&](std::size_t index) {
      if (operand(index).is != Operand::Is::number) unknown();
      return static_cast<std::int64_t>(operand(index).bits);
    };
    if (operands.size() == 1) instruction_.number = number(0);
    if (operands.size() < 2) return;
    const std::vector<Operand>&sums = operand(0).elements, &words = operand(1).elements;
    const std::size_t of_a = statement_->opcode.find("n64k") != std::string::npos ? 4 : 0;
    if (operands.size() + of_a / 4 != 8 || words.size() != of_a || sums.size() + of_a * 8 != 64)
      unknown();
    auto list = std::make_unique<std::vector<Slot>>();
    for (const Operand& element : sums) list->push_back(slot(element, 4));
    instruction_.list = list.get();
    function_->lists.push_back(std::move(list));
    instruction_.count = static_cast<std::uint8_t>(of_a);
    for (std::size_t i = 0; i < of_a; ++i) instruction_.slots[3 + i] = slot(words[i], 4);
    if (of_a == 0) instruction_.slots[0] = slot(operand(1), 8);
    instruction_.slots[1] = slot(operand(2), 8);
    instruction_.slots[2] = slot(operand(3), 0);
    if (number(4) != 1 || number(5) != 1) unknown();
    instruction_.number = of_a != 0 ? 2 * number(6) : number(6) + 2 * number(7);
  }

  Module& module_;
  Instruction instruction_;
};

}  // namespace

Module::Module(std::string text) : text_(std::move(text)), spans_(functions_of(text_)) {}

Function* Module::find(std::string_view name) {
  if (const auto found = functions_.find(name); found != functions_.end())
    return found->second.get();
  const auto span = spans_.find(name);
  if (span == spans_.end()) return nullptr;
  const Text text = read_function(span->second);
  std::unique_ptr<Function> made = Translator(text, *this).translate();
  return functions_.emplace(name, std::move(made)).first->second.get();
}

}  // namespace isobit::executor
