// SPDX-License-Identifier: Apache-2.0
// The command line: which commands and flags there are, and what becomes of errors.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <concepts>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "isobit/core/error.h"
#include "isobit/lab/commands.h"
#include "isobit/lab/settings.h"
#include "isobit/lab/usage.h"
#include "isobit/ops/catalog.h"

namespace isobit::lab {
namespace {

// One value, or several with commas between them.
template <class T>
void add_list(CLI::App& app, const std::string& name, std::vector<T>& values,
              const std::string& help) {
  CLI::Option* option = app.add_option(name, values, help);
  option->delimiter(',')->allow_extra_args(false);
  if constexpr (std::integral<T>)  // CLI11 alone would wrap -1 around
    option->check([name](const std::string& text) {
      number<T>(name, text);
      return std::string();
    });
}

void add_operators(CLI::App& app, Flags& flags) {
  add_list(app, "op", flags.ops, "operators, separated by commas");
}

void add_json(CLI::App& app, Flags& flags) {
  app.add_flag("--json", flags.json, "print JSON Lines");
}

void add_out(CLI::App& app, Flags& flags, const std::string& help) {
  app.add_option("--out", flags.out, help);
}

void add_devices(CLI::App& app, Flags& flags) {
  add_list(
      app, "--device", flags.device,
      "cpu, emu, ptx, sass, cuda, hip or triton (interpreted if PyTorch finds no GPU, by profile "
      "compiled and executed as PTX); with triton, verify and parity use small shapes by default");
}

// A flag that some operators share; true where it is new.
bool is_new(const CLI::App& app, std::string_view name) {
  return !name.empty() && app.get_option_no_throw(flag_of(name)) == nullptr;
}

// What is computed, as far as its speed depends on it.
void add_shape_flags(CLI::App& app, Flags& flags) {
  for (const Operation* operation : catalog())
    for (const Dim& dim : operation->dims)
      for (std::string_view name : {dim.name, flag_for_both_sides(dim.name)})
        if (is_new(app, name) && dim.derived == nullptr)
          add_list(app, flag_of(name), flags.dims[std::string(name)],
                   name == dim.name ? fmt::format("extents of dimension {}", name)
                                    : fmt::format("extents of both {0}_h and {0}_w", name));
  add_list(app, "--dtype", flags.dtype, "f32, f16, bf16, f64, i32, i64, bool or u8");
  add_list(app, "--weight-dtype", flags.weight_dtype, "default: the same as --dtype");
  add_list(app, "--y-dtype", flags.y_dtype, "default: the same as --dtype");
  add_list(app, "--with", flags.with, "extra arguments, joined by '+' (residual+sum), or none");
}

// On which values, and where they lie.
void add_input_flags(CLI::App& app, Flags& flags) {
  add_list(app, "--input", flags.input, "input family");
  add_list(app, "--statistics", flags.statistics,
           "what forward found of rows, in backward: computed or given");
  add_list(app, "--seed", flags.seed, "seed of the input");
  add_list(app, "--offset", flags.offset, "misalignment of the arrays, in elements");
  add_list(app, "--row-stride", flags.row_stride, "distance between rows, in elements");
  add_list(
      app, "--layout", flags.layout,
      "dense, reversed (transposed views) or spread; only for operators that support any strides. "
      "Of products nn, nt, tn, tt: which of a and b are transposed views");
}

// How it is computed.
void add_way_flags(CLI::App& app, Flags& flags) {
  add_list(app, "--pass", flags.pass, "fwd or bwd");
  add_list(app, "--variant", flags.variant, "a variant, part of its name, or all");
  add_devices(app, flags);
  add_list(app, "--isa", flags.isa, "auto, scalar, avx2, avx512 or neon");
  add_list(app, "--threads", flags.threads, "number of threads; default: all processors");
  add_list(app, "--plan", flags.plan,
           "KNOB=VALUE,..., all (every combination) or default (not tuned)");
  // The operators' own options, each once.
  for (const Operation* operation : catalog())
    for (const Option& option : operation->options) {
      if (!option.in_lab) continue;
      if (const std::string_view both = flag_for_both_sides(option.name); is_new(app, both))
        add_list(app, flag_of(both), flags.options[std::string(both)],
                 fmt::format("both {0}_h and {0}_w", both));
      if (!is_new(app, option.name)) continue;
      std::vector<std::string>& values = flags.options[std::string(option.name)];
      add_list(app, flag_of(option.name), values,
               option.choices.empty() ? fmt::format("default: {}", option.fallback)
                                      : fmt::format("{}", fmt::join(option.choices, " or ")));
      if (option.former.empty()) continue;
      add_list(app, flag_of(option.former), values, "");
      app.get_option(flag_of(option.former))->group("");  // which help does not show
    }
}

class CommandLine {
 public:
  CommandLine() {
    app_.set_version_flag("--version", version());
    app_.require_subcommand(1);
    app_.failure_message(CLI::FailureMessage::simple);

    CLI::App& list_app =
        add("list", "operators, variants, dtypes; what is unavailable here and why", list);
    add_operators(list_app, flags_);
    add_devices(list_app, flags_);
    add_json(list_app, flags_);

    CLI::App& info_app = add("info", "processor, caches, instruction set, memory, system", info);
    add_json(info_app, flags_);
    add_out(info_app, flags_, "write info.json to this folder");

    add_json(add("doctor", "what is loaded, what is missing, how to get it", doctor), flags_);

    CLI::App& verify_app = add_measured("verify", "compare results with the reference", verify);
    verify_app.add_flag("--all", flags_.all, "every operator");
    verify_app.add_option("--grid", flags_.grid, "the operator's own cases: quick, test or full");
    verify_app.add_flag("--report", flags_.report, "a row for each output, with its largest error");

    CLI::App& parity_app =
        add_measured("parity", "one input in every configuration, one hash each", parity);
    parity_app.add_flag("--all", flags_.all, "every operator (the default)");

    CLI::App& bench_app = add_measured(
        "bench", "measure times; compare with a plain copy and other libraries", bench);
    bench_app.add_flag("--all", flags_.all, "every operator");
    bench_app.add_flag("--quick", flags_.quick, "fewer shapes and rounds");

    CLI::App& profile_app = add_measured(
        "profile", "count what GPU kernels do, executed as PTX; a model of their time", profile);
    profile_app.add_flag("--all", flags_.all, "every operator (the default)");

    CLI::App& tune_app = add("tune", "measure plans on this machine, store the better ones", tune);
    add_operators(tune_app, flags_);
    add_shape_flags(tune_app, flags_);
    add_way_flags(tune_app, flags_);
    add_list(tune_app, "--without", flags_.without, "optional arguments to omit");
    tune_app.add_flag("--all", flags_.all, "every operator");
    tune_app.add_flag("--quick", flags_.quick, "fewer shapes and rounds");
    tune_app.add_flag("--dry-run", flags_.dry_run, "measure and show, store nothing");
    tune_app.add_flag("--clear", flags_.clear, "delete stored plans, measure nothing");
    add_out(tune_app, flags_, "also write tune.jsonl to this folder");
    add_json(tune_app, flags_);

    CLI::App& run_app = add("run", "run a variant on arrays from .npy files", run_files);
    add_operators(run_app, flags_);
    run_app.add_option("--in", flags_.in, "NAME=FILE.npy, once for each input")
        ->allow_extra_args(false);
    add_list(run_app, "--dtype", flags_.dtype, "bf16: uint16 arrays hold bf16");
    add_list(run_app, "--y-dtype", flags_.y_dtype, "default: the same as x");
    add_list(run_app, "--with", flags_.with, "extra outputs, joined by '+'");
    add_way_flags(run_app, flags_);
    add_out(run_app, flags_, "write every output as NAME.npy to this folder");
    run_app.add_flag("--dump", flags_.dump, "also write the reference's intermediate arrays");
    run_app.add_flag("--print", flags_.print, "print the arrays, abbreviated");
    add_json(run_app, flags_);

    CLI::App& replay_app =
        add("replay", "repeat recorded calls; their results must have the recorded bits", replay);
    replay_app.add_option("file", flags_.out, "what isobit.torch.record or isobit_record wrote")
        ->required();
    add_devices(replay_app, flags_);
    add_list(replay_app, "--isa", flags_.isa, "all, auto, scalar, avx2, avx512 or neon");
    add_list(replay_app, "--threads", flags_.threads, "number of threads; default: all processors");
    add_json(replay_app, flags_);

    add("report", "write a folder's results as tables and plots, in HTML and PNG", report)
        .add_option("folder", flags_.out,
                    "the folder to which verify, parity, bench and info wrote")
        ->required();
  }

