// headrace._native: a loaded model and its answers, for the Python of this package. Bodies and
// answers are those of the server's routes; what they mean is written in headrace/*.py.
//
// Every wait is without the interpreter's lock; signals of Python are looked at meanwhile.

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>

#include "native/loaded_models.h"
#include "text/render_process.h"

namespace nb = nanobind;

namespace headrace::python {
namespace {

constexpr std::chrono::milliseconds kSignalPoll{50};

constexpr std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kUnprocessable:
      return "unprocessable";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kExhausted:
      return "exhausted";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kPermission:
      return "permission";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "internal";
}

// As headrace.Error.
[[noreturn]] void raise(const Error& error) {
  const nb::object type = nb::module_::import_("headrace._errors").attr("Error");
  const std::string text = error.to_string();
  const std::string_view code = name_of(error.code);
  const nb::object made =
      type(nb::str(text.c_str(), text.size()), nb::arg("code") = nb::str(code.data(), code.size()),
           nb::arg("param") = error.param.empty() ? nb::object(nb::none())
                                                  : nb::object(nb::str(error.param.c_str())));
  PyErr_SetObject(type.ptr(), made.ptr());
  throw nb::python_error();
}

// One answer as Python takes it. In a fork of its process it is left alone: threads that are not
// there may hold its locks.
class Answer {
 public:
  explicit Answer(std::shared_ptr<LocalAnswer> answer)
      : process_(getpid()), answer_(std::move(answer)) {}
  ~Answer() {
    if (!is_own_process()) new std::shared_ptr<LocalAnswer>(std::move(answer_));  // kept for ever
  }
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  // (status, data, ended, broken), as soon as there is something new.
  nb::tuple next() {
    while (!wait()) {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
    return take();
  }

  // The same at once.
  nb::tuple take() {
    check_process();
    LocalAnswer::Piece piece = answer_->take();
    headers_ = std::move(piece.headers);
    return nb::make_tuple(piece.status, nb::bytes(piece.data.data(), piece.data.size()),
                          piece.ended, piece.broken);
  }

  // Known with the first piece that has a status.
  nb::dict headers() const {
    nb::dict shown;
    for (const auto& [name, value] : headers_) shown[name.c_str()] = value;
    return shown;
  }

  int fileno() {
    check_process();
    const int descriptor = answer_->descriptor();
    if (descriptor < 0) {
      raise(make_error(ErrorCode::kExhausted, "the process has no more file descriptors"));
    }
    return descriptor;
  }

  void cancel() {
    if (is_own_process()) answer_->cancel();
  }

 private:
  bool is_own_process() const { return getpid() == process_; }

  void check_process() const {
    if (is_own_process()) return;
    raise(make_error(ErrorCode::kUnavailable,
                     "this answer belongs to process {}, of which this is a fork", process_));
  }

  bool wait() {
    check_process();
    const nb::gil_scoped_release release;
    return answer_->wait(kSignalPoll);
  }

  const pid_t process_;
  std::shared_ptr<LocalAnswer> answer_;
  HttpHeaders headers_;
};

class Model {
 public:
  Model(const std::string& model, std::map<std::string, std::string> options,
        std::map<std::string, std::string> adapters) {
    LoadRequest request{model, {}, std::move(adapters)};
    for (auto& [name, value] : options) request.options.emplace(name, std::move(value));
    auto loaded = load_unlocked(request);
    if (!loaded.ok()) raise(loaded.error());
    loaded_ = std::move(*loaded);
  }
  ~Model() {
    const nb::gil_scoped_release release;
    loaded_.reset();
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  std::shared_ptr<Answer> ask(const std::string& method, const std::string& path,
                              const nb::bytes& body) {
    auto asked = ask_unlocked(method, path, std::string(body.c_str(), body.size()));
    if (!asked.ok()) raise(asked.error());
    return std::make_shared<Answer>(std::move(*asked));
  }

  void close() {
    const nb::gil_scoped_release release;
    loaded_->close();
  }

 private:
  // Without the interpreter's lock.
  static Result<std::unique_ptr<LoadedModels>> load_unlocked(const LoadRequest& request) {
    const nb::gil_scoped_release release;
    return LoadedModels::load(request);
  }
  Result<std::shared_ptr<LocalAnswer>> ask_unlocked(const std::string& method,
                                                    const std::string& path, std::string body) {
    const nb::gil_scoped_release release;
    return loaded_->ask(method, path, std::move(body));
  }

  std::unique_ptr<LoadedModels> loaded_;
};

}  // namespace
}  // namespace headrace::python

NB_MODULE(_native, module) {
  using headrace::python::Answer;
  using headrace::python::Model;
  nb::set_leak_warnings(false);  // a fork keeps what it cannot end
  nb::class_<Answer>(module, "Answer")
      .def("next", &Answer::next)
      .def("take", &Answer::take)
      .def("fileno", &Answer::fileno)
      .def("cancel", &Answer::cancel)
      .def_prop_ro("headers", &Answer::headers);
  nb::class_<Model>(module, "Model")
      .def(nb::init<const std::string&, std::map<std::string, std::string>,
                    std::map<std::string, std::string>>(),
           nb::arg("model"), nb::arg("options"), nb::arg("adapters"))
      .def("ask", &Model::ask, nb::arg("method"), nb::arg("path"), nb::arg("body"))
      .def("close", &Model::close);
  module.def("set_template_program",
             [](std::string path) { headrace::RenderProcess::set_program(std::move(path)); });
}
