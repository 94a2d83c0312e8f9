#!/usr/bin/env python3
"""check_alone.py finds headers that forgot an include, in each of the ways that precompiled headers could hide it."""
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import check_alone  # noqa: E402  (the path has to be known first)

# What it includes makes it worth precompiling for the users that follow.
BASE = "#pragma once\n#include <map>\n#include <string>\ninline std::map<int, std::string> names() { return {}; }\n"
CLEAN = {"base.h": BASE, **{f"user_{i}.h": '#pragma once\n#include "base.h"\n' for i in range(4)}}


def found(planted):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**CLEAN, **planted}.items():
            Path(folder, name).write_text(text)
        includes = check_alone.Includes([*CLEAN, *planted], [Path(folder)])
        bases, upon = check_alone.choose_bases(includes)
        assert bases == ["base.h"] and upon["user_0.h"] == "base.h", "nothing is precompiled: the cases prove nothing"
        return sorted(check_alone.check(includes, ["-std=c++20", f"-I{folder}"], "clang++", 2))


class Headers(unittest.TestCase):
    def test_none_where_each_includes_what_it_uses(self):
        self.assertEqual(found({"planted.h": '#pragma once\n#include "base.h"\ninline auto first() { return names(); }\n'}), [])

    def test_one_that_uses_what_is_precompiled_and_includes_nothing(self):
        self.assertEqual(found({"planted.h": "#pragma once\ninline std::string name() { return {}; }\n"}), ["planted.h"])

    def test_one_that_includes_the_base_and_forgot_another(self):
        self.assertEqual(found({"planted.h": '#pragma once\n#include "base.h"\ninline std::list<int> all() { return {}; }\n'}),
                         ["planted.h"])

    def test_one_that_includes_the_base_under_a_condition_that_does_not_hold(self):
        text = '#pragma once\n#ifdef NOBODY\n#include "base.h"\n#endif\ninline std::string name() { return {}; }\n'
        self.assertEqual(found({"planted.h": text}), ["planted.h"])

    def test_one_that_destroys_what_it_only_declares(self):
        text = ('#pragma once\n#include <memory>\n#include "base.h"\nclass Owned;\n'
                "struct Owner {\n  ~Owner() {}\n  std::unique_ptr<Owned> owned;\n};\n")
        self.assertEqual(found({"planted.h": text}), ["planted.h"])

    def test_the_base_itself_and_all_that_include_it(self):
        broken = BASE + "inline std::list<int> all() { return {}; }\n"
        self.assertEqual(found({"base.h": broken}), sorted(CLEAN))


if __name__ == "__main__":
    if not shutil.which("clang++"):
        print("there is no clang++, which check_alone.py is for")
        sys.exit(77)
    unittest.main()
