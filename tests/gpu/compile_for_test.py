#!/usr/bin/env python3
"""Tests compile_for.py, without a compiler."""

import os
import unittest

import compile_for

COMMAND = ["nvcc", "-O2", "--generate-code=arch=compute_90a,code=[sm_90a]", "-c", "a.cu", "-o", "a.o"]


class CompileForTest(unittest.TestCase):
    def test_the_architecture_and_the_object_are_replaced(self):
        command = compile_for.command_for(COMMAND, "80", machine_code=False, out="/tmp/x.o")
        self.assertIn("--generate-code=arch=compute_80,code=[compute_80]", command)
        self.assertNotIn("90a", " ".join(command))
        self.assertEqual(command[-2:], ["-o", "/tmp/x.o"])
        command = compile_for.command_for(COMMAND, "120", machine_code=True, out="/tmp/x.o")
        self.assertIn("--generate-code=arch=compute_120,code=[sm_120]", command)

    def test_a_command_without_an_architecture_is_refused(self):
        with self.assertRaises(ValueError):
            compile_for.command_for(["nvcc", "-c", "a.cu", "-o", "a.o"], "80", machine_code=False, out="x")

    def test_changed_sources_come_first_and_the_others_take_turns(self):
        sources = [f"{i:02}.cu" for i in range(10)]
        first = compile_for.order(sources, {"07.cu"}, 0)
        self.assertEqual(first[:3], ["07.cu", "00.cu", "01.cu"])
        self.assertEqual(sorted(first), sources)
        covered = set()
        for turn in range(5):
            covered |= set(compile_for.order(sources, set(), turn)[:compile_for.STRIDE])
        self.assertEqual(covered, set(sources))

    def test_the_architectures_are_those_of_the_build(self):
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
        with open(os.path.join(root, "cmake", "BatonCuda.cmake"), encoding="utf-8") as file:
            self.assertIn("|".join(compile_for.ARCHITECTURES), file.read())


if __name__ == "__main__":
    unittest.main()
