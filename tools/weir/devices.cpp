// weir devices: the devices of this machine, by the names that --device takes, and why one cannot be used.
#include <CLI/CLI.hpp>
#include <memory>

#include "commands.h"
#include "conversation.h"
#include "output.h"

namespace weir_cli {
namespace {

const char* kind_name(const weir_device_info& d) {
  switch (d.kind) {
    case WEIR_DEVICE_KIND_DISCRETE:
      return "discrete";
    case WEIR_DEVICE_KIND_INTEGRATED:
      return "integrated";
    case WEIR_DEVICE_KIND_VIRTUAL:
      return "virtual";
    default:
      return "cpu";
  }
}

// As --device takes it.
std::string name_of(const weir_device_info& d) {
  const std::string& backend = device_name(d.backend);
  return d.backend == WEIR_DEVICE_VULKAN ? backend + ":" + std::to_string(d.index) : backend;
}

void print_json(const std::vector<weir_device_info>& devices) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const weir_device_info& d : devices) {
    list.push_back({{"device", name_of(d)},
                    {"backend", device_name(d.backend)},
                    {"index", d.index},
                    {"name", d.name},
                    {"kind", kind_name(d)},
                    {"driver", d.driver},
                    {"memory_bytes", d.memory_bytes},
                    {"is_usable", d.is_usable != 0},
                    {"why_not", d.why_not}});
  }
  put_line(dump_json({{"devices", list}}));
}

void print_table(const std::vector<weir_device_info>& devices) {
  put_format("%-10s %-10s %10s  %s\n", "--device", "kind", "memory", "name");
  for (const weir_device_info& d : devices) {
    put_format("%-10s %-10s %10s  %s%s%s\n", name_of(d).c_str(), kind_name(d), human_bytes(d.memory_bytes).c_str(),
               plain_line(d.name).c_str(), d.driver[0] == '\0' ? "" : ", ", plain_line(d.driver).c_str());
    if (d.is_usable == 0) put_format("%-10s cannot be used: %s\n", "", d.why_not);
  }
}

}  // namespace

void add_devices(CLI::App& program, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* app = program.add_subcommand("devices", "The devices that sessions can run on");
  app->add_flag("--json", *json, "One JSON line");
  app->callback([json, &action] {
    action = [json] {
      const RuntimePtr runtime = create_runtime(1);
      const auto devices = list_devices(runtime.get());
      if (*json)
        print_json(devices);
      else
        print_table(devices);
      return 0;
    };
  });
}

}  // namespace weir_cli
