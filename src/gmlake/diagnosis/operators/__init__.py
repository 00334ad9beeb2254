"""Diagnosis of PyTorch programs: a trace of objects from the operators that run."""

from gmlake.diagnosis.operators.report import Report, diagnose

__all__ = ["Report", "diagnose"]
