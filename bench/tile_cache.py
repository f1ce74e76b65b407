#!/usr/bin/env python3
"""What the second cache must deliver while tiles multiply rows by coded weights (unit amx), by a model of the first cache.

bench/tile_cache.py [--rows 256] [--panels 16] [--policies lru,random]

Follows the lines that kernels/amx/coded_segment.h touches, segment by segment: operands that all rows share, records of x,
stored sums and totals; in a first cache of 48 KiB and 12 ways. Prints for each class and length of a segment which share of
the operands' lines is not in it, and the bytes of operands and x that come from the second cache per cycle of the products
(16 each), with blocks from beginning to end for every tile of rows and from either end in turns. What a second cache delivers,
`headrace bench machine` measures; this needs no processor with tiles.
"""

import argparse
import random

kLine, kSets, kWays = 64, 64, 12
kBlock = 64  # inputs of a product
kProductCycles = 16
kRowBytes = {"fixed-point": 640, "bf16-codes": 512}  # of a record of 256 inputs
kRowTiles = {"fixed-point": 1, "bf16-codes": 2}
kSums = {"fixed-point": 6, "bf16-codes": 4}  # tiles of a turn
kX, kScratch, kTotals = 1 << 28, (2 << 28) + (1 << 19), 2 << 28
kSumsAt = 40960  # in the scratch, behind the operands


class Cache:
    def __init__(self, policy):
        self.policy, self.sets, self.random = policy, [[] for _ in range(kSets)], random.Random(1)

    def touch(self, address):
        """Whether the line was there. A set's lines: the one used last at its end."""
        line = address // kLine
        lines = self.sets[line % kSets]
        there = line in lines
        if there:
            lines.remove(line)
        elif len(lines) == kWays:
            lines.pop(0 if self.policy == "lru" else self.random.randrange(kWays))
        lines.append(line)
        return there


class Turns:
    """Pairs of panels times all rows, over one segment."""

    def __init__(self, cache, kind, inputs, given):
        self.cache, self.kind, self.blocks, self.given = cache, kind, inputs // kBlock, given
        self.turn_rows = 16 * kRowTiles[kind]
        self.operands = self.missed_operands = self.missed_x = self.cycles = 0

    def run(self, from_either_end):
        for panel in range(0, self.given.panels, 2):
            for line in range(self.blocks * 64):
                self.cache.touch(kScratch + line * kLine)  # operands are made
            for turn in range(self.given.rows // self.turn_rows):
                order = range(self.blocks)
                self.turn(panel, turn, reversed(order) if from_either_end and turn % 2 == 0 else order)

    def turn(self, panel, turn, order):
        for place, block in enumerate(order):
            self.multiply(turn, block)
            self.add_sums(panel, turn, place)
            self.cycles += 8 * kProductCycles
        for line in range(kSums[self.kind] * 16):
            self.cache.touch(kScratch + kSumsAt + line * kLine)  # stores

    def multiply(self, turn, block):
        for row in range(self.turn_rows):
            record = (block // 4 * self.given.rows + turn * self.turn_rows + row) * kRowBytes[self.kind]
            for half in range(2):
                self.missed_x += not self.cache.touch(kX + record + block % 4 * 128 + half * kLine)
        for line in range(64):
            self.operands += 1
            self.missed_operands += not self.cache.touch(kScratch + block * 4096 + line * kLine)

    def add_sums(self, panel, turn, place):
        """A share of the sums of the turn before."""
        share = -(-self.turn_rows // self.blocks)
        for row in range(place * share, min((place + 1) * share, self.turn_rows)):
            for tile in range(kSums[self.kind]):
                self.cache.touch(kScratch + kSumsAt + tile * 1024 + row % 16 * kLine)
            for side in range(2):
                self.cache.touch(kTotals + (turn * self.turn_rows + row) * 1024 + (panel + side) * kLine)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--panels", type=int, default=16)
    parser.add_argument("--policies", default="lru,random")
    given = parser.parse_args()
    print("class        segment  policy  order        operands missed  bytes a cycle")
    for kind in kRowBytes:
        for inputs in (256, 320, 384, 512, 576, 640):
            for policy in given.policies.split(","):
                for from_either_end in (False, True):
                    turns = Turns(Cache(policy), kind, inputs, given)
                    turns.run(from_either_end)
                    missed = 100 * turns.missed_operands / turns.operands
                    byte_rate = kLine * (turns.missed_operands + turns.missed_x) / turns.cycles
                    order = "either end" if from_either_end else "one end"
                    print(f"{kind:12} {inputs:7}  {policy:6}  {order:10} {missed:15.0f} %  {byte_rate:13.1f}")


if __name__ == "__main__":
    main()
