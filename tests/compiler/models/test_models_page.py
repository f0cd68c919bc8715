"""docs/models.md lists every architecture. Its columns of targets come from docs/features.md, whose
table `tests/test_feature_matrix.py` checks."""

from __future__ import annotations

import re

from mlcc_compiler.models.registry import ARCHITECTURES
from tests.compiler.models.test_architectures import BOUND
from tests.models_page import FAMILIES, PAGE, TEMPLATES, errors_on, file_of, rewritten

TEXT = PAGE.read_text(encoding="utf-8")


def without_targets(page: str) -> str:
    return re.sub(r"( \| [^|]*){2} \|$", "", page, flags=re.MULTILINE)


def test_it_is_what_the_registry_and_the_templates_say() -> None:
    expected = without_targets(rewritten(TEXT, errors_on(TEXT)))
    assert without_targets(TEXT) == expected, "type: python tests/models_page.py"


def test_each_architecture_has_an_error_within_the_bound() -> None:
    errors = errors_on(TEXT)
    assert set(errors) == {file_of(kind) for kind in ARCHITECTURES}
    assert all(0 < error < BOUND for error in errors.values())


def test_each_template_has_a_model_type() -> None:
    named = {name for names in TEMPLATES.values() for name in names}
    assert named == {family.name for family in FAMILIES}
    assert set(TEMPLATES) <= set(ARCHITECTURES)
