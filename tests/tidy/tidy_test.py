"""Every rule must fire on a small bad input, and stay silent on a good one."""

import pathlib
import unittest
import unittest.mock

import cpp_scan
import stations
import sealed_units
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

    def test_what_a_command_left_in_the_top_folder(self):
        paths = ["README.md", "src/x.bin", "some-1.0-py3-none-any.whl", ".clang-tidy"]
        self.assertEqual([finding.path for finding in tidy.check_root(paths)], ["some-1.0-py3-none-any.whl"])

    def test_folder_order(self):
        for folder, target in (("base", "checkpoint/gguf.h"), ("checkpoint", "backend/backend.h"), ("backend", "model/model.h"),
                               ("model", "engine/engine.h"), ("engine", "server/http/http.h"), ("engine", "text/tokenizer.h"),
                               ("text", "engine/request.h"), ("text", "checkpoint/gguf.h"), ("server", "cli/command.h"),
                               ("server", "options.h"), ("nowhere", "base/result.h"), ("model", "verify/golden.h"),
                               ("engine", "verify/golden.h"), ("verify", "engine/engine.h"), ("verify", "bench/synth.h"),
                               ("bench", "options.h"), ("bench", "engine/engine.h"), ("bench", "cli/terminal.h")):
            self.assertEqual(len(rules(f"src/{folder}/x.cpp", f'#include "{target}"\n')), 1, (folder, target))
        for folder, target in (("server", "text/tokenizer.h"), ("engine", "text/constraint.h"), ("cli", "server/http/http.h"),
                               ("model", "base/result.h"), ("cli", "options.h"), ("verify", "text/tokenizer.h"),
                               ("bench", "verify/sequence_runner.h"), ("cli", "bench/synth.h")):
            self.assertEqual(rules(f"src/{folder}/x.cpp", f'#include "{target}"\n'), [], (folder, target))

    def test_nested_folder_order(self):
        for path, target in (("model/config/x.h", "model/rope.h"), ("backend/backend.h", "backend/cpu/matmul.h"),
                             ("backend/cpu/kernels/pack.cpp", "backend/cpu/matmul.h"),
                             ("backend/cpu/kernels/kernels.h", "backend/cpu/kernels/generic/rows.h"),
                             ("backend/cpu/team/team.cpp", "backend/cpu/kernels/kernels.h"),
                             ("backend/cpu/verify/x.cpp", "backend/cpu/workspace.h"),
                             ("checkpoint/gguf.cpp", "checkpoint/hub/hub.h"), ("server/http/x.h", "server/api/y.h"),
                             ("server/api/x.h", "server/routes.h"), ("bench/probe/x.cpp", "bench/limits.h")):
            self.assertEqual(rules("src/" + path, f'// A contract.\n#pragma once\n#include "{target}"\n'), ["include-order"],
                             (path, target))
            self.assertEqual(rules("src/" + target, f'// A contract.\n#pragma once\n#include "{path}"\n'), [], (target, path))

    def test_files_with_places_of_their_own(self):
        include = '#include "backend/cpu/kernels/generic/rows.h"\n'
        self.assertEqual(rules("src/backend/cpu/kernels/parts/floats.cpp", include), [])
        self.assertEqual(rules("src/backend/cpu/kernels/reference/floats.cpp", include), [])
        self.assertEqual(rules("src/backend/cpu/kernels/registry.cpp", include), ["include-order"])
        self.assertEqual(rules("src/main.cpp", '#include "cli/command.h"\n#include "options.h"\n'), [])
        self.assertEqual(rules("src/options.cpp", '#include "cli/command.h"\n'), ["include-order"])

    def test_every_folder_has_a_place(self):
        self.assertEqual(rules("src/model/extra/x.cpp", ""), ["folder"])
        self.assertEqual(rules("src/backend/cuda/x.cpp", ""), ["folder"])

    def test_tests_may_include_what_their_folder_is_made_for(self):
        self.assertEqual(rules("src/bench/x_test.cpp", '#include "server/api/bundle.h"\n'), [])
        self.assertEqual(rules("src/model/config/x_test.cpp", '#include "model/testing/fake_checkpoint.h"\n'), [])
        self.assertEqual(rules("src/model/x_test.cpp", '#include "engine/engine.h"\n'), ["include-order"])
    def test_device_memory_is_the_backends(self):
        text = '#include "backend/device_access.h"\n'
        self.assertEqual(rules("src/model/x.cpp", text), ["device-memory"])
        self.assertEqual(rules("src/engine/x.cpp", '#include "backend/host_backend.h"\n'), ["device-memory"])
        self.assertEqual(rules("src/backend/cpu/x.cpp", text), [])
        self.assertEqual(rules("src/model/x_test.cpp", text), [])
        self.assertEqual(rules("src/model/x.cpp", '#include "backend/device_memory.h"\n'), [])

    def test_function_length(self):
        self.assertEqual(rules("src/model/x.cpp", function_of(70)), [])
        self.assertEqual(rules("src/model/x.cpp", function_of(71)), ["function-length"])
        self.assertEqual(rules("src/backend/cpu/kernels/x.cpp", function_of(70)), [])
        self.assertEqual(rules("src/backend/cpu/kernels/x.cpp", function_of(71)), ["function-length"])

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


