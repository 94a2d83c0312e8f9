#!/usr/bin/env python3
"""check_lines.py against code in which a warp has parted, in each of the ways there are."""
import unittest

import check_lines

SASS = """
\t\tFunction : arcomm_pair_ll128_bfloat16_sum
        /*0000*/                   S2R R1, SR_TID.X ;          /* 0x0 */
{before}
        /*0100*/                   STG.E.128.STRONG.SYS desc[UR8][R62.64], R48 ;   /* 0x0 */
{between}
        /*0120*/                   STG.E.128.STRONG.SYS desc[UR10][R62.64+0x200], R52 ;   /* 0x0 */
        /*0130*/                   EXIT ;
{behind}
"""
PTX = """
.visible .entry arcomm_pair_ll128_bfloat16_sum(
{before}
\tadd.s64 \t%rd2, %rd1, 1024;
\t// begin inline asm
\tld.volatile.global.v4.u32 {{%r4, %r3, %r2, %r1}}, [%rd2];
\t// end inline asm
{between}
\tadd.s64 \t%rd3, %rd1, 1536;
\tld.volatile.global.v4.u32 {{%r8, %r7, %r6, %r5}}, [%rd3];
\tret;
"""
TOGETHER = "        /*0010*/                   WARPSYNC.ALL ;"
TESTED = "        /*0010*/                   BRA.DIV UR5, 0x140 ;"
SLOW_WAY = """        /*0140*/                   WARPSYNC.COLLECTIVE R66, 0x160 ;
        /*0150*/                   NOP ;
        /*0158*/                   ENDCOLLECTIVE ;
        /*0160*/                   BRA 0x100 ;"""
SYNC = "\tbar.warp.sync \t-1;"


def sass(before="", between="", behind=""):
    return check_lines.check("planted", check_lines.parse_sass(
        SASS.format(before=before, between=between, behind=behind)))


def ptx(before="", between=""):
    return check_lines.check("planted", check_lines.parse_ptx(PTX.format(before=before, between=between)))


class PlantedViolations(unittest.TestCase):
    def test_packets_of_whole_warps_pass(self):
        self.assertEqual(sass(TOGETHER), (1, 0))
        self.assertEqual(sass(TESTED, behind=SLOW_WAY), (1, 0))
        self.assertEqual(ptx(SYNC), (1, 0))

    def test_without_a_convergence(self):
        self.assertEqual(sass(), (1, 1))
        self.assertEqual(ptx(), (1, 1))

    def test_a_branch_behind_the_convergence(self):
        branch = "\n        /*0020*/               @P0 BRA 0x130 ;"
        self.assertEqual(sass(TOGETHER + branch), (1, 1))
        self.assertEqual(ptx(SYNC + "\n\t@%p1 bra \t$L__BB0_1;"), (1, 1))

    def test_other_ways_that_join_behind_the_convergence(self):
        join = "        /*0140*/                   BRA 0x100 ;"
        self.assertEqual(sass(TOGETHER, behind=join), (1, 1))
        self.assertEqual(ptx("\tbra.uni \t$L__BB0_1;\n" + SYNC + "\n$L__BB0_1:"), (1, 1))

    def test_lines_that_a_branch_keeps_apart(self):
        self.assertEqual(sass(TOGETHER, "        /*0110*/               @P0 BRA 0x130 ;"), (1, 1))
        self.assertEqual(ptx(SYNC, "\t@%p1 bra \t$L__BB0_1;"), (1, 1))

    def test_a_convergence_of_some_lanes(self):
        self.assertEqual(ptx("\tbar.warp.sync \t%r9;"), (1, 1))

    def test_lines_of_a_packet_may_have_a_copy_of_the_address_each(self):
        copies = TOGETHER + """
        /*0020*/                   IADD.64 R10, R62.reuse, 0x1000 ;
        /*0028*/                   IADD.64 R62, R62, 0x1000 ;"""
        text = SASS.format(before=copies, between="{between}", behind="").replace("desc[UR8][R62", "desc[UR8][R10")
        whole = text.format(between="")
        self.assertEqual(check_lines.check("planted", check_lines.parse_sass(whole)), (1, 0))
        parted = text.format(between="        /*0110*/               @P0 BRA 0x130 ;")
        self.assertEqual(check_lines.check("planted", check_lines.parse_sass(parted)), (2, 1))
        others = whole.replace("R62.reuse, 0x1000", "R60, 0x1000")
        self.assertEqual(check_lines.check("planted", check_lines.parse_sass(others)), (2, 0))

    def test_a_line_without_its_other_one(self):
        alone = SASS.format(before="{before}", between="", behind="").replace("+0x200", "+0x300")
        text = alone.format(before=TOGETHER)
        self.assertEqual(check_lines.check("planted", check_lines.parse_sass(text)), (2, 0))
        text = alone.format(before="")
        self.assertEqual(check_lines.check("planted", check_lines.parse_sass(text)), (2, 2))

    def test_lines_under_a_predicate(self):
        text = SASS.format(before=TOGETHER, between="", behind="").replace(
            "                   STG.E.128.STRONG.SYS desc[UR8]", "               @P0 STG.E.128.STRONG.SYS desc[UR8]")
        self.assertEqual(check_lines.check("planted", check_lines.parse_sass(text)), (1, 1))


if __name__ == "__main__":
    unittest.main()
