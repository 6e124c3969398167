"""Hypothesis profiles: `dev` at the desk, `ci` where CI is set, `soak` by HYPOTHESIS_PROFILE (see `make soak`)."""

import os

# Before anything imports gRPC: its handlers break children that others fork, as PySpark does to start Java.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from hypothesis import HealthCheck, settings

# A hundred steps that each draw joins and keys are much data, and meant to be.
_SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def _register(name: str, examples: int, steps: int) -> None:
    settings.register_profile(
        name,
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=_SLOW_IS_FINE,
        print_blob=True,
    )


_register("dev", 50, 40)
_register("ci", 150, 50)
_register("soak", 20_000, 100)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))
