"""Diagnosis of PyTorch programs: a trace of objects from the operators that run."""

from gmlake.diagnosis.operators.operator_report import Report, diagnose

__all__ = ["Report", "diagnose"]
