"""The world model that saw every push turned: each line is compared with ACID of the usual one."""

from __future__ import annotations

from pathlib import Path

from table_rows import cells, write_rows

from acid.tables import Findings, Options, write
from acid.tables.symmetries import SYMMETRIES, TURNED

N = 30


def fill(findings: Findings, errors: dict[str, float], turned: dict[str, float]) -> None:
    """A final error under each condition of each model, which varies a little from problem to problem."""
    for study in findings.studies:
        found = turned if study.model == TURNED else errors
        for name in study.conditions:
            error = found[name]
            rows = [{"final_error": error + k / 100, "metrics": {"chamfer": error + k / 100}} for k in range(N)]
            rows = [row | {"metric": "chamfer", "higher_is_better": False, "errors": (1.0,)} for row in rows]
            write_rows(findings, study, name, rows)


def test_what_the_turned_pushes_and_the_policy_gain_is_judged(tmp_path: Path) -> None:
    findings = Findings(SYMMETRIES, Options(tmp_path))
    assert all(claim.judge(findings) is None for claim in SYMMETRIES.claims)
    usual = {"original": 3.0, "acid": 2.0, "policy": 4.0, "proposal": 2.5, "proposal-acid": 2.4}
    fill(findings, usual, {"original": 2.0, "acid": 1.5, "policy": 3.0, "proposal": 1.0, "proposal-acid": 1.0})
    kinds = [str(claim.judge(findings)).split(" at ")[0] for claim in SYMMETRIES.claims]
    assert kinds == ["confirmed"] * 3 + ["not confirmed"]
    (forest,), (path,) = SYMMETRIES.show(findings), SYMMETRIES.draw(findings, tmp_path)
    assert [round(bar.value, 3) for bar in forest.bars] == [0.0, -0.5, -1.0, -1.0] * 2
    assert path.stat().st_size > 1000
    rows = {tuple(row[:3] + row[4:5]): row for row in cells(write(findings))}
    assert rows["rope", "dinowm", "acid", "2000"][7] == "-"
    assert rows["rope", TURNED, "proposal-acid", "300 near"][7].startswith("-1.000")
    assert rows["granular", TURNED, "original", "300"][7].startswith("+0.000")
