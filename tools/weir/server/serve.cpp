// weir serve: an HTTP server with OpenAI's API and a page to chat with. The parts are in tools/weir/server; this file
// reads the command line, starts them and ends them.
#include <CLI/CLI.hpp>
#include <memory>

#include "commands.h"
#include "options.h"

#ifdef WEIR_HAVE_HTTPLIB
#include <malloc.h>
#include <pthread.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <thread>

#include "conversation.h"
#include "output.h"
#include "server/http.h"
#include "server/routes.h"
#endif

namespace weir_cli {
namespace {

struct ServeFlags {
  std::string model, chat_template, host = "127.0.0.1", token, save_folder, thinking_close;
  std::vector<std::string> variables;
  uint32_t sessions = 2, queue = 32, port = 8470, client_seconds = 30, thinking_budget = 0;
  bool opens = false;
  SessionFlags session;
  SamplingFlags sampling;
};

#ifdef WEIR_HAVE_HTTPLIB

// Shows the page in the user's browser, in which nothing but the address and the token come.
void open_page(const std::string& address) {
  const char* const arguments[] = {"xdg-open", address.c_str(), nullptr};
  posix_spawnattr_t attributes;
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setsigmask(&attributes, &none);
  std::signal(SIGCHLD, SIG_IGN);  // nobody waits for it
  pid_t child = 0;
  if (posix_spawnp(&child, "xdg-open", nullptr, &attributes, const_cast<char**>(arguments), environ) != 0)
    tell("no browser could be started (xdg-open); open " + address);
  posix_spawnattr_destroy(&attributes);
}

// Pieces of prompts that a processor reads take long, and running answers pause meanwhile, so that they are shorter
// than those of a command that has nothing else to do.
SessionFlags session_flags(const weir_model* model, SessionFlags flags) {
  constexpr uint32_t kPieceTokens = 128;
  SessionOptions options(flags);
  const weir_plan_info plan = checked_plan(model, options.get());
  if (flags.batch == 0 && plan.device == WEIR_DEVICE_CPU) flags.batch = std::min(kPieceTokens, plan.context_tokens);
  return flags;
}

int run_serve(const ServeFlags& flags) {
  if (!weir_server::is_loopback(flags.host) && flags.token.empty()) {
    throw UsageError("--host " + flags.host +
                     ": others could use it; give a --token that they have to know, or leave --host out");
  }
  // Signals are for one thread; all that start from here on have them blocked.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);

  // Each connection has a thread; without this each thread would keep memory of its own for what it once took.
  mallopt(M_ARENA_MAX, 2);

  weir_server::Context context;
  context.runtime = create_runtime(flags.session.threads, flags.session.device);
  context.model = open_model(context.runtime.get(), flags.model);
  weir_model* const model = context.model.get();
  const std::filesystem::path path(flags.model);
  context.id = path.stem().string();
  context.file = path.filename().string();
  context.info = model_info(model);
  check(weir_model_chat_info(model, &context.chat), "cannot look at the chat template");
  context.settings = {read_template(flags.chat_template), "", variables_of_flags(flags.variables)};
  context.has_template = context.info.chat_template[0] != '\0' || !context.settings.chat_template.empty();
  context.sampling = flags.sampling;
  take_recommended(model, context.sampling);
  context.thinking_budget = flags.thinking_budget;
  context.thinking_close = flags.thinking_close;
  if (flags.thinking_budget != 0) require_thoughts(model);
  context.started = std::time(nullptr);
  context.save_folder = flags.save_folder;
  context.pool =
      std::make_unique<weir_server::Pool>(model, session_flags(model, flags.session), flags.sessions, flags.queue);

  weir_server::Routes routes(context);
  weir_server::HttpOptions http;
  http.host = flags.host;
  http.port = static_cast<int>(flags.port);
  http.token = flags.token;
  http.client_seconds = static_cast<int>(flags.client_seconds);
  weir_server::HttpServer server(http, [&](const weir_server::HttpRequest& request) { return routes.answer(request); });
  const int port = server.bind();
  const std::string shown = flags.host == "0.0.0.0" || flags.host == "::" ? "127.0.0.1"
                            : flags.host.find(':') != std::string::npos   ? "[" + flags.host + "]"
                                                                          : flags.host;
  const std::string address = "http://" + shown + ":" + std::to_string(port) + "/";
  put_line("listening on " + address);
  flush_output();
  std::atomic<bool> has_ended{false};
  std::thread waiter([&] {
    int number = 0;
    sigwait(&signals, &number);
    routes.stop();
    context.pool->stop();  // so that streams end with what has happened
    // A signal may come before it listens, when this does nothing yet.
    for (; !has_ended; std::this_thread::sleep_for(std::chrono::milliseconds(20))) server.stop();
  });
  if (flags.opens) open_page(address + (flags.token.empty() ? "" : "#token=" + flags.token));
  const bool is_good = server.run();
  has_ended = true;
  ::kill(::getpid(), SIGTERM);  // where the server ended by itself, so does the thread
  waiter.join();
  if (!is_good) throw std::runtime_error("the server ended: no connection can be accepted any more");
  return 0;
}

#else

int run_serve(const ServeFlags&) {
  throw std::runtime_error(
      "this program was built without cpp-httplib, so it has no server: install Debian's package libcpp-httplib-dev "
      "and "
      "build it again");
}

#endif

// A header can bring no other letters (RFC 6750, section 2.1).
std::string wrong_with_token(const std::string& token) {
  if (token.empty()) return "the token is empty";
  const char kRest[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~+/=-";
  return token.find_first_not_of(kRest) == std::string::npos
             ? ""
             : "a token has letters, digits and ._~+/=- alone; openssl rand -hex 16 makes a good one";
}

}  // namespace

void add_serve(CLI::App& program, Action& action) {
  auto flags = std::make_shared<ServeFlags>();
  flags->sampling.talks = true;
  flags->session.usual_preset = "chat";
  CLI::App* app = program.add_subcommand("serve", "Serve OpenAI's API over HTTP, and a page to chat with");
  add_model_flag(*app, flags->model)->required();
  const auto number_of = [&](const char* name, uint32_t& value, const char* text, uint64_t low, uint64_t high) {
    app->add_option(name, value, text)->transform(whole_number(low, high))->type_name("N")->group("Server");
  };
  number_of("--port", flags->port, "Port; default 8470; 0: any that is free, as the first line of the output says", 0,
            65535);
  app->add_option("--host", flags->host,
                  "Address to listen on; default 127.0.0.1; others than this machine's own want "
                  "--token")
      ->type_name("ADDRESS")
      ->group("Server");
  app->add_option("--token", flags->token,
                  "What requests under /v1 have to bring: Authorization: Bearer TOKEN. The list of processes shows it; "
                  "the environment variable WEIR_TOKEN does the same and is not shown")
      ->envname("WEIR_TOKEN")
      ->check(CLI::Validator(wrong_with_token, ""))
      ->type_name("TOKEN")
      ->group("Server");
  number_of("--sessions", flags->sessions, "Conversations that are kept and answered at a time; default 2", 1, 256);
  number_of("--queue", flags->queue, "Requests that may wait for one; default 32; beyond, they are refused (429)", 0,
            4096);
  number_of("--client-timeout", flags->client_seconds,
            "Seconds after which a client that takes nothing is dropped; "
            "default 30",
            1, 3600);
  app->add_option("--save-dir", flags->save_folder, "Folder for conversations that the page saves; default: none is")
      ->check(some_path())
      ->type_name("FOLDER")
      ->group("Server");
  app->add_flag("--open", flags->opens, "Open the page in the browser")->group("Server");
  add_template_flag(*app, flags->chat_template);
  add_variable_flag(*app, flags->variables);
  add_thinking_flags(*app, flags->thinking_budget, flags->thinking_close);
  add_session_flags(*app, flags->session);
  add_sampling_flags(*app, flags->sampling);
  app->footer(
      "Without --policy, --preset, --budget and --budget-bytes sessions have the preset chat; without --batch they "
      "read\n"
      "prompts in pieces of 128 tokens on the processor.\n"
      "Exit status: 0 ended by a signal, 1 failed, 2 wrong usage.");
  app->callback([flags, &action] { action = [flags] { return run_serve(*flags); }; });
}

}  // namespace weir_cli
