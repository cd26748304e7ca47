import pytest

from tests.cli.conftest import CLICK_COLUMNS, TINY
