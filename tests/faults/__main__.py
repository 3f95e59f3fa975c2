"""`make test-faults`: damaged files and calls, kills, full and read-only disks. Interrupted, it continues."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from faults.commands import kill_commands
from faults.fuzz import run
from faults.trouble import full_disks, kill, read_only

parser = argparse.ArgumentParser(prog="make test-faults")
parser.add_argument("--inputs", type=int, default=20_000)
parser.add_argument("--kills", type=int, default=100)
parser.add_argument(
    "--state", type=Path, default=Path("build/faults.json"), help="finished batches; remove to start over"
)
given = parser.parse_args()

torch.set_num_threads(1)
fuzzed = run(given.inputs, given.state)
by_signals, signal_wrong = kill_commands(rounds=2)
killed, kill_wrong = kill(given.kills - by_signals)
full, full_wrong = full_disks([2**k for k in range(9, 20)], mount=False)
small, small_wrong = full_disks([2**k for k in range(13, 20)], mount=True)
refused, refused_wrong = read_only()
wrong = [*fuzzed.wrong, *signal_wrong, *kill_wrong, *full_wrong, *small_wrong, *refused_wrong]
print(
    f"{fuzzed}; {by_signals + killed} kills; {full + small} full disks; {refused} read-only places; {len(wrong)} wrong "
    "(raw exceptions, hangs, growths, crashes, executed code, orphans, ends that differ)"
)
for line in wrong[:50]:
    print(f"  {line}")
raise SystemExit(1 if wrong else 0)
