"""Hypothesis draws the same examples in every run; --hypothesis-profile=thorough draws new ones."""

from hypothesis import HealthCheck, Phase, settings

slow = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]
settings.register_profile(
    "default", max_examples=40, deadline=None, suppress_health_check=slow, derandomize=True
)
settings.register_profile(
    "thorough", parent=settings.get_profile("default"), max_examples=1000, derandomize=False
)
# For `make check`: the laws at a few examples each.
settings.register_profile("fast", parent=settings.get_profile("default"), max_examples=8)
# For `tools/mutation.py`: that a test fails is enough, the smallest example is not needed.
settings.register_profile(
    "mutation",
    parent=settings.get_profile("default"),
    max_examples=5,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("default")
