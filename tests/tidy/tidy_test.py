"""Every rule must fire on a small bad input, and stay silent on a good one."""

import unittest

import cpp_scan
import tidy

GOOD = '''// A contract.
#pragma once

#include <vector>

#include "base/result.h"

namespace headrace {

struct Row {
  int a = 1;
  int twice() const { return 2 * a; }
};

}  // namespace headrace
'''


def rules(path, text):
    return [finding.rule for finding in tidy.check_file(path, text)]


def function_of(num_lines, head="void long_one()"):
    return head + " {\n" + "  call();\n" * (num_lines - 2) + "}\n"


class RulesTest(unittest.TestCase):
    def test_good_header(self):
        self.assertEqual(rules("src/model/good.h", GOOD), [])

    def test_folder_order(self):
        for folder, target in (("base", "checkpoint/gguf.h"), ("checkpoint", "backend/backend.h"), ("backend", "model/model.h"),
                               ("model", "engine/engine.h"), ("engine", "server/http/http.h"), ("engine", "text/tokenizer.h"),
                               ("text", "engine/request.h"), ("text", "checkpoint/gguf.h"), ("server", "cli/command.h"),
                               ("server", "options.h"), ("nowhere", "base/result.h")):
            self.assertEqual(len(rules(f"src/{folder}/x.cpp", f'#include "{target}"\n')), 1, (folder, target))
        for folder, target in (("server", "text/tokenizer.h"), ("engine", "text/constraint.h"), ("cli", "server/http/http.h"),
                               ("model", "base/result.h"), ("cli", "options.h")):
            self.assertEqual(rules(f"src/{folder}/x.cpp", f'#include "{target}"\n'), [], (folder, target))

    def test_function_length(self):
        self.assertEqual(rules("src/model/x.cpp", function_of(70)), [])
        self.assertEqual(rules("src/model/x.cpp", function_of(71)), ["function-length"])
        self.assertEqual(rules("src/backend/cpu/kernels/x.cpp", function_of(120)), [])
        self.assertEqual(rules("src/backend/cpu/kernels/x.cpp", function_of(121)), ["function-length"])

    def test_function_length_in_every_form(self):
        for head in ("void Type::method(int a) const noexcept", "template <typename T, int N>\nT make(T a)",
                     "Type::Type(int a) : a_(a), b_{1, 2}", "auto f(int a) -> std::vector<int>", "bool operator==(const T& a)",
                     "void operator()(int a)", "static Result<std::map<int, int>> read(const std::string& a)",
                     "TEST(Suite, Name)", "[[nodiscard]] constexpr int f(int a = 3)", "~Type() override"):
            self.assertEqual(rules("src/model/x.cpp", "namespace a {\n" + function_of(90, head) + "}\n"), ["function-length"], head)
        inside = "class Type : public Base {\n public:\n" + function_of(90, "  int get()") + "};\n"
        self.assertEqual(rules("src/model/x.cpp", inside), ["function-length"])

    def test_tables_are_no_functions(self):
        table = "constexpr Row kRows[] = {\n" + '    {"a", 1, [](int x) { return x; }},\n' * 100 + "};\n"
        self.assertEqual(rules("src/model/x.cpp", table), [])
        self.assertEqual(rules("src/model/x.cpp", "enum class E {\n" + "  kA,\n" * 100 + "};\n"), [])

    def test_parameters(self):
        self.assertEqual(rules("src/model/x.cpp", "void f(int a, int b, int c, int d, int e, int g) {}\n"), [])
        self.assertEqual(rules("src/model/x.cpp", "void f(int a, int b, int c, int d, int e, int g, int h) {}\n"), ["parameters"])
        self.assertEqual(rules("src/model/x.cpp", "void f(std::map<int, std::pair<int, int>> a, int (*b)(int, int, int, int, int)) {}\n"), [])

    def test_braces_in_literals_and_comments(self):
        text = 'void f() {\n  // {\n  char c = \'{\';\n  auto s = "{{";\n  auto r = R"({)";\n  int n = 1\'000;\n}\n' + function_of(5, "void g()")
        self.assertEqual([f.name for f in cpp_scan.functions(text)], ["f", "g"])
        self.assertEqual([f.num_lines for f in cpp_scan.functions(text)], [7, 5])

    def test_file_length(self):
        self.assertEqual(rules("src/model/x.cpp", "int a;\n" * 700), [])
        self.assertEqual(rules("src/model/x.cpp", "int a;\n" * 701), ["file-length"])
        self.assertEqual(rules("src/model/families.cpp", "int a;\n" * 1000), [])
        self.assertEqual(rules("src/model/families.cpp", "int a;\n" * 1001), ["file-length"])

    def test_line_width(self):
        self.assertEqual(rules("src/model/x.cpp", "// " + "a" * 97 + "\n"), [])
        self.assertEqual(rules("src/model/x.cpp", "// " + "a" * 98 + "\n"), ["line-width"])

    def test_calls(self):
        self.assertEqual(rules("src/engine/x.cpp", 'auto x = std::getenv("A");\n'), ["environment"])
        self.assertEqual(rules("src/options.cpp", 'auto x = std::getenv("A");\n'), [])
        self.assertEqual(rules("src/engine/x.cpp", "void f() { std::cout << 1; }\n"), ["output"])
        self.assertEqual(rules("src/cli/x.cpp", "void f() { std::cout << 1; }\n"), [])
        self.assertEqual(rules("src/engine/x_test.cpp", 'auto x = std::getenv("A");\n'), [])
        self.assertEqual(rules("src/engine/x.cpp", "#define MAXIMUM 3\n"), ["macro"])

    def test_words(self):
        for word in ("TO" + "DO", "FIX" + "ME"):
            self.assertEqual(rules("docs/x.md", f"{word}: later\n"), ["unfinished"])
        self.assertEqual(rules("tools/x.sh", "cd /wo" + "rk/main\n"), ["path"])
        self.assertEqual(rules("tools/x.sh", "curl https://" + ".".join(("pypi", "org")) + "/simple\n"), ["host"])
        self.assertEqual(rules("tools/x.sh", 'cd "$root/work"; ls tests/home\n'), [])

    def test_header(self):
        self.assertEqual(rules("src/base/x.h", "#pragma once\n"), ["contract"])
        self.assertEqual(rules("src/base/x.h", "// A contract.\n"), ["pragma"])

    def test_exception_needs_a_reason_and_the_right_rule(self):
        bad = function_of(71)
        self.assertEqual(rules("src/model/x.cpp", "// tidy: function-length because the steps share ten values\n" + bad), [])
        self.assertEqual(rules("src/model/x.cpp", "// tidy: function-length\n" + bad), ["function-length"])
        self.assertEqual(rules("src/model/x.cpp", "// tidy: parameters because of reasons\n" + bad), ["function-length"])


if __name__ == "__main__":
    unittest.main()
