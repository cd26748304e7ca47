import json

import pytest

from tests.exhibits.conftest import write_parts
