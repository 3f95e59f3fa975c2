"""How the site is built. `make docs` writes it to site/; a warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

import acid

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

project = "ACID"
author = "The ACID developers"
copyright = f"2026, {author}"
release = version = acid.__version__

extensions = [
    "myst_nb",  # the guides and the notebook
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
    "api_pages",
    "command_help",
    "repository_links",
]
exclude_patterns = ["_ext", "**.ipynb_checkpoints"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "ACID"
html_static_path = ["_static"]
html_css_files = ["acid.css"]
html_extra_path = ["report.html"]  # one file that holds everything it shows
html_favicon = "_static/favicon.svg"
html_show_sourcelink = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0f766e", "color-brand-content": "#0f766e"},
    "dark_css_variables": {"color-brand-primary": "#5eead4", "color-brand-content": "#5eead4"},
}
copybutton_exclude = ".linenos, .gp"
