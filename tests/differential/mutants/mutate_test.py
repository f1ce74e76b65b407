"""The tool that seeds bugs: what it rewrites, and what it refuses."""

import unittest

import mutate
import rules

HEADER = "#pragma once\n\nint twice(int a) {\n  return a +\n      a;\n}\nint same(int a) { return a; }\n"


def apply(*bugs, narrowings=()):
    return mutated_text(bugs, narrowings)["x.h"]


def mutated_text(bugs, narrowings=()):
    return mutate.mutated(lambda header: HEADER, list(bugs), list(narrowings))


def bug(find, replacement, name="a bug", header="x.h"):
    return rules.Bug(name, "row", header, (find, replacement))


class MutateTest(unittest.TestCase):
    def test_replaces_by_a_switch(self):
        text = apply(bug("return a + a;", "return a + (BUG ? 1 : a);"))
        self.assertIn("return a + (mutant(0) ? 1 : a);", text)
        self.assertIn("int same(int a) { return a; }", text)
        self.assertTrue(text.startswith('#pragma once\n\n#include "seeded_bugs.h"\n'))

    def test_white_space_does_not_matter(self):
        for find in ("return a + a;", "return  a\n+ a ;", "twice(int a){return a+a;}"):
            self.assertIn("WRONG || mutant(0)", apply(bug(find, "WRONG || BUG")), find)

    def test_numbers_follow_the_table(self):
        text = apply(bug("return a + a;", "return BUG;"), bug("return a; }", "return BUG; }", name="another"))
        self.assertIn("return mutant(0);", text)
        self.assertIn("return mutant(1); }", text)
        header = mutate.bugs_header([bug("", "", name="first"), bug("", "", name="second")])
        self.assertLess(header.index('{"first", "row"},'), header.index('{"second", "row"},'))

    def test_later_edits_see_earlier_ones(self):
        both = rules.Bug("two", "row", "x.h", ("return a + a;", "return BUG ? 1 : a + a;"), ("a + a;", "a - a;"))
        self.assertIn("return mutant(0) ? 1 : a - a;", apply(both))

    def test_a_rule_applies_exactly_once(self):
        for find, count in (("return b;", 0), ("int a", 2)):
            with self.assertRaises(mutate.RuleError) as raised:
                apply(bug(find, "BUG"))
            for part in ("bug 'a bug'", f"occurs {count} times in x.h, needed once", "rules.py must follow", find):
                self.assertIn(part, str(raised.exception))

    def test_narrowings_apply_exactly_once_too(self):
        self.assertIn("return 2;", apply(narrowings=[("x.h", "return a + a;", "return 2;")]))
        with self.assertRaises(mutate.RuleError) as raised:
            apply(narrowings=[("x.h", "return 3;", "return 2;")])
        self.assertIn("narrowing: its text occurs 0 times", str(raised.exception))

    def test_words_are_whole(self):
        with self.assertRaises(mutate.RuleError):
            apply(bug("return a + a;", "return DEBUG;"))
        with self.assertRaises(mutate.RuleError):
            apply(bug("etur", "BUG"))

    def test_names_are_unique(self):
        with self.assertRaises(mutate.RuleError) as raised:
            apply(bug("return a + a;", "BUG"), bug("return a; }", "BUG"))
        self.assertEqual(str(raised.exception), "two bugs are named 'a bug'")

    def test_every_bug_has_a_switch(self):
        with self.assertRaises(mutate.RuleError) as raised:
            apply(bug("return a + a;", "return 1;"))
        self.assertIn("has no BUG in a replacement", str(raised.exception))

    def test_headers_without_rules_are_not_copied(self):
        self.assertEqual(mutated_text([]), {})


if __name__ == "__main__":
    unittest.main()
