"""Test doubles and conformance suites; import its modules one by one, as suites need pytest."""
