"""What every test file shares: the hypothesis profile, and data sets that skip the test when absent."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import settings

from nearwise import datasets

settings.register_profile("nearwise", deadline=None, derandomize=True)
settings.load_profile("nearwise")


@pytest.fixture
def load_dataset() -> Callable[[str], datasets.Dataset]:
    """`datasets.load`, where an absent file skips the test and says which file it was."""

    def load(name: str) -> datasets.Dataset:
        try:
            return datasets.load(name)
        except datasets.DatasetUnavailable as error:
            pytest.skip(str(error))

    return load
