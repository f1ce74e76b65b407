"""tools/unchanged.py: what makes a unit's key, what a log says, and what is kept."""

import importlib.util
import json
import os
import pathlib
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("unchanged", ROOT / "tools/unchanged.py")
unchanged = importlib.util.module_from_spec(spec)
spec.loader.exec_module(unchanged)

LOG = """
  1/918 Test   #1: tidy.rules ..............................   Passed    0.63 sec
        Start 12: Models/SlicedGguf.HasTheIdsOfTheWhole/"gemma3-270m.gguf"
 12/918 Test  #12: Models/SlicedGguf.HasTheIdsOfTheWhole/"gemma3-270m.gguf" ....   Passed    2.91 sec
 13/918 Test  #13: Amx.RunsHere ....***Skipped   0.01 sec
 14/918 Test  #14: A.B .............***Failed    0.01 sec
 15/918 Test  #15: A.C .............***Timeout 300.01 sec
 16/918 Test  #16: A.D .............***Exception: SegFault  0.01 sec
99% tests passed, 3 tests failed out of 918
"""


class Results(unittest.TestCase):
    def test_a_log_names_each_test_and_its_outcome(self):
        self.assertEqual(unchanged.results_in(LOG), {
            "tidy.rules": "Passed", 'Models/SlicedGguf.HasTheIdsOfTheWhole/"gemma3-270m.gguf"': "Passed",
            "Amx.RunsHere": "Skipped", "A.B": "Failed", "A.C": "Timeout", "A.D": "Exception"})


class InAFolder(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.root = pathlib.Path(place.name)
        for patch in [mock.patch.object(unchanged, "ROOT", self.root), mock.patch.dict(os.environ)]:
            patch.start()
            self.addCleanup(patch.stop)
        for name in [name for name in os.environ if name.startswith("HEADRACE_") or name == "FRESH"]:
            del os.environ[name]
        unchanged.surroundings.cache_clear()
        self.program = self.write("build/release/bin/test_a", "program")

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def key(self):
        unchanged.surroundings.cache_clear()
        return unchanged.key_of_program(self.program, "release")


class Keys(InAFolder):
    def changes(self, change):
        before = self.key()
        self.assertEqual(before, self.key())
        change()
        return before != self.key()

    def test_program_data_variables_and_models_count(self):
        (self.root / "models").mkdir()
        os.environ["HEADRACE_TEST_MODELS"] = str(self.root / "models")
        self.assertTrue(self.changes(lambda: self.write("build/release/bin/test_a", "another")))
        self.assertTrue(self.changes(lambda: self.write("tests/data/x.bin", "data")))
        self.assertTrue(self.changes(lambda: self.write("models/a.gguf", "weights")))
        self.assertTrue(self.changes(lambda: os.environ.update(HEADRACE_FULL="1")))

    def test_sources_other_programs_and_caches_do_not(self):
        self.assertFalse(self.changes(lambda: self.write("src/a.cpp", "source")))
        self.assertFalse(self.changes(lambda: self.write("build/release/bin/test_b", "program")))
        self.assertFalse(self.changes(lambda: self.write("tests/data/__pycache__/x.pyc", "code")))
        self.assertFalse(self.changes(lambda: os.environ.update(TERM="other")))

    def test_the_program_under_test_counts_where_it_is_started(self):
        under_test = lambda text: lambda: self.write("build/release/bin/headrace", text)  # noqa: E731
        self.assertFalse(self.changes(under_test("one")))
        self.write("build/release/bin/test_a", "starts ./build/release/bin/headrace")
        self.assertTrue(self.changes(under_test("two")))


class Kept(InAFolder):
    def test_only_the_same_key_is_found_again_and_nothing_when_all_is_to_run(self):
        passed = unchanged.Passed("release")
        passed.keep("test_a", "k", 7, 2)
        passed.write()
        self.assertEqual(unchanged.Passed("release").find("test_a", "k"), {"key": "k", "passed": 7, "skipped": 2})
        self.assertIsNone(unchanged.Passed("release").find("test_a", "other"))
        self.assertIsNone(unchanged.Passed("asan").find("test_a", "k"))
        os.environ["FRESH"] = "1"
        again = unchanged.Passed("release")
        self.assertIsNone(again.find("test_a", "k"))
        again.keep("test_b", "k", 1, 0)
        again.write()
        del os.environ["FRESH"]
        for unit in ("test_a", "test_b"):
            self.assertIsNotNone(unchanged.Passed("release").find(unit, "k"))

    def with_tests(self, *names):
        return mock.patch.object(unchanged, "tests_of", lambda build, arguments: {
            self.program: [(2 + idx, name) for idx, name in enumerate(names)], None: [(1, "tidy.rules")]})

    def chosen(self):
        with mock.patch("builtins.print") as told:
            unchanged.choose("release", self.root / "list", [])
        return (self.root / "list").read_text(), told.call_args.args

    def test_a_program_whose_tests_all_passed_is_not_run_again(self):
        with self.with_tests("A.One", "A.Two"):
            self.assertEqual(self.chosen(), ("0,0,0,1,2,3\n", (3, 0, 0)))
            log = self.write("log", "1/2 Test #2: A.One ...   Passed\n2/2 Test #3: A.Two ...***Skipped\n")
            unchanged.keep("release", log, [])
            self.assertEqual(self.chosen(), ("0,0,0,1\n", (1, 1, 1)))
            self.write("build/release/bin/test_a", "rebuilt")
            self.assertEqual(self.chosen(), ("0,0,0,1,2,3\n", (3, 0, 0)))

    def test_a_failure_a_missing_result_or_a_new_test_runs_the_program_again(self):
        passes = self.write("log", "1/1 Test #2: A.One ...   Passed\n")
        fails = self.write("log2", "1/1 Test #2: A.One ...***Failed\n")
        with self.with_tests("A.One"):
            unchanged.keep("release", passes, [])
            self.assertEqual(self.chosen()[1], (1, 1, 0))
        with self.with_tests("A.One", "A.Two"):
            self.assertEqual(self.chosen()[1], (3, 0, 0))
            unchanged.keep("release", passes, [])
        with self.with_tests("A.One"):
            unchanged.keep("release", fails, [])
            self.assertEqual(self.chosen()[1], (2, 0, 0))

    def test_a_suite_is_found_by_its_paths(self):
        self.write("tests/cli/test_a.py", "a test")
        arguments = ["tests/cli", "build/release/bin/test_a"]
        self.assertEqual(unchanged.suite("release", "cli", arguments), 1)
        unchanged.suite("release", "cli", [*arguments, "--passed", "5", "1"])
        with mock.patch("builtins.print") as told:
            self.assertEqual(unchanged.suite("release", "cli", arguments), 0)
        self.assertEqual(told.call_args.args, (5, 1))
        self.write("tests/cli/test_a.py", "another test")
        unchanged.surroundings.cache_clear()
        self.assertEqual(unchanged.suite("release", "cli", arguments), 1)
        self.assertIn("cli", json.loads((self.root / "build/results/passed/release.json").read_text()))


if __name__ == "__main__":
    unittest.main()
