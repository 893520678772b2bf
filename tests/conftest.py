"""Settings of all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Examples are the same in every run, and a busy machine fails no test: times are measured by benchmarks.
settings.register_profile("repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")
