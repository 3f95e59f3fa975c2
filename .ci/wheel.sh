#!/usr/bin/env bash
# The wheel as a stranger meets it: installed into empty environments, away from the repository.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
wheel=$(ls "$root"/dist/*.whl)
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
cd "$room"

say() { printf '\n== %s\n' "$*"; }
install() { "$room/$1/bin/pip" install --quiet --disable-pip-version-check -c "$root/constraints.txt" "${@:2}"; }

say "The core alone: torch, numpy, safetensors"
"${PYTHON:-python3.11}" -m venv core
install core torch
install core "$wheel"
core/bin/python -c 'import acid; from acid.views.health import plan; print(acid.__version__, plan())'
core/bin/acid --help >/dev/null
if core/bin/acid demo >out.txt 2>&1; then echo "acid demo should say what to install" >&2; exit 1; fi
grep "pip install 'acid-planning\[cli\]'" out.txt
if grep Traceback out.txt; then exit 1; fi

say "With the command: what works, what is missing"
install core "$wheel[cli]"
core/bin/acid --version
core/bin/acid doctor

say "With everything: the notebook, then the documentation"
install core "$wheel[all,docs]" nbclient ipykernel
core/bin/acid doctor
cp "$root/docs/first-plan.ipynb" .
OMP_NUM_THREADS=1 core/bin/python - <<'PY'
import nbformat
from nbclient import NotebookClient

notebook = nbformat.read("first-plan.ipynb", as_version=4)
NotebookClient(notebook, timeout=1800, startup_timeout=600).execute()
print(sum(cell.cell_type == "code" for cell in notebook.cells), "cells ran")
PY
cp -r "$root/docs" "$root/CONTRIBUTING.md" "$root/CHANGELOG.md" "$root/examples" "$root/tests" .
OMP_NUM_THREADS=1 core/bin/python -m sphinx --fail-on-warning -q -b html docs site
echo "$(find site -name '*.html' | wc -l) pages"