def graph_rules(files):
    return [(finding.rule, finding.path) for finding in tidy.check_graph(files)]


class GraphTest(unittest.TestCase):
    def test_headers_that_include_each_other(self):
        files = {"src/model/a.h": '#include "model/b.h"\n', "src/model/b.h": '#include "model/c.h"\n',
                 "src/model/c.h": '#include "model/a.h"\n', "src/model/d.h": '#include "model/a.h"\n'}
        self.assertEqual(stations.header_rings(files), [["src/model/a.h", "src/model/b.h", "src/model/c.h"]])
        self.assertIn(("header-ring", "src/model/a.h"), graph_rules(files))

    def test_units_that_include_each_other_by_their_sources(self):
        files = {"src/model/a.h": "", "src/model/a.cpp": '#include "model/a.h"\n#include "model/b.h"\n',
                 "src/model/b.h": '#include "model/a.h"\n', "src/model/b.cpp": '#include "model/b.h"\n'}
        self.assertEqual(stations.header_rings(files), [])
        self.assertEqual(stations.unit_cycles(files), [["src/model/a", "src/model/b"]])
        self.assertEqual(graph_rules(files), [("unit-cycle", "src/model/a")])

    def test_a_chain_is_no_ring(self):
        files = {"src/model/a.h": "", "src/model/b.h": '#include "model/a.h"\n',
                 "src/model/b.cpp": '#include "model/b.h"\n#include "model/a.h"\n',
                 "src/model/c.cpp": '#include "model/b.h"\n'}
        self.assertEqual(graph_rules(files), [])

    def test_two_rings_are_two_findings(self):
        files = {f"src/model/{a}.h": f'#include "model/{b}.h"\n' for a, b in ("ab", "ba", "cd", "dc")}
        self.assertEqual(len(stations.header_rings(files)), 2)

    def test_tests_are_no_units(self):
        files = {"src/model/a.h": '#include "model/a_test.cpp"\n', "src/model/a_test.cpp": '#include "model/a.h"\n',
                 "tests/sim/x.h": '#include "model/a.h"\n'}
        self.assertEqual(graph_rules(files), [])

    def test_a_deep_chain_does_not_exhaust_the_stack(self):
        files = {f"src/model/a{i}.h": f'#include "model/a{i + 1}.h"\n' for i in range(5000)}
        files["src/model/a5000.h"] = '#include "model/a0.h"\n'
        self.assertEqual([len(ring) for ring in stations.header_rings(files)], [5001])


def sums_of(files):
    sums = tidy.Sums()
    for path, text in files.items():
        sums.add(path, text)
    return sums


