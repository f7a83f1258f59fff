"""Settings of all tests: random cases are judged by their results, never by their time."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
