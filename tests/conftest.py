"""Hypothesis profiles: `dev` at the desk, `ci` where CI is set, `soak` by HYPOTHESIS_PROFILE (see `make soak`)."""

import os

from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}

settings.register_profile("dev", max_examples=50, stateful_step_count=40, **_COMMON)
settings.register_profile("ci", max_examples=150, stateful_step_count=50, print_blob=True, **_COMMON)
settings.register_profile("soak", max_examples=20_000, stateful_step_count=100, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))