class SumsTest(unittest.TestCase):
    def test_percentiles(self):
        self.assertEqual([tidy.percentile(list(range(1, 11)), share) for share in (0.5, 0.9, 1)], [5, 9, 10])
        self.assertEqual(tidy.percentile([7], 0.5), 7)
        self.assertEqual(tidy.percentile([], 0.9), 0)

    def test_long_functions_in_number(self):
        short, long = function_of(20), function_of(21)
        tests = {"tests/sim/x_test.cpp": "a\n" * 10_000}
        self.assertEqual(list(sums_of({"src/model/x.cpp": short * 9 + long, **tests}).findings()), [])
        found = list(sums_of({"src/model/x.cpp": short * 8 + long * 2, **tests}).findings())
        self.assertEqual([finding.rule for finding in found], ["function-lengths"])
        self.assertIn("p90 is 21", found[0].message)
        # Functions of tests do not count; those in headers of the product do.
        self.assertEqual(sums_of({"src/model/x_test.cpp": long, "src/model/x.h": short}).lengths, [20])

    def test_share_of_tests(self):
        product = {"src/model/x.cpp": "int a;\n" * 900, "textkit/src/lib.rs": "fn a() {}\n" * 100}
        needed = round(1000 * tidy.MIN_TEST_RATIO)
        for num_lines, expected in ((needed, []), (needed - 1, ["test-ratio"])):
            sums = sums_of({**product, "tests/cli/test_x.py": "a\n" * num_lines})
            self.assertEqual([finding.rule for finding in sums.findings()], expected)

    def test_what_counts_as_test(self):
        counted = {"src/model/x_test.cpp": "a\n", "src/model/testing/fake.h": "a\n", "src/server/test_support.h": "a\n",
                   "tests/web/x.test.mjs": "a\n", "tests/http/test_x.py": "a\n",
                   "textkit/src/lib.rs": "#[cfg(test)]\nmod tests {\n}\n"}
        self.assertEqual(sums_of(counted).test_lines, 8)
        self.assertEqual(sums_of(counted).product_lines, 0)
        for path in ("bench/kernels.cpp", "tests/golden/expect.json", "docs/x.md", "web/src/main.ts"):
            self.assertEqual((sums_of({path: "a\n"}).test_lines, sums_of({path: "a\n"}).product_lines), (0, 0), path)


class SealedUnitsTest(unittest.TestCase):
    FOLDER = "build/src/backend/CMakeFiles/"

    def test_a_part_exports_its_name_in_its_units_namespace(self):
        part = "/cpu/kernels/parts/"
        for path, export in (("kernels_avx2.dir" + part + "int16_direct.cpp.o", "_ZN8headrace3cpu4avx212kInt16DirectE"),
                             ("kernels_avx512_vnni.dir" + part + "floats.cpp.o", "_ZN8headrace3cpu11avx512_vnni7kFloatsE"),
                             ("kernels_amx.dir" + part + "tiles_bf16.cpp.o", "_ZN8headrace3cpu3amx10kTilesBf16E"),
                             ("hr_bench.dir/probe/avx2.cpp.o", "kAvx2Probes")):
            self.assertEqual(sealed_units.export_of(pathlib.Path(self.FOLDER + path)), export)

    def test_other_objects_are_not_sealed(self):
        for path in ("hr_backend.dir/cpu/kernels/units.cpp.o", "hr_backend.dir/cpu/kernels/reference/floats.cpp.o",
                     "mutant_avx2.dir/src/backend/cpu/kernels/parts/floats.cpp.o",
                     "kernels_amx_model.dir/cpu/kernels/parts/tiles_bf16.cpp.o"):
            self.assertIsNone(sealed_units.export_of(pathlib.Path(self.FOLDER + path)), path)

    def problems_of(self, listing, export="_ZN8headrace3cpu4avx26kFloatsE"):
        with unittest.mock.patch.object(sealed_units, "symbols", return_value=listing):
            return list(sealed_units.problems(pathlib.Path("floats.cpp.o"), export))

    def test_one_export_and_nothing_weak_or_foreign(self):
        good = [("R", "_ZN8headrace3cpu4avx26kFloatsE"), ("t", "_ZN1aE"), ("U", "memcpy"), ("U", "__asan_init")]
        self.assertEqual(self.problems_of(good), [])
        for bad, message in ((("W", "_ZN3stdE"), "weak symbol _ZN3stdE"), (("U", "malloc"), "needs malloc"),
                             (("T", "helper"), "exports")):
            found = self.problems_of(good + [bad])
            self.assertEqual(len(found), 1, bad)
            self.assertIn(message, found[0])
        self.assertIn("needed only _ZN8headrace3cpu4avx26kFloatsE", self.problems_of(good[1:])[0])


if __name__ == "__main__":
    unittest.main()
