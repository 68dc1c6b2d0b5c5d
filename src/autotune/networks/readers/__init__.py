"""Readers: from models of others to graphs of workloads."""