  int run(int argc, char** argv) {
    try {
      require_known_command(argc, argv);
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (error.get_exit_code() == 0) return app_.exit(error);  // --help, --version
      throw UsageError(complaint(error) + "\n  `isobit COMMAND --help` shows its flags");
    }
    return command_(flags_);
  }

 private:
  CLI::App& add(const char* name, const char* help, int (*command)(const Flags&)) {
    CLI::App& app = *app_.add_subcommand(name, help);
    app.callback([this, command] { command_ = command; });
    return app;
  }

  CLI::App& add_measured(const char* name, const char* help, int (*command)(const Flags&)) {
    CLI::App& app = add(name, help, command);
    add_operators(app, flags_);
    add_shape_flags(app, flags_);
    add_input_flags(app, flags_);
    add_way_flags(app, flags_);
    add_out(app, flags_, fmt::format("also write {}.jsonl to this folder", name));
    add_json(app, flags_);
    return app;
  }

  void require_known_command(int argc, char** argv) const {
    if (argc < 2) throw UsageError("no command is given\n" + app_.help());
    if (argv[1][0] == '-') return;
    std::vector<std::string> names;
    for (const CLI::App* app : app_.get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(app->get_name());
    const std::vector<std::string_view> known(names.begin(), names.end());
    index_of("command", argv[1], known);
  }

  // What was wrong; an unknown flag with the one that was probably meant.
  std::string complaint(const CLI::ParseError& error) const {
    for (const CLI::App* app : app_.get_subcommands())
      for (const std::string& unknown : app->remaining()) {
        if (!unknown.starts_with("--")) continue;
        std::vector<std::string> names;
        for (const CLI::Option* option : app->get_options()) names.push_back(option->get_name());
        const std::vector<std::string_view> known(names.begin(), names.end());
        return fmt::format("{} has no flag '{}'{}", app->get_name(), unknown,
                           suggestion(unknown, known));
      }
    return error.what();
  }

  CLI::App app_{"Isobit: operators that give the same bits, everywhere.", "isobit"};
  Flags flags_;
  int (*command_)(const Flags&) = nullptr;
};

int guarded(int argc, char** argv) {
  const auto complain = [](std::string_view what) { fmt::print(stderr, "isobit: {}\n", what); };
  try {
    return CommandLine().run(argc, argv);
  } catch (const UsageError& error) {
    complain(error.what());
    return kMisused;
  } catch (const InvalidArgument& error) {
    complain(error.what());
    return kMisused;
  } catch (const std::bad_alloc&) {
    complain("not enough memory");
  } catch (const std::exception& error) { complain(error.what()); }
  return kFailed;
}

}  // namespace
}  // namespace isobit::lab

int main(int argc, char** argv) {
  using namespace isobit::lab;
  const int status = guarded(argc, argv);
  // What is still in the buffer would be lost in silence, as on a full disk.
  if (std::fflush(stdout) == 0 || status != kPassed) return status;
  fmt::print(stderr, "isobit: cannot write the output: {}\n", std::strerror(errno));
  return kFailed;
}
