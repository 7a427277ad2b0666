#!/usr/bin/env python3
"""Tests order_by_changes.py."""

import unittest

from order_by_changes import order, source_of, touched

LOWER = {"lower/a.cc", "lower/b.cc"}
UPPER = LOWER | {"upper/c.cc", "upper/d.cc"}
PROGRAMS = {
    "lower_test": LOWER | {"tests/lower_test.cc"},
    "upper_test": UPPER | {"tests/upper_test.cc"},
    "other_test": {"other/e.cc", "tests/other_test.cc"},
    "more_test": {"other/f.cc", "tests/more_test.cc"},
}


class OrderByChangesTest(unittest.TestCase):
    def test_every_program_occurs_once_whatever_the_turn(self):
        for changed in (set(), {"lower/a.cc"}, {"other/e.cc", "upper/c.cc", "lower/b.cc"}):
            for turn in range(9):
                self.assertEqual(sorted(order(PROGRAMS, changed, turn)), sorted(PROGRAMS))

    def test_what_changed_comes_first(self):
        self.assertEqual(order(PROGRAMS, {"upper/c.cc"}, 0)[0], "upper_test")
        self.assertEqual(order(PROGRAMS, {"tests/other_test.cc"}, 0)[0], "other_test")

    def test_the_smallest_program_of_a_changed_source_comes_first(self):
        self.assertEqual(order(PROGRAMS, {"lower/a.cc"}, 2)[:2], ["lower_test", "upper_test"])

    def test_the_others_take_turns(self):
        firsts = {order(PROGRAMS, {"lower/a.cc"}, turn)[2] for turn in range(4)}
        self.assertEqual(firsts, {"more_test", "other_test"})
        self.assertEqual({order(PROGRAMS, set(), turn)[0] for turn in range(4)}, set(PROGRAMS))

    def test_a_change_of_much_does_not_keep_the_others_waiting(self):
        many = {f"t{i:02}": {f"s{i}.cc"} for i in range(20)}
        changed = {f"s{i}.cc" for i in range(15)}
        self.assertTrue(set(order(many, changed, 15)[:6]) & {f"t{i:02}" for i in range(15, 20)})

    def test_headers_touch_their_sources(self):
        sources = {"a/x.cc", "a/y.cc", "b/z.cc", "proto/generated/proto/kv.pb.cc"}
        self.assertEqual(touched({"a/x.h"}, sources), {"a/x.cc"})
        self.assertEqual(touched({"a/only_a_header.h"}, sources), {"a/x.cc", "a/y.cc"})
        self.assertEqual(touched({"proto/kv.proto"}, sources), {"proto/generated/proto/kv.pb.cc"})
        self.assertEqual(touched({"README.md", "c/gone.cc"}, sources), set())

    def test_the_source_of_an_object(self):
        self.assertEqual(source_of("router/CMakeFiles/baton_router.dir/main.cc.o"), "router/main.cc")
        self.assertEqual(source_of("a/CMakeFiles/x.dir/__/b/c.cc.o"), "b/c.cc")
        self.assertIsNone(source_of("router/libbaton_router.a"))
        self.assertIsNone(source_of("/usr/lib/libssl.so"))


if __name__ == "__main__":
    unittest.main()
